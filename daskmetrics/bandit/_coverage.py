"""Which kinds of task the leader and its rivals were scored on: a search may be sure only where it has looked.

The cheapest tasks are often of one kind. Where the kinds disagree, a search that dismisses a rival or a whole model on
a few cheap scores is wrong, and sure. Searches of tables of several model families (docs/figures/policies.md) show what
protects from that: every kind seen at the leader, at its nearest rivals, and at the best arm of every other model.
"""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._posterior import Posterior, greatest
from daskmetrics.bandit._problem import Bools, Ints, Problem

NEAREST = 3  #: rivals of the leader that have to be scored on every kind of task
BOUND = 512  #: arms considered as rivals: those with the greatest upper bounds


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
    kinds = np.unique(problem.kind_index[problem.in_objective])
    return bool(_kinds_seen(problem, seen[arms])[:, kinds].all())


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
