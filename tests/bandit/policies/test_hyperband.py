from __future__ import annotations

from daskmetrics.bandit.policies import halving


def test_brackets_trade_arms_for_tasks(world, after):
    small = world(revisions=8, tasks=9)
    brackets = list(halving._brackets(after(small, []), 0))
    assert [len(arms) for arms, _ in brackets] == [9, 5, 3]  # R = 9, eta = 3: table 1 of the paper, scaled
    assert [first for _, first in brackets] == [1, 3, 9]


def test_another_round_draws_other_arms_and_another_seed_too(world, after):
    small = world(revisions=8, tasks=9)
    drawn = {
        tuple(next(iter(halving._brackets(after(small, [], seed=seed), turn)))[0])
        for seed in range(2)
        for turn in (0, 1)
    }
    assert len(drawn) == 4
