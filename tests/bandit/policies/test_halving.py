from __future__ import annotations

import numpy as np

from daskmetrics.bandit.policies import halving
from daskmetrics.bandit.policies._averages import tasks_by_cost


def follow(world, after, known=None):
    """All choices; the outcome of each is known before the next."""
    cells, choices = [], []
    while choice := halving.halving(after(world, cells, known and known(len(cells)))):
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


def test_it_does_not_wait_for_pending_outcomes(world, after):
    small = world(revisions=8)
    cells = [(arm, int(tasks_by_cost(small.problem)[0])) for arm in range(64)]
    choice = halving.halving(after(small, cells, known=20))
    assert choice.why["rung"] == 1 and choice.arm < 20  # promoted on what is known


def test_brackets_trade_arms_for_tasks(world, after):
    small = world(revisions=8, tasks=9)
    brackets = list(halving._brackets(after(small, []), 0))
    assert [len(arms) for arms, _ in brackets] == [9, 5, 3]  # R = 9, eta = 3: table 1 of the paper, scaled
    assert [first for _, first in brackets] == [1, 3, 9]


def test_each_turn_and_each_seed_draws_other_arms(world, after):
    small = world(revisions=8, tasks=9)
    drawn = {
        tuple(next(iter(halving._brackets(after(small, [], seed=seed), turn)))[0])
        for seed in range(2)
        for turn in (0, 1)
    }
    assert len(drawn) == 4
