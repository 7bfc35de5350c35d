"""What a search must have looked at: every model before any comparison, and every kind of task before it is sure.

A model that has no score looks as good as the average of the others, and the first score of an expensive model may
cost more than all that is left. So a search begins with the cheapest score of each model, keeps enough of its budget
for a score of each model on each kind of task, and does not end without these.

The cheapest tasks are often of one kind. Where the kinds disagree, a search that dismisses a rival or a whole model on
a few cheap scores is wrong, and sure. Searches of tables of several model families (docs/figures/policies.md) show what
protects from that: every kind seen at the leader, at its nearest rivals, and at the best arm of every other model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._posterior import Posterior, greatest
from daskmetrics.bandit._problem import ROUNDING, Bools, Floats, Ints, Problem

NEAREST = 3  #: rivals of the leader that have to be scored on every kind of task
BOUND = 512  #: arms considered as rivals: those with the greatest upper bounds
TRIES = 3  #: failed cells after which a model is given up on a kind of task


def covering_costs(problem: Problem) -> Floats:
    """The least cost of a score of each model on each kind of task, with its encoding and its load (M, K).

    Of a single model, which no other can be preferred to, it is that of one score (1, 1).
    """
    cost = problem.encode_cost + problem.score_cost + problem.load_costs[:, None]
    of_model = np.stack([cost[problem.model_index == model].min(axis=0) for model in range(len(problem.models))])
    return np.stack([of_model[:, is_of_kind].min(axis=1) for is_of_kind in _kinds_to_cover(problem).T], axis=1)


@dataclass(frozen=True, eq=False)
class MissingLooks:
    """Which models lack a score and a pending cell on which kind of task, as in `covering_costs` (M, K).

    A model on which `TRIES` cells of a kind failed is given up there.
    """

    first: Bools  # of the models that have no score and no pending cell at all
    all: Bools

    @classmethod
    def of(cls, state: State) -> MissingLooks:
        failed = _failed(state)
        seen = _count(state.problem, state.paid & ~failed) > 0
        missing = ~seen & (_count(state.problem, failed) < TRIES)
        return cls(missing & ~seen.any(axis=1, keepdims=True), missing)


def cover(state: State, looks: Bools, kept: float) -> Choice | None:
    """A cheap cell of the models and kinds of task that are to be looked at (M, K); None if there is none.

    It is drawn from the cells that cost at most twice as much as the cheapest: the same layer and task of every model
    would say less about the others. What is ``kept`` for the other looks is not spent. An encoding with which a cell
    failed is not tried again.
    """
    if not looks.any():
        return None
    problem, failed_encodings = state.problem, np.zeros_like(state.paid)
    for arm, task in np.argwhere(_failed(state)):
        failed_encodings[problem.checkpoint_index == problem.checkpoint_index[arm], task] = True
    wanted = looks[problem.model_index] @ _kinds_to_cover(problem).T
    affordable = state.cost <= state.remaining + ROUNDING * problem.exhaustive_cost
    candidates = wanted & affordable & ~state.paid & ~failed_encodings
    if not candidates.any():
        return None
    least = state.cost[candidates].min()
    more = min(least, max(0.0, state.remaining - kept))
    arms, tasks = np.nonzero(candidates & (state.cost <= least * (1 + ROUNDING) + more))
    chosen = state.random().integers(len(arms))
    arm, task = int(arms[chosen]), int(tasks[chosen])
    return Choice(arm, task, {"model": problem.arms[arm].model, "kind": problem.kind_names[task]})


def _failed(state: State) -> Bools:
    """Cells that gave no score (A, T)."""
    failed, finished = np.zeros_like(state.paid), state.finished
    failed[finished.arm[finished.failed], finished.task[finished.failed]] = True
    return failed


def _count(problem: Problem, cells: Bools) -> Ints:
    """The number of the cells (A, T) of each model on each kind of task to cover (M, K)."""
    of_kind = cells.astype(np.intp) @ _kinds_to_cover(problem)
    return np.stack([of_kind[problem.model_index == model].sum(axis=0) for model in range(len(problem.models))])


def _kinds_to_cover(problem: Problem) -> Bools:
    """Whether each task is of each kind of task of the objective (T, K); of a single model, of any of them (T, 1)."""
    in_objective = problem.in_objective[:, None]
    if len(problem.models) == 1:
        return in_objective
    return (problem.kind_membership[:, _kinds_of_objective(problem)] > 0) & in_objective


def _kinds_of_objective(problem: Problem) -> Ints:
    return np.unique(problem.kind_index[problem.in_objective])


def check_rivals(state: State) -> Choice | None:
    """The cheapest open cell of a kind on which a contender has no score yet; None if there is none."""
    arms = contenders(state.posterior, state.leader, state.usable)
    unseen = ~_kinds_seen(state.problem, state.paid[arms])[:, state.problem.kind_index]
    missing = unseen & state.open[arms] & state.problem.in_objective
    if not missing.any():
        return None
    place, task = np.unravel_index(int(np.where(missing, state.cost[arms], np.inf).argmin()), missing.shape)
    leader, kind = str(state.problem.arms[state.leader]), state.problem.kind_names[task]
    return Choice(int(arms[place]), int(task), {"leader": leader, "check": kind})


def is_covered(state: State) -> bool:
    """Whether all contenders have a score on every kind of task in the objective."""
    problem, seen = state.problem, np.zeros_like(state.paid)
    seen[state.observations.arm, state.observations.task] = True
    arms = contenders(state.posterior.without_pending(), state.leader, state.usable)
    return bool(_kinds_seen(problem, seen[arms])[:, _kinds_of_objective(problem)].all())


def contenders(posterior: Posterior, leader: int, usable: Bools) -> Ints:
    """The leader, the `NEAREST` usable arms that most probably beat it, and that arm of every other model."""
    others = greatest(np.where(usable, posterior.mean + 2 * posterior.sd, -np.inf), BOUND)
    others = others[usable[others] & (others != leader)]
    with_leader = posterior.covariance(others, np.array([leader]))[:, 0]
    variance = posterior.variance[others] + posterior.variance[leader] - 2 * with_leader
    distance = (posterior.mean[leader] - posterior.mean[others]) / np.sqrt(np.maximum(variance, 1e-12))
    order = np.argsort(distance, kind="stable")
    _, first = np.unique(posterior.problem.model_index[others[order]], return_index=True)
    return np.append(others[order[np.union1d(first, np.arange(len(order))[:NEAREST])]], leader)


def _kinds_seen(problem: Problem, cells: Bools) -> Bools:
    """Whether each of some arms has one of the cells (a, T) in a task of every kind (a, K)."""
    return np.asarray(cells @ problem.kind_membership > 0)
