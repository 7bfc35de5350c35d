"""The leader against all who may still beat it, on the cheapest cells that tell them apart.

Arms that the posterior all but excludes are out of the race. For those left, the loss to expect from stopping now is
E[max(0, rival - leader)]; a measurement is worth the share of these losses' variance that it would remove, divided by
its cost. It is a single cell, or a duel: a rival and the leader on the same task, as far as they lack it. Duels are
why a new task is tried at all, since one score of it alone tells nobody apart.

Cheap tasks are thus asked first, and dear ones only where the cheap ones leave a doubt. Encodings that exist and
checkpoints that are loaded make a cell cheap; an encoding to be made is shared by the rivals of its checkpoint. Pending
cells count as observed, so that no question is asked twice in other words; a task whose cells have failed is worth
less, as far as they failed.

Where the baseline checkpoint was swept, each swept task is first asked once of another checkpoint. Layers of one
checkpoint give a task's unit and do not tell how far its scores range over training; a task that is taken to range
over little weighs little in the worth of a cell, and would hardly be asked again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._kernel import NOISE
from daskmetrics.bandit._policy import Choice, State, Why
from daskmetrics.bandit._posterior import Posterior, greatest
from daskmetrics.bandit._problem import Bools, Floats, Ints

DOUBT = 0.01  #: a rival whose probability of beating the leader is smaller is out of the race
RIVALS = (
    32  #: rivals weighed at one decision: half of them those with the greatest loss, the others drawn by their loss
)
BOUND = 512  #: arms that are looked at as rivals: those with the greatest upper bounds


@dataclass(frozen=True, eq=False)
class Field:
    """Who may beat the leader: arms (S,), probability of it, sd of the difference, and the expected loss of each."""

    arms: Ints
    better: Floats
    spread: Floats
    loss: Floats

    def __len__(self) -> int:
        return len(self.arms)

    def some(self, which: Ints) -> Field:
        return Field(self.arms[which], self.better[which], self.spread[which], self.loss[which])


def ask(state: State) -> Choice | None:
    """Choose the most informative measurement per cost; None when the leader has no rival left, or nothing is open."""
    if choice := _elsewhere(state):
        return choice
    belief, leader = state.belief, state.leader
    field = rivals(belief, leader, state.usable)
    if not len(field):
        return None
    why: Why = {
        "leader": str(state.problem.arms[leader]),
        "rivals": float(len(field)),
        "loss": float(f"{field.loss.max():.6g}"),  # last bits depend on how the posterior was come by
    }
    chosen = _chosen(field, state.random())
    worth = _worth(state, leader, chosen)
    if not worth.max() > 0:
        return None
    best = _any_max(worth, state.random())
    kind, place, task = (int(i) for i in np.unravel_index(best, worth.shape))
    arms = np.append(chosen.arms, leader)
    arm = int(arms[place])
    if kind and state.open[leader, task]:
        arm = leader  # it serves every duel on this task
    return Choice(arm, task, why)


def _elsewhere(state: State) -> Choice | None:
    """A swept task's first cell of another checkpoint: where the sweep says least, per price; None if none lacks it."""
    problem, swept = state.problem, state.problem.baseline_arms
    if problem.reward != "zscore":
        return None
    others = np.flatnonzero(problem.checkpoint_index != problem.checkpoint_index[problem.default_arm])
    is_swept, is_tried = state.paid[swept].all(axis=0), state.paid[others].any(axis=0)
    lacking = is_swept & ~is_tried & state.open[others].any(axis=0)
    if not lacking.any():
        return None
    task = int(np.argmax(lacking))
    near = state.belief.model.near
    unsaid = near.variance - near(others, swept).max(axis=1) ** 2 / near.variance
    worth = np.where(state.open[others, task], unsaid / np.maximum(state.price[others, task], 1e-300), -1.0)
    place = _any_max(worth, state.random())
    return Choice(int(others[place]), task, {"unsaid": float(f"{unsaid[place]:.6g}")})


def rivals(belief: Posterior, leader: int, usable: Bools) -> Field:
    """Usable arms whose probability of beating the leader is not negligible, greatest expected loss first."""
    bound = np.where(usable, belief.mean + 2 * belief.sd, -np.inf)
    arms = greatest(bound, BOUND)
    arms = arms[(arms != leader) & usable[arms]]
    with_leader = belief.covariance(arms, np.array([leader]))[:, 0]
    variance = belief.variance[arms] + belief.variance[leader] - 2 * with_leader
    spread = np.sqrt(np.maximum(variance, 1e-12))
    distance = (belief.mean[leader] - belief.mean[arms]) / spread
    better = normal_tail(distance)
    loss = spread * (np.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi) - distance * better)
    racing = np.flatnonzero((better > DOUBT) & (variance > 1e-12))
    racing = racing[np.argsort(-loss[racing], kind="stable")]
    return Field(arms, better, spread, loss).some(racing)


def _chosen(field: Field, rng: np.random.Generator) -> Field:
    """As many as are weighed; those drawn stand for all the others."""
    if len(field) <= RIVALS:
        return field
    top, rest = np.arange(RIVALS // 2), np.arange(RIVALS // 2, len(field))
    share = np.maximum(field.loss[rest], 1e-300)
    drawn = np.sort(rest[np.argsort(rng.exponential(size=len(rest)) / share)[: RIVALS - len(top)]])
    return field.some(np.append(top, drawn))


def _worth(state: State, leader: int, field: Field) -> Floats:
    """Reduction per cost of the rivals' weighted variances (2, S + 1, T): by single cells, and by duels."""
    belief, model, arms = state.belief, state.belief.model, np.append(field.arms, leader)
    last = len(field)
    pulls = belief.pulls[:, arms]
    told = [
        (_by_rows(white, pulls), (white**2).sum(axis=1), np.einsum("an,n->a", white, white[last]))
        for white in belief.whitened(arms)
    ]
    pulled, sure, with_leader = (np.stack(each, axis=1)[:, belief.sort] for each in zip(*told, strict=True))
    common, own = model.parts(arms, arms)
    covariance = common[:, None, :] * model.weights.sum() - pulled
    covariance += own[:, None, :] * model.weights[None, :, None]
    difference = covariance[..., :-1] - covariance[..., -1:]  # of every cell with (rival - leader)
    weight = field.loss / field.spread**2
    open_ = state.open[arms]
    noise = np.where(state.paid[arms], 0.0, model.noise + NOISE)
    variance = np.maximum(model.common_variance + model.own_variance - sure, 0.0) + noise
    price = _shared(state, arms) + 1e-12 * state.problem.exhaustive_cost
    single = np.where(open_, (difference**2 @ weight) / np.maximum(variance, 1e-12) / price, 0.0)
    # a duel: the rival's cell less the leader's
    prior = (common + own)[:, -1:]
    shared = prior - with_leader
    spread = variance + variance[last] - 2 * shared
    both = np.where(open_, price, 0.0) + np.where(open_[last], price[last], 0.0)
    ready = (open_ | state.paid[arms]) & (open_[last] | state.paid[arms][last]) & (both > 0)
    duel = ((difference - difference[last]) ** 2 @ weight) / np.maximum(spread, 1e-9)
    duel = np.where(ready, duel / np.maximum(both, 1e-300), 0.0)
    duel[last] = 0.0
    return np.stack([single, duel]) * _chance(state)


def _by_rows(left: Floats, right: Floats) -> Floats:
    """The matrix product, all rows rounded alike: a last odd one would not be, and ties would hang on who is last."""
    even = np.vstack([left, left[-1:]]) if len(left) % 2 else left
    return np.asarray((even @ right)[: len(left)])


def _shared(state: State, arms: Ints) -> Floats:
    """Price of some arms' cells (a, T); those of one checkpoint share what encoding a task would take."""
    problem, whole = state.problem, state.cost[arms]
    alone = np.minimum(problem.score_cost[arms], whole)
    checkpoint = problem.checkpoint_index[arms]
    sharing = (checkpoint[:, None] == checkpoint).sum(axis=1)[:, None]
    mine = np.where(problem.encode_cost[arms] > 0, alone + (whole - alone) / sharing, whole)
    return np.asarray(state.price[arms] * mine / np.maximum(whole, 1e-300))


def _chance(state: State) -> Floats:
    """Probability that a cell of a task gives a score, by those that were answered (T,)."""
    size = len(state.problem.tasks)
    answered, scored = (np.bincount(tasks, minlength=size) for tasks in (state.answers.task, state.seen.task))
    return np.asarray((scored + 1.0) / (answered + 1.0))


def _any_max(values: Floats, rng: np.random.Generator) -> int:
    """One of the greatest values, near-ties decided by lot."""
    flat = values.ravel()
    best = np.flatnonzero(flat >= flat.max() * (1 - 1e-9))
    return int(best[rng.integers(len(best))])


def normal_tail(x: Floats) -> Floats:
    """Probability that a standard normal variable exceeds x.

    Examples
    --------
    >>> normal_tail(np.array([0.0, 1.96])).round(3).tolist()
    [0.5, 0.025]
    """
    return np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in x.tolist()])
