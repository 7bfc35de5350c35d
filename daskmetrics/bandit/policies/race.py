"""The leader against all arms that may still beat it, on the cells with the most information per cost.

Arms that beat the leader with negligible probability are excluded; the others are its rivals. Stopping now has the
expected loss E[max(0, rival - leader)]. The value of a measurement is the variance of these differences that it
removes, weighted by the losses, divided by its cost. A measurement is a single cell or a duel: the missing cells of a
rival and of the leader on the same task. Duels are the reason to start a new task, since a single score of a new task
does not distinguish two arms.

So cheap tasks are scored first, and expensive ones only if the cheap ones leave a doubt. A cell is cheap if its
encoding exists or its checkpoint is loaded; the cost of a new encoding is shared by the rivals of its checkpoint.
Pending cells count as observed, so that the same information is not paid for twice. A task with failed cells has less
value, by the share that failed.

Once no rival is likely to beat the leader, and before the search may end, the leader, its nearest rivals and the best
arm of every other model are scored on every kind of task (`daskmetrics.bandit._coverage`).

If the baseline checkpoint was swept, each of the swept tasks is first scored once for another checkpoint. The layers of
one checkpoint define a task's scale and do not show how far its scores vary during training. A task that seems to vary
little has little value, and would rarely be scored again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._coverage import check_rivals
from daskmetrics.bandit._kernel import NOISE
from daskmetrics.bandit._policy import Choice, State, Why
from daskmetrics.bandit._posterior import Posterior, greatest
from daskmetrics.bandit._problem import Bools, Floats, Ints, Rows

__all__ = ["ask"]

UNLIKELY = 0.2  #: once every rival beats the leader with a smaller probability, kinds that they lack are scored
NEGLIGIBLE = 0.01  #: a rival that beats the leader with a smaller probability is excluded
RIVALS = 32  #: rivals considered per decision: half have the greatest losses, the others are drawn by their losses
BOUND = 512  #: arms considered as rivals: those with the greatest upper bounds


@dataclass(frozen=True, eq=False)
class Rivals(Rows):
    """Rivals of the leader (S,): index, probability of beating it, sd of the difference, and expected loss."""

    arms: Ints
    better: Floats
    spread: Floats
    loss: Floats


def ask(state: State) -> Choice | None:
    """Choose the measurement with the most information per cost; None if there is no rival or no open cell."""
    if choice := _beyond_baseline(state):
        return choice
    leader = state.leader
    every = rivals(state.posterior, leader, state.usable, 0.0 if state.insists else NEGLIGIBLE)
    if every.better.max(initial=0.0) <= UNLIKELY and (choice := check_rivals(state)):
        return choice
    if not len(every):
        return None
    why: Why = {
        "leader": str(state.problem.arms[leader]),
        "rivals": float(len(every)),
        "loss": float(f"{every.loss.max():.6g}"),  # the last bits depend on how the posterior was computed
    }
    chosen = _draw_rivals(every, state.random())
    value = _value_per_cost(state, leader, chosen)
    if not value.max() > 0:
        return None
    best = _random_max(value, state.random())
    duel, place, task = (int(i) for i in np.unravel_index(best, value.shape))
    # the leader's cell first: it serves every duel on this task
    arm = leader if duel and state.open[leader, task] else int(np.append(chosen.arms, leader)[place])
    return Choice(arm, task, why)


def _beyond_baseline(state: State) -> Choice | None:
    """A swept task's first cell of another checkpoint: the least predictable per cost; None if no task needs one."""
    problem, swept = state.problem, state.problem.baseline_arms
    if problem.reward != "zscore":
        return None
    others = np.flatnonzero(problem.checkpoint_index != problem.checkpoint_index[swept[-1]])
    is_swept, is_scored = state.paid[swept].all(axis=0), state.paid[others].any(axis=0)
    missing = is_swept & ~is_scored & state.open[others].any(axis=0)
    if not missing.any():
        return None
    task = int(np.argmax(missing))
    kernel = state.posterior.model.kernel
    unsaid = kernel.variance - kernel(others, swept).max(axis=1) ** 2 / kernel.variance  # conditional variance
    value = np.where(state.open[others, task], unsaid / np.maximum(state.corrected_cost[others, task], 1e-300), -1.0)
    place = _random_max(value, state.random())
    return Choice(int(others[place]), task, {"unsaid": float(f"{unsaid[place]:.6g}")})


def rivals(posterior: Posterior, leader: int, usable: Bools, negligible: float = NEGLIGIBLE) -> Rivals:
    """Usable arms that may beat the leader, greatest expected loss first."""
    bound = np.where(usable, posterior.mean + 2 * posterior.sd, -np.inf)
    arms = greatest(bound, BOUND)
    arms = arms[(arms != leader) & usable[arms]]
    with_leader = posterior.covariance(arms, np.array([leader]))[:, 0]
    variance = posterior.variance[arms] + posterior.variance[leader] - 2 * with_leader
    spread = np.sqrt(np.maximum(variance, 1e-12))
    distance = (posterior.mean[leader] - posterior.mean[arms]) / spread
    better = normal_tail(distance)
    loss = spread * (np.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi) - distance * better)
    kept = np.flatnonzero((better > negligible) & (variance > 1e-12))
    kept = kept[np.argsort(-loss[kept], kind="stable")]
    return Rivals(arms, better, spread, loss).take(kept)


def _draw_rivals(every: Rivals, rng: np.random.Generator) -> Rivals:
    """At most `RIVALS` of them; the ones drawn at random represent all the others."""
    if len(every) <= RIVALS:
        return every
    top, rest = np.arange(RIVALS // 2), np.arange(RIVALS // 2, len(every))
    share = np.maximum(every.loss[rest], 1e-300)
    drawn = np.sort(rest[np.argsort(rng.exponential(size=len(rest)) / share)[: RIVALS - len(top)]])
    return every.take(np.append(top, drawn))


def _value_per_cost(state: State, leader: int, field: Rivals) -> Floats:
    """Reduction of the differences' weighted variances per cost (2, S + 1, T): by single cells, and by duels."""
    posterior, model, arms = state.posterior, state.posterior.model, np.append(field.arms, leader)
    last = len(field)
    cross = posterior.cross[:, arms]
    per_group = [
        (_product(white, cross), (white**2).sum(axis=1), np.einsum("an,n->a", white, white[last]))
        for white in posterior.whitened(arms)
    ]
    explained, known, with_leader = (
        np.stack(each, axis=1)[:, posterior.task_group] for each in zip(*per_group, strict=True)
    )
    parts = model.parts(arms, arms)
    covariance = -explained
    for part, of in zip(parts, state.problem.task_groups, strict=True):  # of every cell with the objectives
        covariance += part[:, None, :] * (of @ (model.weights @ of))[None, :, None]
    difference = covariance[..., :-1] - covariance[..., -1:]  # covariance of every cell with (rival - leader)
    weight = field.loss / field.spread**2
    open_ = state.open[arms]
    noise = np.where(state.paid[arms], 0.0, model.noise + NOISE)
    variance = np.maximum(model.cell_variance - known, 0.0) + noise
    cost = _shared_cost(state, arms) + 1e-12 * state.problem.exhaustive_cost
    single = np.where(open_, (difference**2 @ weight) / np.maximum(variance, 1e-12) / cost, 0.0)
    # a duel measures the rival's cell less the leader's
    prior = np.sum(parts, axis=0)[:, -1:]
    shared = prior - with_leader
    spread = variance + variance[last] - 2 * shared
    both = np.where(open_, cost, 0.0) + np.where(open_[last], cost[last], 0.0)
    possible = (open_ | state.paid[arms]) & (open_[last] | state.paid[arms][last]) & (both > 0)
    duel = ((difference - difference[last]) ** 2 @ weight) / np.maximum(spread, 1e-9)
    duel = np.where(possible, duel / np.maximum(both, 1e-300), 0.0)
    duel[last] = 0.0
    return np.stack([single, duel]) * _success_rate(state)


def _product(left: Floats, right: Floats) -> Floats:
    """The matrix product with all rows rounded alike: BLAS rounds a last odd row differently, which breaks ties."""
    even = np.vstack([left, left[-1:]]) if len(left) % 2 else left
    return np.asarray((even @ right)[: len(left)])


def _shared_cost(state: State, arms: Ints) -> Floats:
    """Cost of some arms' cells (a, T); the arms of one checkpoint share the cost of a new encoding."""
    problem, whole = state.problem, state.cost[arms]
    alone = np.minimum(problem.score_cost[arms], whole)
    checkpoint = problem.checkpoint_index[arms]
    sharing = (checkpoint[:, None] == checkpoint).sum(axis=1)[:, None]
    shared = np.where(problem.encode_cost[arms] > 0, alone + (whole - alone) / sharing, whole)
    return np.asarray(state.corrected_cost[arms] * shared / np.maximum(whole, 1e-300))


def _success_rate(state: State) -> Floats:
    """Probability that a cell of a task gives a score, from the outcomes so far (T,)."""
    size = len(state.problem.tasks)
    finished, scored = (np.bincount(tasks, minlength=size) for tasks in (state.finished.task, state.observations.task))
    return np.asarray((scored + 1.0) / (finished + 1.0))


def _random_max(values: Floats, rng: np.random.Generator) -> int:
    """Index of one of the greatest values, at random among values that differ by rounding."""
    flat = values.ravel()
    best = np.flatnonzero(flat >= flat.max() * (1 - 1e-9))
    return int(best[rng.integers(len(best))])


def normal_tail(x: Floats) -> Floats:
    """Probability that a standard normal variable exceeds x.

    >>> normal_tail(np.array([0.0, 1.96])).round(3).tolist()
    [0.5, 0.025]
    """
    return np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in x.tolist()])
