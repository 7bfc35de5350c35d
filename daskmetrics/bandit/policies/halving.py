"""Successive halving over tasks: all arms on the cheapest task, the better half on two, its better half on four ...

After Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization" (AISTATS 2016),
with tasks, cheapest first, as the resource. Where outcomes are pending it promotes on what is known, as Li et al.,
"A system for massively parallel hyperparameter tuning" (MLSys 2020) do, and waits for nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._problem import Floats, Ints
from daskmetrics.bandit._rewards import scale
from daskmetrics.bandit.policies._averages import order_of_cost
from daskmetrics.core.names import seed_of

ETA = 2  #: arms are divided by, and tasks multiplied by


def halving(state: State) -> Choice | None:
    """Choose the next cell of the lowest rung that has an open one; None when the last rung is done."""
    everyone = np.arange(len(state.problem.arms))
    return climb(state, everyone, 1, ETA, values(state))


def climb(state: State, arms: Ints, first: int, eta: int, known: Floats) -> Choice | None:
    """The next cell of one halving, or None when it is done.

    Parameters
    ----------
    state : State
    arms : ndarray (m,)
        That begin.
    first : int
        Tasks of the first rung.
    eta : int
        Each rung keeps one arm in ``eta`` and gives it ``eta`` times the tasks.
    known : ndarray (A, T)
        As `values` gives them.
    """
    for rung, (survivors, tasks) in enumerate(_rungs(state, arms, first, eta, known)):
        # task by task, so that the cheap ones are all known before a dear one is paid
        task, place = np.nonzero(state.open[np.ix_(survivors, tasks)].T)
        if len(task):
            why = {"rung": float(rung), "arms": float(len(survivors)), "tasks": float(len(tasks))}
            return Choice(int(survivors[place[0]]), int(tasks[task[0]]), why)
    return None


def values(state: State) -> Floats:
    """Values of all cells in units of the reward, NaN where unknown (A, T)."""
    seen = state.seen
    table = np.full(state.paid.shape, np.nan)
    table[seen.arm, seen.task] = scale(state.problem, seen).values(seen)
    return table


def _rungs(state: State, arms: Ints, first: int, eta: int, known: Floats) -> Iterator[tuple[Ints, Ints]]:
    """The arms of each rung, best first, and its tasks."""
    order, count = order_of_cost(state.problem), first
    while len(arms):
        tasks = order[:count]
        yield arms, tasks
        if count >= len(order):
            return
        means = _means(known[np.ix_(arms, tasks)], state.problem.shares[tasks])
        best = np.argsort(-means, kind="stable")[: max(1, -(-len(arms) // eta))]
        arms = arms[best[np.isfinite(means[best])]]
        count = min(count * eta, len(order))


def _means(known: Floats, shares: Floats) -> Floats:
    """Weighted mean of what is known of each arm; minus infinity where nothing is (m,)."""
    weight = np.isfinite(known) * shares
    total = weight.sum(axis=1)
    sums = np.where(weight > 0, known, 0.0) * weight
    return np.where(total > 0, sums.sum(axis=1) / np.where(total > 0, total, 1.0), -np.inf)


HYPERBAND_ETA = 3  #: as the paper recommends


def hyperband(state: State) -> Choice | None:
    """Choose the next cell of the first bracket that has an open one; None when no cell is open."""
    if not state.open[:, order_of_cost(state.problem)].any():
        return None
    known = values(state)
    for turn in count():
        for arms, first in _brackets(state, turn):
            if choice := climb(state, arms, first, HYPERBAND_ETA, known):
                return choice
        if turn > len(state.problem.arms):  # nearly all is paid, and chance does not meet the rest
            return climb(state, np.arange(len(state.problem.arms)), len(state.problem.tasks), HYPERBAND_ETA, known)
    raise AssertionError("unreachable: turns do not end")


def _brackets(state: State, turn: int) -> Iterator[tuple[Ints, int]]:
    """Arms and tasks that each bracket of one round begins with."""
    most = len(order_of_cost(state.problem))
    arms = len(state.problem.arms)
    deepest = int(math.log(most, HYPERBAND_ETA) + 1e-9)
    for s in range(deepest, -1, -1):
        size = min(arms, math.ceil((deepest + 1) / (s + 1) * HYPERBAND_ETA**s))
        rng = np.random.default_rng(seed_of("hyperband", state.seed, turn, s))
        yield np.sort(rng.permutation(arms)[:size]), max(1, round(most / HYPERBAND_ETA**s))
