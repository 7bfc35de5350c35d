from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t

from daskmetrics.answer.ties import MeanScores
from daskmetrics.domain.outcomes import joint_error, pack
from daskmetrics.domain.results import Scored


def recorded(outcomes: np.ndarray) -> Scored:
    """A score of right and wrong items, as the journal has it."""
    score, n = float(outcomes.mean()), len(outcomes)
    stderr = math.sqrt(score * (1 - score) / n)
    return Scored(score, stderr, outcomes=pack(outcomes, score, "items"))


def drawn(rng: np.random.Generator, merit: np.ndarray, items: int, own: float = 0.3) -> MeanScores:
    """Scores of arms (A, T) on tasks whose items are easy or hard for all arms alike."""
    tasks = []
    for of_task in merit.T:
        difficulty = rng.normal(size=items)
        right = of_task[:, None] + difficulty + own * rng.normal(size=(len(merit), items)) > 0
        tasks.append([recorded(row) for row in right])
    values = np.array([[score.score for score in of_task] for of_task in tasks]).T
    return MeanScores.of(values, np.ones(len(tasks)), [joint_error(scores) for scores in tasks])


def of_one_task(scores: list[Scored]) -> MeanScores:
    values = np.array([[score.score] for score in scores])
    return MeanScores.of(values, np.ones(1), [joint_error(scores)])


@pytest.mark.parametrize(("arms", "best", "tasks", "items"), [(6, 6, 2, 60), (16, 6, 3, 210)])
def test_equal_arms_are_tied_and_a_far_worse_one_is_not(arms, best, tasks, items):
    rng, merit = np.random.default_rng(11), np.full((arms, tasks), 0.5)
    merit[best:] -= 0.15
    merit[-1] -= 0.0 if best == arms else 1.5
    kept = np.zeros((200, arms), dtype=bool)
    for draw in kept:
        draw[drawn(rng, merit, items).tied()[0]] = True
    # three standard errors of a share of 200
    assert kept[:, :best].all(axis=1).mean() >= 0.95 - 3 * 0.0154
    assert best == arms or not kept[:, -1].any()


def test_the_critical_value_of_two_arms_is_that_of_student():
    scores = drawn(np.random.default_rng(0), np.array([[0.5], [0.5]]), 30)
    assert scores.tied()[1] == pytest.approx(t.isf(0.025, 29), abs=0.08)


def test_common_difficulty_cancels_in_paired_differences():
    rng = np.random.default_rng(1)
    paired = drawn(rng, np.array([[0.6], [0.4], [0.2]]), 400, own=0.1)
    unpaired = of_one_task([Scored(float(mean), 0.024) for mean in paired.mean])
    assert paired.tied()[0].tolist() == [0] and paired.paired
    assert len(unpaired.tied()[0]) > 1 and not unpaired.paired


def test_arms_of_equal_outcomes_are_tied():
    right, even = np.arange(50) % 3 > 0, np.arange(50) % 2 > 0
    equal = of_one_task([recorded(right), recorded(right), recorded(right & even)])
    assert equal.tied()[0].tolist() == [0, 1] and equal.difference(0, 1).stderr == 0
    exact = of_one_task([Scored(score, 0.0) for score in (0.5, 0.5, 0.4)])
    assert exact.tied()[0].tolist() == [0, 1]


def test_what_an_arm_loses_is_bounded_for_all_at_once():
    rng, merit = np.random.default_rng(5), np.array([[0.52], [0.5], [0.48], [0.3]])
    # the probability of a right item: difficulty and own noise together are normal with this
    # standard deviation
    truth = np.array([0.5 * math.erfc(-m / math.sqrt(2 * 1.09)) for m in merit[:, 0]])
    losses = truth.max() - truth
    within, tight = [], []
    for _ in range(100):
        scores = drawn(rng, merit, 200)
        tied, critical, of_all = scores.tied()
        bounds = [
            scores.most_lost(arm, tied, critical if arm in tied else of_all)
            for arm in range(len(merit))
        ]
        within.append((losses <= np.add(bounds, 1e-12)).all())
        tight.append(bounds[-1] < 3 * losses[-1])  # of one that is hardly ever tied
    assert np.mean(within) >= 0.95 and np.mean(tight) > 0.9


def test_weights_of_tasks_change_what_is_tied():
    merit = np.array([[0.9, 0.2], [0.2, 0.9]])
    assert len(drawn(np.random.default_rng(2), merit, 300).tied()[0]) == 2
    values = np.array([[0.8, 0.5], [0.5, 0.8]])
    errors = [joint_error([Scored(0.8, 0.01)] * 2)] * 2
    assert MeanScores.of(values, np.array([3.0, 1.0]), errors).tied()[0].tolist() == [0]
