from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.bandit import Problem, arm_features, policy_named
from daskmetrics.bandit._simulate import simulate, true_objectives
from daskmetrics.core.names import Arm, Cell, Checkpoint, Suite, training_order

DATA = os.environ.get("DASKMETRICS_PUBLISHED_DATA")


def test_the_trace_ends_at_the_recommendation_and_its_cost_only_grows(world):
    small = world()
    result = simulate(small.problem, small.table, policy_named("race"), budget=0.3, seed=0, every=5)
    costs = [point.cost for point in result.trace]
    assert costs == sorted(costs) and costs[-1] == result.recommendation.spent
    assert result.trace[-1].arm == result.recommendation.arm
    assert result.trace[-1].regret <= result.trace[0].regret
    assert [pick.index for pick in result.picks] == list(range(len(result.picks)))


def test_an_exhaustive_sweep_has_no_regret(world):
    small = world(reward="zscore", revisions=4)
    result = simulate(small.problem, small.table, policy_named("sweep"), budget=1.0, seed=0)
    assert result.trace[-1].regret == 0.0


def test_true_objectives_are_the_mean_score_or_the_mean_zscore(world):
    raw, scored = world(reward="mean"), world(reward="zscore")
    np.testing.assert_allclose(true_objectives(raw.problem, raw.table), raw.scores.mean(axis=1))
    sweep = scored.scores[scored.problem.baseline_arms]
    expected = ((scored.scores - sweep.mean(axis=0)) / sweep.std(axis=0)).mean(axis=1)
    np.testing.assert_allclose(true_objectives(scored.problem, scored.table), expected)


def test_a_cell_missing_from_the_table_fails(world):
    small = world()
    table = {cell: score for cell, score in small.table.items() if cell.task != "task1"}
    result = simulate(small.problem, table, policy_named("race"), budget=0.3, seed=0)
    assert result.recommendation.failed > 0
    assert "task1" not in result.recommendation.best.scores


@pytest.mark.parametrize("free_running", [False, True])
def test_workers_save_time_and_keep_busy(world, free_running):
    small = world()
    options = {"budget": 0.3, "seed": 0, "window": 4, "free_running": free_running}
    alone, four = (simulate(small.problem, small.table, policy_named("random"), workers=n, **options) for n in (1, 4))
    assert four.trace[-1].time < 0.5 * alone.trace[-1].time
    assert alone.utilisation == pytest.approx(1.0)
    assert 0.5 < four.utilisation <= 1.0


def test_a_worker_loads_a_checkpoint_that_it_does_not_hold(world):
    small = world(revisions=3)
    loading = replace(small.problem, load_cost=np.full(len(small.problem.arms), 100.0))
    sweep = [simulate(p, small.table, policy_named("sweep"), budget=1.0, seed=0) for p in (small.problem, loading)]
    # the grid is swept checkpoint by checkpoint: each of the six is loaded once, and the one of the second model that
    # a first look needs is loaded for it, too
    assert sweep[1].trace[-1].time - sweep[0].trace[-1].time == pytest.approx(100.0 * (6 + 1))
    assert sweep[1].trace[-1].cost == pytest.approx(loading.exhaustive_cost + 100.0)


def test_a_simulated_search_stops_at_the_required_confidence(world):
    small = world(seed=2)
    whole, sure = (
        simulate(small.problem, small.table, policy_named("race"), budget=1.0, seed=0, confidence=c, within=0.05)
        for c in (None, 0.9)
    )
    assert sure.trace[-1].cost < whole.trace[-1].cost
    assert sure.recommendation.probability_within > 0.85


def published_rows() -> Iterator[dict[str, str]]:
    with gzip.open(Path(str(DATA)) / "published_scores.csv.gz", "rt", encoding="utf-8") as lines:
        yield from (row for row in csv.DictReader(lines) if row["size"] == "410m")


def published(tasks: int, seed: int) -> tuple[Problem, dict[Cell, float]]:
    """The published problem: 14 checkpoints x 25 layers of Pythia-410m, on a random choice of the 32 tasks."""
    rows = list(published_rows())
    names = sorted({row["task"] for row in rows})
    names = sorted(np.random.default_rng(seed).permutation(names)[:tasks].tolist())
    suite = Suite("410m", training_order({row["revision"] for row in rows}), tuple(range(25)), 24)
    cells = {Cell(Arm("410m", row["revision"], int(row["layer"])), row["task"]): row for row in rows}
    seconds = np.array([[float(cells[Cell(arm, task)]["evaluation_time"]) for task in names] for arm in suite.arms()])
    table = {cell: float(row["main_score"]) for cell, row in cells.items() if cell.task in names}
    baseline = Checkpoint("410m", "main")
    features = arm_features([suite])
    problem = Problem(suite.arms(), tuple(names), features, np.zeros_like(seconds), seconds, baseline, "mean")
    return problem, table


@pytest.mark.shared
@pytest.mark.skipif(not DATA, reason="set DASKMETRICS_PUBLISHED_DATA to the folder of published_scores.csv.gz")
@pytest.mark.parametrize(("tasks", "budget"), [(16, 0.02), (32, 0.003)])
def test_a_small_share_of_the_cost_finds_the_best_published_arm(tasks, budget):
    within = []
    for seed in range(5):
        problem, table = published(tasks, seed)
        result = simulate(problem, table, policy_named("race"), budget=budget, seed=seed)
        truth = true_objectives(problem, table)
        within.append(result.trace[-1].regret <= 0.01 * truth.max())
        assert result.recommendation.spent <= budget * problem.exhaustive_cost * (1 + 1e-9)
    assert np.mean(within) >= 0.8
