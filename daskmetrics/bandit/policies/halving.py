"""Successive halving over tasks: all arms on the cheapest task, the better half on two, its better half on four, ...

After Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization" (AISTATS 2016),
with tasks, cheapest first, as the resource. If outcomes are pending it promotes arms by the known ones and does not
wait, as in Li et al., "A system for massively parallel hyperparameter tuning" (MLSys 2020). Hyperband, after Li,
Jamieson, DeSalvo, Rostamizadeh and Talwalkar, "Hyperband: a novel bandit-based approach to hyperparameter optimization"
(JMLR 18, 2018), algorithm 1, runs halvings of random arms, from many arms on few tasks to few arms on many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._problem import Floats, Ints
from daskmetrics.bandit._rewards import reward_scale
from daskmetrics.bandit.policies._averages import tasks_by_cost
from daskmetrics.core.names import seed_of

__all__ = ["halving", "hyperband"]

ETA = 2  #: from rung to rung the number of arms is divided, and that of tasks multiplied, by this factor
HYPERBAND_ETA = 3  #: the same in Hyperband, as its paper recommends


def halving(state: State) -> Choice | None:
    """Choose the next cell of the lowest rung with an open one; None once the last rung is finished."""
    return climb(state, np.arange(len(state.problem.arms)), 1, ETA, values(state))


def climb(state: State, arms: Ints, first: int, eta: int, known: Floats) -> Choice | None:
    """The next cell of one halving, or None once it is finished; ``known`` (A, T) is as returned by `values`.

    The first rung has the arms (m,) and ``first`` tasks; each next one keeps one arm in ``eta``, with ``eta`` times the
    tasks.
    """
    for rung, (survivors, tasks) in enumerate(_rungs(state, arms, first, eta, known)):
        # task by task, so that the cheap ones are all known before an expensive one is paid for
        task, place = np.nonzero(state.open[np.ix_(survivors, tasks)].T)
        if len(task):
            why = {"rung": float(rung), "arms": float(len(survivors)), "tasks": float(len(tasks))}
            return Choice(int(survivors[place[0]]), int(tasks[task[0]]), why)
    return None


def values(state: State) -> Floats:
    """Values of all cells in units of the reward, NaN where unknown (A, T)."""
    seen = state.observations
    table = np.full(state.paid.shape, np.nan)
    table[seen.arm, seen.task] = reward_scale(state.problem, seen).values(seen)
    return table


def _rungs(state: State, arms: Ints, first: int, eta: int, known: Floats) -> Iterator[tuple[Ints, Ints]]:
    """The arms of each rung, best first, and its tasks."""
    order, count = tasks_by_cost(state.problem), first
    while len(arms):
        tasks = order[:count]
        yield arms, tasks
        if count >= len(order):
            return
        # weighted means of the known values; an arm without any comes last
        part = known[np.ix_(arms, tasks)]
        weight = np.isfinite(part) * state.problem.objective_weights[tasks]
        total = weight.sum(axis=1)
        sums = np.where(weight > 0, part, 0.0) * weight
        means = np.where(total > 0, sums.sum(axis=1) / np.where(total > 0, total, 1.0), -np.inf)
        best = np.argsort(-means, kind="stable")[: max(1, -(-len(arms) // eta))]
        arms = arms[best[np.isfinite(means[best])]]
        count = min(count * eta, len(order))


def hyperband(state: State) -> Choice | None:
    """Choose the next cell of the first bracket with an open one; None if no cell is open."""
    if not state.open[:, tasks_by_cost(state.problem)].any():
        return None
    known, arms = values(state), np.arange(len(state.problem.arms))
    for turn in range(len(arms) + 2):
        for drawn, first in _brackets(state, turn):
            if choice := climb(state, drawn, first, HYPERBAND_ETA, known):
                return choice
    # few cells are open, and random brackets miss them
    return climb(state, arms, len(state.problem.tasks), HYPERBAND_ETA, known)


def _brackets(state: State, turn: int) -> Iterator[tuple[Ints, int]]:
    """The arms, and the number of tasks, with which each bracket of a turn begins."""
    most, arms = len(tasks_by_cost(state.problem)), len(state.problem.arms)
    deepest = int(math.log(most, HYPERBAND_ETA) + 1e-9)
    for s in range(deepest, -1, -1):
        size = min(arms, math.ceil((deepest + 1) / (s + 1) * HYPERBAND_ETA**s))
        rng = np.random.default_rng(seed_of("hyperband", state.seed, turn, s))
        yield np.sort(rng.permutation(arms)[:size]), max(1, round(most / HYPERBAND_ETA**s))
