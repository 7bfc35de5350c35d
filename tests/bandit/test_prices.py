from __future__ import annotations

import numpy as np

from daskmetrics.bandit import Outcome
from daskmetrics.bandit._costs import correction
from daskmetrics.bandit._observations import Answers


def test_nothing_told_corrects_nothing(world):
    small = world()
    assert (correction(small.problem, Answers.of([((0, 0), Outcome(0.5))])) == 1).all()


def test_a_slow_model_and_a_slow_task_are_found_and_jitter_is_not(world):
    problem = world().problem
    rng = np.random.default_rng(0)
    cells = [(int(a), int(t)) for a, t in rng.permutation(np.argwhere(problem.score_cost > 0))[:120]]
    large = problem.features[:, 3] == 1
    slow = [8.0 ** large[a] * 16.0 ** (t == 2) * rng.uniform(0.9, 1.1) for a, t in cells]
    outcomes = [Outcome(0.5, seconds=s * problem.score_cost[c]) for s, c in zip(slow, cells, strict=True)]
    factor = correction(problem, Answers.of(zip(cells, outcomes, strict=True)))
    assert (factor[large] == 8 * factor[~large][0]).all()
    assert (factor[:, 2] == 16 * factor[:, 0]).all()
    assert np.ptp(factor[~large][:, [0, 1, 3, 4]]) == 0
