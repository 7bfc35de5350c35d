from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.bandit.problem import Observations
from daskmetrics.bandit.rewards import FLAT, scale


def sweep(problem, task, scores, stderr=0.0):
    return [(int(arm), task, score, stderr) for arm, score in zip(problem.baseline_arms, scores, strict=False)]


def test_zscore_is_against_the_baselines_layers_alone(world):
    problem = world(reward="zscore").problem
    others = [(0, 0, 9.0, 0.0), (1, 0, -9.0, 0.0)]
    unit = scale(problem, Observations.of([*sweep(problem, 0, [0.2, 0.4, 0.6, 0.8]), *others]))
    assert unit.centre[0] == pytest.approx(0.5)
    assert unit.spread[0] == pytest.approx(np.std([0.2, 0.4, 0.6, 0.8]))


def test_a_flat_task_cannot_explode(world):
    problem = world(reward="zscore").problem
    flat = scale(problem, Observations.of(sweep(problem, 0, [0.5, 0.5, 0.5, 0.500001])))
    noisy = scale(problem, Observations.of(sweep(problem, 0, [0.5, 0.5, 0.5, 0.51], stderr=0.04)))
    assert flat.spread[0] == pytest.approx(FLAT * 0.5, rel=1e-3)
    assert noisy.spread[0] == pytest.approx(0.04)


def test_a_task_whose_baseline_failed_borrows_the_typical_spread(world):
    problem = world(reward="zscore").problem
    rows = [*sweep(problem, 0, [0.2, 0.4]), *sweep(problem, 1, [0.1, 0.5]), (0, 2, 0.7, 0.0)]
    unit = scale(problem, Observations.of(rows))
    assert unit.centre[2] == pytest.approx(0.7)
    assert unit.spread[2:] == pytest.approx(np.full(3, np.median(unit.spread[:2])))


def test_before_any_score_the_scale_is_neutral(world):
    unit = scale(world(reward="zscore").problem, Observations.of([]))
    assert unit.centre.tolist() == [0.0] * 5
    assert unit.spread.tolist() == [1.0] * 5


def test_mean_leaves_scores_as_they_are(world):
    problem = world(reward="mean").problem
    seen = Observations.of(sweep(problem, 0, [0.2, 0.4], stderr=0.1))
    unit = scale(problem, seen)
    assert unit.values(seen).tolist() == seen.score.tolist()
    assert unit.errors(seen).tolist() == [0.1, 0.1]
