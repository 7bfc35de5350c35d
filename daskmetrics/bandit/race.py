"""The leader against all who may still beat it, on the cheapest cells that tell them apart.

Arms that the posterior all but excludes are out of the race. For those left, the loss to expect from stopping now is
E[max(0, rival - leader)]; a cell is worth the share of these losses' variance that observing it would remove, divided
by its cost. Cheap tasks are thus asked first, expensive ones only where the cheap ones leave a doubt, and pending
cells, which count as observed, are not asked twice in other words.
"""

from __future__ import annotations

import math

import numpy as np

from daskmetrics.bandit.policy import Choice, State, Why
from daskmetrics.bandit.posterior import Posterior, first_max
from daskmetrics.bandit.problem import Bools, Floats, Ints

DOUBT = 0.01  #: a rival whose probability of beating the leader is smaller is out of the race
RIVALS = 64  #: rivals whose cells are weighed at one decision, those with the greatest expected loss


def ask(state: State) -> Choice | None:
    """Choose the most informative cell per cost; None when the leader has no rival left, or no cell is open."""
    belief, leader = state.belief, state.leader
    rivals, spread, loss = _rivals(belief, leader, state.usable)
    cells = _cells(state, leader, rivals)
    if not len(rivals) or not len(cells):
        return None
    gain = _gain(belief, cells, leader, rivals, loss / spread**2)
    cost = state.cost[cells[:, 0], cells[:, 1]] + 1e-12 * state.problem.exhaustive_cost
    best = first_max(np.log(gain + np.finfo(float).tiny) - np.log(cost))
    arm, task = cells[best]
    why: Why = {"leader": str(state.problem.arms[leader]), "rivals": float(len(rivals)), "loss": float(loss.max())}
    return Choice(int(arm), int(task), why)


def _rivals(belief: Posterior, leader: int, usable: Bools) -> tuple[Ints, Floats, Floats]:
    """Arms that may beat the leader, the sd of their difference from it, and the expected loss of ignoring them."""
    every = np.arange(len(belief.mean))
    with_leader = belief.covariance(every, np.array([leader]))[:, 0]
    variance = belief.sd**2 + belief.sd[leader] ** 2 - 2 * with_leader
    spread = np.sqrt(np.maximum(variance, 1e-12))
    distance = (belief.mean[leader] - belief.mean) / spread
    better = normal_tail(distance)
    loss = spread * (np.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi) - distance * better)
    racing = np.flatnonzero((better > DOUBT) & (variance > 1e-12) & usable & (every != leader))
    racing = racing[np.argsort(-loss[racing], kind="stable")][:RIVALS]
    return racing, spread[racing], loss[racing]


def _cells(state: State, leader: int, rivals: Ints) -> Ints:
    """Open cells (arm, task) of the leader and its rivals (c, 2)."""
    arms = np.sort(np.append(rivals, leader))
    cells = np.argwhere(state.open[arms])
    return np.column_stack([arms[cells[:, 0]], cells[:, 1]])


def _gain(belief: Posterior, cells: Ints, leader: int, rivals: Ints, weight: Floats) -> Floats:
    """Weighted reduction, by each cell, of the variance of (rival - leader) (c,)."""
    covariance, variance = belief.cells(cells[:, 0], cells[:, 1], np.append(rivals, leader))
    difference = covariance[:, :-1] - covariance[:, -1:]
    return np.asarray((difference**2 @ weight) / variance)


def normal_tail(x: Floats) -> Floats:
    """Probability that a standard normal variable exceeds x.

    Examples
    --------
    >>> normal_tail(np.array([0.0, 1.96])).round(3).tolist()
    [0.5, 0.025]
    """
    return np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in x.tolist()])
