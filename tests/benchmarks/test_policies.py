"""Policies that the search is compared with."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from policies import (
    SHRINK,
    averages,
    design,
    halving,
    lucb,
    next_pull,
    ridge,
    tasks_by_cost,
)
from replay import simulate

from daskmetrics.bandit import policy_named
from tests.bandit.conftest import make_world, random_cells, state_after


def test_effects_are_those_of_the_penalised_least_squares():
    """Against the normal equations of all arms and tasks at once, solved by brute force."""
    small = make_world()
    cells = random_cells(small, 60)
    known = averages(state_after(small, cells))
    arms, tasks = small.scores.shape
    rows = np.zeros((len(cells) + arms, arms + tasks))
    right = np.zeros(len(rows))
    for i, (arm, task) in enumerate(cells):
        rows[i, [arm, arms + task]] = 1.0
        right[i] = small.scores[arm, task]
    rows[len(cells) + np.arange(arms), np.arange(arms)] = np.sqrt(SHRINK)
    expected = np.linalg.lstsq(rows, right, rcond=None)[0][:arms]
    np.testing.assert_allclose(known.value, expected, atol=1e-9)


def test_no_weightless_task_is_pulled_and_the_cheapest_is_first():
    small = make_world()
    weighed = replace(small, problem=replace(small.problem, weights=(1.0, 0.0, 1.0, 0.0, 1.0)))
    assert sorted(tasks_by_cost(weighed.problem)) == [0, 2, 4]
    assert next_pull(state_after(weighed, [(0, 0), (0, 2), (0, 4)]), 0) is None
    cells = []
    for _ in small.problem.arms:
        choice = lucb(state_after(small, cells))
        cells.append((choice.arm, choice.task))
    cheapest = int(tasks_by_cost(small.problem)[0])
    assert set(cells) == {(arm, cheapest) for arm in range(len(small.problem.arms))}


def test_the_better_half_of_arms_is_promoted_to_twice_the_tasks():
    small = make_world(revisions=8)  # 64 arms
    order = tasks_by_cost(small.problem).tolist()
    cells, choices = [], []
    while choice := halving(state_after(small, cells)):
        choices.append(choice)
        cells.append((choice.arm, choice.task))
    for rung, (arms, tasks) in enumerate([(64, 1), (32, 2), (16, 4), (8, 5)]):
        of_rung = [choice for choice in choices if choice.why["rung"] == rung]
        assert {choice.why["arms"] for choice in of_rung} == {arms}
        assert {choice.task for choice in of_rung} == set(
            order[4 if rung == 3 else tasks // 2 : tasks]
        )
    assert len(choices) == 64 + 32 + 16 * 2 + 8
    promoted = {choice.arm for choice in choices if choice.why["rung"] == 1}
    assert promoted == set(np.argsort(-small.scores[:, order[0]])[:32].tolist())


@pytest.mark.parametrize("name", ["policies:linucb", "policies:gp_ei"])
def test_an_arm_is_finished_before_the_next_is_started(name):
    small = make_world()
    options = {"budget": 0.4, "seed": 0, "within": 0.0}
    picks = simulate(small.problem, small.table, policy_named(name), **options).picks
    arms = [arm for arm, _ in groupby(pick.cell.arm for pick in picks if pick.stage == "search")]
    assert len(set(arms)) == len(arms) > 3
    for arm in arms:
        assert sum(pick.cell.arm == arm for pick in picks) == 5


def test_the_shared_model_recovers_a_quadratic():
    small = make_world()
    features = design(small.problem)
    truth = np.array([0.0, 0.8, 0.3, -1.0, -0.4, 0.2, 0.1, -0.1])
    exact = type(small)(small.problem, np.repeat((features @ truth)[:, None], 5, axis=1))
    arms = np.random.default_rng(0).permutation(len(features))
    weights, _ = ridge(
        state_after(exact, [(int(arm), task) for arm in arms[:24] for task in range(5)])
    )
    unseen = features[arms[24:]]
    assert np.corrcoef(unseen @ weights, unseen @ truth)[0, 1] > 0.9
