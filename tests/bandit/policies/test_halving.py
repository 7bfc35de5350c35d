from __future__ import annotations

import numpy as np

from daskmetrics.bandit.policies import halving
from daskmetrics.bandit.policies._averages import order_of_cost


def follow(world, after, known=None):
    """Choices until it is content, each told before the next."""
    cells, choices = [], []
    while choice := halving.halving(after(world, cells, known and known(len(cells)))):
        choices.append(choice)
        cells.append((choice.arm, choice.task))
    return choices


def test_half_the_arms_on_twice_the_tasks(world, after):
    small = world(revisions=8)  # 64 arms
    order = order_of_cost(small.problem).tolist()
    choices = follow(small, after)
    for rung, (arms, tasks) in enumerate([(64, 1), (32, 2), (16, 4), (8, 5)]):
        own = [choice for choice in choices if choice.why["rung"] == rung]
        assert {choice.why["arms"] for choice in own} == {arms}
        assert {choice.task for choice in own} == set(order[tasks // 2 if rung < 3 else 4 : tasks])
    assert len(choices) == 64 + 32 + 16 * 2 + 8


def test_the_better_half_goes_on(world, after):
    small = world(revisions=8)
    first = order_of_cost(small.problem)[0]
    promoted = {choice.arm for choice in follow(small, after) if choice.why["rung"] == 1}
    assert promoted == set(np.argsort(-small.scores[:, first])[:32].tolist())


def test_it_waits_for_nobody(world, after):
    small = world(revisions=8)
    cells = [(arm, int(order_of_cost(small.problem)[0])) for arm in range(64)]
    choice = halving.halving(after(small, cells, known=20))
    assert choice.why["rung"] == 1 and choice.arm < 20  # promoted on what is known
