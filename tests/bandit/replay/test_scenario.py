from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit.replay import Scenario, ground_truth
from daskmetrics.core.errors import ConfigError, DataError


def test_published_costs_are_the_tables_seconds_and_the_overhead(known):
    problem = Scenario(overhead=30).build_problem(known)
    assert problem.score_cost[0].tolist() == [31.0, 130.0, 430.0, 34.0] and not problem.encode_cost.any()


def test_unit_costs_are_one(known):
    assert Scenario("unit").build_problem(known).exhaustive_cost == 120


def test_shared_encodings_are_paid_once(known):
    problem = Scenario("shared").build_problem(known)
    np.testing.assert_allclose(problem.encode_cost[0], [0.9, 90.0, 360.0, 3.6])
    np.testing.assert_allclose(problem.encode_cost + problem.score_cost, known.seconds)
    assert problem.exhaustive_cost < known.seconds.sum() / 3


def test_measured_encodings_are_preferred_to_assumed_ones(known):
    measured = replace(known, encode=0.5 * known.seconds)
    assert Scenario().costs_for(measured) == "shared" and Scenario().costs_for(known) == "published"
    np.testing.assert_allclose(Scenario().build_problem(measured).encode_cost, 0.5 * known.seconds)


def test_without_seconds_costs_are_units(known):
    timeless = replace(known, seconds=np.full_like(known.seconds, np.nan))
    assert Scenario().build_problem(timeless).exhaustive_cost == 120
    with pytest.raises(ConfigError, match="need seconds"):
        Scenario("published").build_problem(timeless)


def test_a_cell_without_seconds_costs_the_mean_of_its_task(known):
    seconds = known.seconds.copy()
    seconds[7, 2] = np.nan
    assert Scenario().build_problem(replace(known, seconds=seconds)).score_cost[7, 2] == 400.0


def test_a_seed_draws_its_tasks(known):
    drawn = [Scenario(subset=2).draw_tasks(known, seed).tasks for seed in range(12)]
    assert {len(tasks) for tasks in drawn} == {2} and len(set(drawn)) > 2
    assert drawn[3] == Scenario(subset=2).draw_tasks(known, 3).tasks
    with pytest.raises(ConfigError, match="Cannot draw 9 tasks"):
        Scenario(subset=9).draw_tasks(known, 0)


def test_the_best_arm_and_the_loss_of_the_others(known):
    problem = Scenario().build_problem(known)
    truth = ground_truth(known, problem)
    means = known.scores.mean(axis=1)
    assert truth.best == means.argmax() and truth.loss[truth.best] == 0.0
    np.testing.assert_allclose(truth.loss, 1 - means / means.max())


def test_each_objective_has_its_own_best_arm(known):
    scores = known.scores.copy()
    scores[4, known.tasks.index("expensive")] += 1.0
    changed = replace(known, scores=scores)
    assert ground_truth(changed, Scenario(objective="expensive").build_problem(changed)).best == 4
    assert ground_truth(changed, Scenario(objective="classes").build_problem(changed)).best == 4
    assert ground_truth(changed, Scenario(objective="pairs").build_problem(changed)).best != 4


def test_an_incomplete_arm_is_never_the_best(known):
    best = ground_truth(known, Scenario().build_problem(known)).best
    scores = known.scores.copy()
    scores[best, 0] = np.nan
    incomplete = replace(known, scores=scores)
    truth = ground_truth(incomplete, Scenario().build_problem(incomplete))
    assert truth.best != best and truth.loss[best] == np.inf
    scores[:, 0] = np.nan
    with pytest.raises(DataError, match=r"No arm has a score on each of the 4 tasks \(90 of 120 cells"):
        ground_truth(incomplete, Scenario().build_problem(incomplete))


def test_metrics_can_be_left_out(known):
    with_, without = (Scenario().build_problem(known, metrics).features.shape[1] for metrics in (True, False))
    assert with_ == without + 1


def test_an_unknown_baseline_is_named(known):
    assert str(Scenario(baseline="m@step4").build_problem(known).baseline) == "m@step4"
    with pytest.raises(ConfigError, match="Did you mean 'm@step4'"):
        Scenario(baseline="m@step3").build_problem(known)


def test_a_baseline_must_be_among_the_arms_that_are_left(known):
    scores = known.scores.copy()
    last = [arm.revision == "step256" for arm in known.arms]
    scores[last, 1] = np.nan
    whole = replace(known, scores=scores).complete()
    problem = Scenario("shared").build_problem(whole)
    assert str(problem.baseline) == "m@step64" and len(problem.arms) == 25
    np.testing.assert_allclose(problem.encode_cost[0], [0.9, 90.0, 360.0, 3.6])
    with pytest.raises(ConfigError, match="baseline"):
        Scenario(baseline="m@step256").build_problem(whole)
