from __future__ import annotations

from collections import Counter

import numpy as np

from daskmetrics.bandit.policies import thompson


def test_it_pulls_likely_winners_and_not_always_the_same(world, after, draw):
    small = world()
    cells = draw(small, 60)
    counts = Counter(thompson.ask(after(small, cells, seed=seed)).arm for seed in range(40))
    posterior = after(small, cells).posterior
    assert len(counts) > 1
    upper_half = set(np.argsort(-posterior.mean)[: len(posterior.mean) // 2].tolist())
    assert sum(n for arm, n in counts.items() if arm in upper_half) >= 38


def test_when_all_is_known_it_pulls_the_best_two(world, after, draw):
    small = world()
    order = np.argsort(-small.scores.mean(axis=1))
    known = [(arm, task) for arm, task in draw(small, small.scores.size) if (arm, task) not in ((order[0], 0),)]
    assert thompson.ask(after(small, known)).arm == order[0]
