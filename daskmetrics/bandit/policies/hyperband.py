"""Hyperband: halvings of random arms that begin with few tasks for many arms, or many tasks for few, in turn.

After Li, Jamieson, DeSalvo, Rostamizadeh and Talwalkar, "Hyperband: a novel bandit-based approach to hyperparameter
optimization" (JMLR 18, 2018), algorithm 1, with tasks, cheapest first, as the resource.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count

import numpy as np

from daskmetrics.arms import seed_of
from daskmetrics.bandit.policies.halving import climb, values
from daskmetrics.bandit.policies.tries import order_of_cost
from daskmetrics.bandit.policy import Choice, State
from daskmetrics.bandit.problem import Ints

ETA = 3  #: as the paper recommends


def ask(state: State) -> Choice | None:
    """Choose the next cell of the first bracket that has an open one; None when no cell is open."""
    if not state.open[:, order_of_cost(state.problem)].any():
        return None
    known = values(state)
    for turn in count():
        for arms, first in _brackets(state, turn):
            if choice := climb(state, arms, first, ETA, known):
                return choice
        if turn > len(state.problem.arms):  # nearly all is paid, and chance does not meet the rest
            return climb(state, np.arange(len(state.problem.arms)), len(state.problem.tasks), ETA, known)
    raise AssertionError("unreachable: turns do not end")


def _brackets(state: State, turn: int) -> Iterator[tuple[Ints, int]]:
    """Arms and tasks that each bracket of one round begins with."""
    most = len(order_of_cost(state.problem))
    arms = len(state.problem.arms)
    deepest = int(math.log(most, ETA) + 1e-9)
    for s in range(deepest, -1, -1):
        size = min(arms, math.ceil((deepest + 1) / (s + 1) * ETA**s))
        rng = np.random.default_rng(seed_of("hyperband", state.seed, turn, s))
        yield np.sort(rng.permutation(arms)[:size]), max(1, round(most / ETA**s))
