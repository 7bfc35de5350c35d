from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit.policies._averages import SHRINK, averages, next_pull, tasks_by_cost


def test_effects_are_those_of_the_penalised_least_squares(world, after, draw):
    """Against the normal equations of all arms and tasks at once, solved by brute force."""
    small = world()
    cells = draw(small, 60)
    known = averages(after(small, cells))
    arms, tasks = small.scores.shape
    rows = np.zeros((len(cells) + arms, arms + tasks))
    right = np.zeros(len(rows))
    for i, (arm, task) in enumerate(cells):
        rows[i, [arm, arms + task]] = 1.0
        right[i] = small.scores[arm, task]
    rows[len(cells) + np.arange(arms), np.arange(arms)] = np.sqrt(SHRINK)
    expected = np.linalg.lstsq(rows, right, rcond=None)[0][:arms]
    np.testing.assert_allclose(known.value, expected, atol=1e-9)


def test_arms_on_different_tasks_are_compared_through_connecting_tasks(world, after):
    """One arm was lucky with its task and not with itself: a plain mean would prefer it."""
    small = world()
    scores = np.zeros_like(small.scores)
    scores[:, 1] += 1.0  # an easy task
    scores[0] += 0.2  # a good arm
    easy = replace(small, scores=scores)
    cells = [(arm, task) for arm in range(2, 6) for task in (0, 1)] + [(0, 0), (1, 1)]
    value = averages(after(easy, cells)).value
    assert value[0] > value[1]


def test_bounds_close_when_every_task_is_paid(world, after):
    small = world()
    state = after(small, [(0, task) for task in range(5)] + [(1, 0), (2, 0)])
    known = averages(state)
    assert known.sd[0] == pytest.approx(0.0, abs=1e-9)
    assert 0 < known.sd[1] == known.sd[2] < known.sd[3]
    assert known.pulls[:4].tolist() == [5, 1, 1, 0]


def test_pending_cells_count_as_pulls_and_change_no_value(world, after, draw):
    small = world()
    cells = draw(small, 30)
    before, meanwhile = averages(after(small, cells)), averages(after(small, [*cells, (9, 2), (9, 3)], known=30))
    np.testing.assert_array_equal(before.value, meanwhile.value)
    assert meanwhile.pulls[9] > before.pulls[9] and meanwhile.sd[9] < before.sd[9]


def test_a_task_without_weight_is_not_pulled(world, after):
    small = world()
    weighed = replace(small, problem=replace(small.problem, weights=(1.0, 0.0, 1.0, 0.0, 1.0)))
    assert sorted(tasks_by_cost(weighed.problem)) == [0, 2, 4]
    state = after(weighed, [(0, 0), (0, 2), (0, 4)])
    assert next_pull(state, 0) is None
    assert averages(state).sd[0] == pytest.approx(0.0, abs=1e-9)


def test_the_next_pull_is_the_cheapest(world, after):
    small = world()
    price = small.problem.score_cost[0]
    assert next_pull(after(small, []), 3).task == price.argmin()
