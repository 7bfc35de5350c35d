from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.bandit._problem import Observations
from daskmetrics.bandit._rewards import FLAT, LEAST, LIMIT, reward_scale


def sweep(problem, task, scores, stderr=0.0):
    return [(int(arm), task, score, stderr) for arm, score in zip(problem.baseline_arms, scores, strict=False)]


def test_zscore_is_against_the_baselines_layers_alone(world):
    problem = world(reward="zscore").problem
    others = [(0, 0, 9.0, 0.0), (1, 0, -9.0, 0.0)]
    unit = reward_scale(problem, Observations.of([*sweep(problem, 0, [0.2, 0.4, 0.6, 0.8]), *others]))
    assert unit.centre[0] == pytest.approx(0.5)
    assert unit.spread[0] == pytest.approx(np.std([0.2, 0.4, 0.6, 0.8]))


def test_a_flat_task_has_a_smallest_spread(world):
    problem = world(reward="zscore").problem
    flat = reward_scale(problem, Observations.of(sweep(problem, 0, [0.5, 0.5, 0.5, 0.500001])))
    noisy = reward_scale(problem, Observations.of(sweep(problem, 0, [0.5, 0.5, 0.5, 0.51], stderr=0.04)))
    assert flat.spread[0] == pytest.approx(FLAT * 0.5, rel=1e-3)
    assert noisy.spread[0] == pytest.approx(0.04)


def test_a_task_whose_baseline_failed_takes_the_median_spread(world):
    problem = world(reward="zscore").problem
    rows = [*sweep(problem, 0, [0.2, 0.4]), *sweep(problem, 1, [0.1, 0.5]), (0, 2, 0.7, 0.0)]
    unit = reward_scale(problem, Observations.of(rows))
    assert unit.centre[2] == pytest.approx(0.7)
    assert unit.spread[2:] == pytest.approx(np.full(3, np.median(unit.spread[:2])))


def test_before_any_score_the_scale_is_neutral(world):
    unit = reward_scale(world(reward="zscore").problem, Observations.of([]))
    assert unit.centre.tolist() == [0.0] * 5
    assert unit.spread.tolist() == [1.0] * 5


def test_mean_leaves_scores_as_they_are(world):
    problem = world(reward="mean").problem
    seen = Observations.of(sweep(problem, 0, [0.2, 0.4], stderr=0.1))
    unit = reward_scale(problem, seen)
    assert unit.values(seen).tolist() == seen.score.tolist()
    assert unit.errors(seen).tolist() == [0.1, 0.1]


def test_running_is_against_all_scores_of_the_task_so_far(world):
    problem = world(reward="running").problem
    rows = [*sweep(problem, 0, [0.2, 0.4]), (0, 0, 0.9, 0.0), (1, 1, 0.3, 0.0)]
    unit = reward_scale(problem, Observations.of(rows))
    assert unit.centre[0] == pytest.approx(0.5)
    assert unit.spread[0] == pytest.approx(np.std([0.2, 0.4, 0.9]))
    assert unit.spread[1] == unit.spread[0]  # one score has no spread


def test_rank_counts_the_scores_below_and_half_of_those_equal(world):
    problem = world(reward="rank").problem
    seen = Observations.of([(0, 0, 0.1, 0.0), (1, 0, 0.5, 0.0), (2, 0, 0.5, 0.0), (3, 0, 9.0, 0.0), (0, 1, 0.3, 0.0)])
    unit = reward_scale(problem, seen)
    values = unit.values(seen)
    assert values[seen.task == 0].tolist() == [0.125, 0.5, 0.5, 0.875]
    assert values[seen.task == 1].tolist() == [0.5]


def test_rank_is_invariant_under_increasing_functions_of_the_scores(world):
    problem = world(reward="rank").problem
    rng = np.random.default_rng(0)
    rows = [(arm, task, float(rng.normal()), 0.0) for arm in range(12) for task in range(3)]
    bent = [(arm, task, float(np.exp(3 * score)), 0.0) for arm, task, score, _ in rows]
    one, other = Observations.of(rows), Observations.of(bent)
    assert reward_scale(problem, one).values(one).tolist() == reward_scale(problem, other).values(other).tolist()


def test_errors_of_ranks_are_in_units_of_ranks(world):
    problem = world(reward="rank").problem
    rng = np.random.default_rng(1)
    rows = [(arm, 0, float(score), 0.01) for arm, score in enumerate(rng.uniform(size=48))]
    seen = Observations.of(rows)
    assert reward_scale(problem, seen).errors(seen) == pytest.approx(
        np.full(48, 0.01), rel=0.2
    )  # ranks of uniform scores


def test_harmonic_orders_arms_as_the_harmonic_mean_does(world):
    problem = world(reward="harmonic").problem
    generator = np.random.default_rng(0)
    scores = generator.uniform(0.05, 0.95, size=(8, 5))
    seen = Observations.of([(arm, task, scores[arm, task], 0.0) for arm in range(8) for task in range(5)])
    values = reward_scale(problem, seen).values(seen).reshape(8, 5).mean(axis=1)
    harmonic = 5 / (1 / scores).sum(axis=1)
    assert np.argsort(values).tolist() == np.argsort(harmonic).tolist()
    assert -1 / values == pytest.approx(harmonic)


def test_reciprocals_are_bounded_and_their_errors_follow_the_slope(world):
    unit = reward_scale(world(reward="harmonic").problem, Observations.of([]))
    seen = Observations.of([(0, 0, -0.3, 0.02), (1, 0, 0.5, 0.02)])
    assert unit.values(seen).tolist() == pytest.approx([-1 / LEAST, -2.0])
    moved = Observations.of([(1, 0, 0.5 + 1e-6, 0.02)])
    slope = (unit.values(moved)[0] - unit.values(seen)[1]) / 1e-6
    assert unit.errors(seen)[1] == pytest.approx(0.02 * slope, rel=1e-4)


def test_a_broken_cell_changes_robust_values_little(world):
    problem = world(reward="robust").problem
    plain = [(arm, 0, 0.5 + 0.01 * arm, 0.001) for arm in range(9)]
    broken = [*plain, (9, 0, 40.0, 0.001)]
    before = reward_scale(problem, Observations.of(plain)).values(Observations.of(plain))
    after = reward_scale(problem, Observations.of(broken)).values(Observations.of(broken))
    assert after[-1] == LIMIT
    assert np.abs(after[:-1] - before).max() < 0.6
    assert (
        np.abs(
            reward_scale(world(reward="running").problem, Observations.of(broken)).values(Observations.of(plain))
        ).max()
        < 0.4
    )
