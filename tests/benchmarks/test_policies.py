"""Policies that the search is compared with."""

from __future__ import annotations

from collections import Counter
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
    thompson,
)

from daskmetrics.bandit import policy_named
from daskmetrics.bandit.replay import simulate


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


def test_a_task_without_weight_is_not_pulled(world, after):
    small = world()
    weighed = replace(small, problem=replace(small.problem, weights=(1.0, 0.0, 1.0, 0.0, 1.0)))
    assert sorted(tasks_by_cost(weighed.problem)) == [0, 2, 4]
    state = after(weighed, [(0, 0), (0, 2), (0, 4)])
    assert next_pull(state, 0) is None
    assert averages(state).sd[0] == pytest.approx(0.0, abs=1e-9)


def test_every_arm_is_first_pulled_once_on_the_cheapest_task(world, after):
    small, cells = world(), []
    for _ in small.problem.arms:
        choice = lucb(after(small, cells))
        cells.append((choice.arm, choice.task))
    assert {arm for arm, _ in cells} == set(range(len(small.problem.arms)))
    assert {task for _, task in cells} == {int(tasks_by_cost(small.problem)[0])}


def test_it_pulls_likely_winners_and_not_always_the_same(world, after, draw):
    small = world()
    cells = draw(small, 60)
    counts = Counter(thompson(after(small, cells, seed=seed)).arm for seed in range(40))
    posterior = after(small, cells).posterior
    assert len(counts) > 1
    upper_half = set(np.argsort(-posterior.mean)[: len(posterior.mean) // 2].tolist())
    assert sum(n for arm, n in counts.items() if arm in upper_half) >= 38


def follow(world, after, known=None):
    """All choices; the outcome of each is known before the next."""
    cells, choices = [], []
    while choice := halving(after(world, cells, known and known(len(cells)))):
        choices.append(choice)
        cells.append((choice.arm, choice.task))
    return choices


def test_half_the_arms_on_twice_the_tasks(world, after):
    small = world(revisions=8)  # 64 arms
    order = tasks_by_cost(small.problem).tolist()
    choices = follow(small, after)
    for rung, (arms, tasks) in enumerate([(64, 1), (32, 2), (16, 4), (8, 5)]):
        own = [choice for choice in choices if choice.why["rung"] == rung]
        assert {choice.why["arms"] for choice in own} == {arms}
        assert {choice.task for choice in own} == set(order[tasks // 2 if rung < 3 else 4 : tasks])
    assert len(choices) == 64 + 32 + 16 * 2 + 8


def test_the_better_half_is_promoted(world, after):
    small = world(revisions=8)
    first = tasks_by_cost(small.problem)[0]
    promoted = {choice.arm for choice in follow(small, after) if choice.why["rung"] == 1}
    assert promoted == set(np.argsort(-small.scores[:, first])[:32].tolist())


WHOLE = ["policies:linucb", "policies:gp_ei"]


@pytest.mark.parametrize("name", WHOLE)
def test_an_arm_is_finished_before_the_next_is_started(world, name):
    small = world()
    picks = simulate(small.problem, small.table, policy_named(name), budget=0.4, seed=0).picks
    arms = [arm for arm, _ in groupby(pick.cell.arm for pick in picks if pick.stage == "search")]
    assert len(set(arms)) == len(arms) > 3
    for arm in arms:
        assert sum(pick.cell.arm == arm for pick in picks) == 5


def test_the_shared_model_recovers_a_quadratic(world, after):
    small = world()
    features = design(small.problem)
    truth = np.array([0.0, 0.8, 0.3, -1.0, -0.4, 0.2, 0.1, -0.1])
    exact = type(small)(small.problem, np.repeat((features @ truth)[:, None], 5, axis=1))
    arms = np.random.default_rng(0).permutation(len(features))
    weights, _ = ridge(after(exact, [(int(arm), task) for arm in arms[:24] for task in range(5)]))
    unseen = features[arms[24:]]
    assert np.corrcoef(unseen @ weights, unseen @ truth)[0, 1] > 0.9
