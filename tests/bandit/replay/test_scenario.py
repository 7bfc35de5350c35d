from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit.replay import Terms, truth
from daskmetrics.core.errors import ConfigError, DataError


def test_published_costs_are_the_tables_seconds_and_the_overhead(known):
    problem = Terms(overhead=30).pose(known)
    assert problem.score_cost[0].tolist() == [31.0, 130.0, 430.0, 34.0] and not problem.encode_cost.any()


def test_unit_costs_are_one(known):
    assert Terms("unit").pose(known).exhaustive_cost == 120


def test_shared_encodings_are_paid_once(known):
    problem = Terms("shared").pose(known)
    np.testing.assert_allclose(problem.encode_cost[0], [0.9, 90.0, 360.0, 3.6])
    np.testing.assert_allclose(problem.encode_cost + problem.score_cost, known.seconds)
    assert problem.exhaustive_cost < known.seconds.sum() / 3


def test_measured_encodings_are_preferred_to_assumed_ones(known):
    measured = replace(known, encode=0.5 * known.seconds)
    assert Terms().costs_of(measured) == "shared" and Terms().costs_of(known) == "published"
    np.testing.assert_allclose(Terms().pose(measured).encode_cost, 0.5 * known.seconds)


def test_without_seconds_costs_are_units(known):
    timeless = replace(known, seconds=np.full_like(known.seconds, np.nan))
    assert Terms().pose(timeless).exhaustive_cost == 120
    with pytest.raises(ConfigError, match="need seconds"):
        Terms("published").pose(timeless)


def test_a_cell_without_seconds_costs_what_its_task_does(known):
    seconds = known.seconds.copy()
    seconds[7, 2] = np.nan
    assert Terms().pose(replace(known, seconds=seconds)).score_cost[7, 2] == 400.0


def test_a_seed_draws_its_tasks(known):
    drawn = [Terms(subset=2).of_seed(known, seed).tasks for seed in range(12)]
    assert {len(tasks) for tasks in drawn} == {2} and len(set(drawn)) > 2
    assert drawn[3] == Terms(subset=2).of_seed(known, 3).tasks
    with pytest.raises(ConfigError, match="subset of 9 tasks"):
        Terms(subset=9).of_seed(known, 0)


def test_the_best_arm_and_what_others_lose(known):
    problem = Terms().pose(known)
    judged = truth(known, problem)
    means = known.scores.mean(axis=1)
    assert judged.best == means.argmax() and judged.loss[judged.best] == 0.0
    np.testing.assert_allclose(judged.loss, 1 - means / means.max())


def test_an_objective_has_a_truth_of_its_own(known):
    scores = known.scores.copy()
    scores[4, known.tasks.index("dear")] += 1.0
    changed = replace(known, scores=scores)
    assert truth(changed, Terms(objective="dear").pose(changed)).best == 4
    assert truth(changed, Terms(objective="classes").pose(changed)).best == 4
    assert truth(changed, Terms(objective="pairs").pose(changed)).best != 4


def test_an_incomplete_arm_is_never_the_best(known):
    best = truth(known, Terms().pose(known)).best
    scores = known.scores.copy()
    scores[best, 0] = np.nan
    holed = replace(known, scores=scores)
    judged = truth(holed, Terms().pose(holed))
    assert judged.best != best and judged.loss[best] == np.inf
    scores[:, 0] = np.nan
    with pytest.raises(DataError, match=r"No arm has a score on each of the 4 tasks \(90 of 120 cells"):
        truth(holed, Terms().pose(holed))


def test_metrics_can_be_left_out(known):
    with_, without = (Terms().pose(known, metrics).features.shape[1] for metrics in (True, False))
    assert with_ == without + 1


def test_an_unknown_baseline_is_named(known):
    assert str(Terms(baseline="m@step4").pose(known).baseline) == "m@step4"
    with pytest.raises(ConfigError, match="Did you mean 'm@step4'"):
        Terms(baseline="m@step3").pose(known)
