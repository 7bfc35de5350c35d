"""Searches of known scores."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.bandit import policy_named
from daskmetrics.bandit.replay import (
    ReplayPlan,
    Scenario,
    Setting,
    run_trials,
    simulate,
    true_losses,
)
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.experiment.score_tables import read
from tests.bandit.conftest import make_world

DATA = os.environ.get("DASKMETRICS_PUBLISHED_DATA")


def test_a_cell_missing_from_the_table_fails():
    small = make_world(revisions=3)
    table = {cell: score for cell, score in small.table.items() if cell.task != "task1"}
    result = simulate(small.problem, table, policy_named("race"), budget=0.5, seed=0)
    assert result.recommendation.failed > 0
    assert "task1" not in result.recommendation.best.scores


def test_a_worker_loads_a_checkpoint_that_it_does_not_hold():
    small = make_world(revisions=3, layers=2, tasks=3)
    loading = replace(small.problem, load_cost=np.full(len(small.problem.arms), 100.0))
    sweep = [
        simulate(p, small.table, policy_named("sweep"), budget=1.0, seed=0)
        for p in (small.problem, loading)
    ]
    # the grid is swept checkpoint by checkpoint: each of the six is loaded once, and the one of the
    # second model that a first look needs is loaded for it, too
    assert sweep[1].path[-1].seconds - sweep[0].path[-1].seconds == pytest.approx(100.0 * (6 + 1))
    assert sweep[1].recommendation.spent == pytest.approx(loading.exhaustive_cost + 100.0)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(
    not DATA, reason="set DASKMETRICS_PUBLISHED_DATA to the folder of published_scores.csv.gz"
)
@pytest.mark.parametrize(("tasks", "budget"), [(16, 0.02), (32, 0.003)])
def test_a_small_share_of_the_cost_finds_the_best_published_arm(tasks, budget):
    """Of 14 checkpoints x 25 layers on 32 tasks."""
    published = read(Path(str(DATA)) / "published_scores.csv.gz", ["Pythia-410m"])
    plan = ReplayPlan(published, Scenario("published", subset=tasks), budget, 0, ())
    trials = list(run_trials(plan, [Setting("race")], range(5)))
    assert all(trial.path[-1].share <= budget * (1 + 1e-9) for trial in trials)
    assert np.mean([trial.path[-1].loss <= 0.01 for trial in trials]) >= 0.8


def test_costs_are_the_tables_seconds_with_the_overhead_or_shared_encodings_or_units(known):
    published = Scenario(overhead=30).build_problem(known)
    assert published.score_cost[0].tolist() == [31.0, 130.0, 430.0, 34.0]
    assert not published.encode_cost.any()
    shared = Scenario("shared").build_problem(known)
    np.testing.assert_allclose(shared.encode_cost[0], [0.9, 90.0, 360.0, 3.6])
    np.testing.assert_allclose(shared.encode_cost + shared.score_cost, known.seconds)
    assert shared.exhaustive_cost < known.seconds.sum() / 3
    # measured encodings are preferred to assumed ones
    measured = replace(known, encode=0.5 * known.seconds)
    assert not Scenario().build_problem(known).encode_cost.any()
    np.testing.assert_allclose(Scenario().build_problem(measured).encode_cost, 0.5 * known.seconds)
    # a cell without seconds costs the mean of its task
    known.seconds[7, 2] = np.nan
    assert Scenario().build_problem(known).score_cost[7, 2] == 400.0
    known.seconds[:] = np.nan
    assert Scenario().build_problem(known).exhaustive_cost == 120
    with pytest.raises(ConfigError, match="need seconds"):
        Scenario("published").build_problem(known)


def test_a_seed_draws_its_tasks(known):
    drawn = [Scenario(subset=2).draw_tasks(known, seed).tasks for seed in range(12)]
    assert {len(tasks) for tasks in drawn} == {2} and len(set(drawn)) > 2
    again = Scenario(subset=2).draw_tasks(known, 3)
    assert drawn[3] == again.tasks
    columns = [known.tasks.index(task) for task in again.tasks]
    np.testing.assert_array_equal(again.scores, known.scores[:, columns])
    np.testing.assert_array_equal(again.seconds, known.seconds[:, columns])
    with pytest.raises(ConfigError, match="Cannot draw 9 tasks"):
        Scenario(subset=9).draw_tasks(known, 0)


def losses_of(table, objective="all"):
    return true_losses(table, Scenario(objective=objective).build_problem(table))


def test_the_best_arm_is_that_of_the_objective_and_the_others_lose_a_share(known):
    losses = losses_of(known)
    means = known.scores.mean(axis=1)
    assert losses.min() == losses[means.argmax()] == 0.0
    np.testing.assert_allclose(losses, 1 - means / means.max())
    known.scores[4, known.tasks.index("expensive")] += 1.0
    best = [losses_of(known, name).argmin() for name in ("expensive", "classes", "pairs")]
    assert best[:2] == [4, 4] and best[2] != 4


def test_a_best_mean_score_of_zero_gives_losses_and_no_stated_share(known):
    zero = replace(known, scores=np.tile(known.scores[:, :1] - known.scores[:, 0].max(), (1, 4)))
    np.testing.assert_allclose(losses_of(zero), -zero.scores[:, 0])
    flat = replace(known, scores=np.zeros_like(known.scores))
    (trial,) = run_trials(ReplayPlan(flat, Scenario(), 0.2), [Setting("sweep")], [0])
    assert trial.path[-1].loss == 0.0 and np.isnan(trial.path[-1].expected_loss)


def test_an_incomplete_arm_is_never_the_best(known):
    best = losses_of(known).argmin()
    known.scores[best, 0] = np.nan
    losses = losses_of(known)
    assert losses.min() == 0 and losses[best] == np.inf
    known.scores[:, 0] = np.nan
    with pytest.raises(DataError, match=r"each of the 4 tasks \(90 of 120 cells"):
        losses_of(known)


def test_trials_do_not_depend_on_the_number_of_processes(known):
    plan = ReplayPlan(known, Scenario(subset=3), 0.15)
    settings = [Setting("race"), Setting("random")]
    one, two = (list(run_trials(plan, settings, range(2), jobs)) for jobs in (1, 2))
    # the confidence is NaN where it was not computed, and NaN != NaN
    assert [repr(trial) for trial in one] == [repr(trial) for trial in two]
    order = [(trial.setting.policy, trial.seed) for trial in one]
    assert order == [("race", 0), ("race", 1), ("random", 0), ("random", 1)]
    with pytest.raises(ConfigError, match="Did you mean 'race'"):
        next(run_trials(plan, [Setting("rase")], [0], jobs=2))
