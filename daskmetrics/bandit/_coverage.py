"""Which kinds of task were seen at which arms, and the cells that a search must see before it may be sure.

A search that decides on the cheapest tasks decides on one kind of task. Where the kinds disagree it is then wrong, and
sure. Replays of tables of several model families (docs/figures/policies.md) show what protects from that: a first look
at every kind at arms that represent all others, and one more at the nearest rivals before they are dismissed.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from daskmetrics.bandit._kernel import ArmKernel, Hyperparameters
from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._posterior import Posterior, greatest
from daskmetrics.bandit._problem import Bools, Ints, Problem

FIRST = 6  #: arms of the first look, or one of each model if there are more models
FIRST_SHARE = 0.5  #: the first look takes at most this share of what was spent so far
NEAREST = 3  #: rivals that are checked together with the leader
CANDIDATES = 1024  #: arms among which those of the first look are chosen
BOUND = 64  #: arms among which the nearest rivals are found: those with the greatest upper bounds


def first_look(state: State) -> Choice | None:
    """The next cell of the first look: the cheapest task of every kind, at a few arms that represent all others.

    It is never more than `FIRST_SHARE` of what was spent. So it delays no search by much, and does not depend on the
    budget: a search with more budget begins with the same decisions.
    """
    problem = state.problem
    arms, tasks = _first_cells(problem)
    missing = state.open[arms, tasks]
    if not missing.any():
        return None
    place = int(np.where(missing, state.cost[arms, tasks], np.inf).argmin())
    whole, cost = problem.score_cost + problem.encode_cost, float(state.cost[arms[place], tasks[place]])
    looked = float(whole[arms, tasks][state.paid[arms, tasks]].sum())
    if looked + cost > FIRST_SHARE * (float(whole[state.paid].sum()) + cost):
        return None
    return Choice(int(arms[place]), int(tasks[place]), {"first look": problem.kind_names[tasks[place]]})


def check_rivals(state: State) -> Choice | None:
    """The cheapest open cell of a kind of task on which the leader or a near rival was not scored; None without one."""
    arms = contenders(state.posterior, state.leader, state.usable)
    unseen = ~kinds_seen(state.problem, state.paid)[arms][:, state.problem.kind_index]
    missing = unseen & state.open[arms] & state.problem.in_objective
    if not missing.any():
        return None
    place, task = np.unravel_index(int(np.where(missing, state.cost[arms], np.inf).argmin()), missing.shape)
    return Choice(int(arms[place]), int(task), {"check": str(state.problem.arms[state.leader])})


def is_covered(state: State) -> bool:
    """Whether the leader and its nearest rivals were scored on every kind of task in the objective."""
    problem, finished = state.problem, np.zeros_like(state.paid)
    finished[state.finished.arm, state.finished.task] = True
    arms = contenders(state.posterior.without_pending(), state.leader, state.usable)
    counts = np.unique(problem.kind_index[problem.in_objective])
    return bool(kinds_seen(problem, finished)[np.ix_(arms, counts)].all())


def kinds_seen(problem: Problem, cells: Bools) -> Bools:
    """Whether an arm has one of the cells (A, T) in a task of each kind (A, K)."""
    return np.asarray(cells @ problem.task_groups[1] > 0)


def contenders(posterior: Posterior, leader: int, usable: Bools) -> Ints:
    """The usable arms that most probably beat the leader, at most `NEAREST`, and the leader."""
    others = greatest(np.where(usable, posterior.mean + 2 * posterior.sd, -np.inf), BOUND)
    others = others[usable[others] & (others != leader)]
    with_leader = posterior.covariance(others, np.array([leader]))[:, 0]
    variance = posterior.variance[others] + posterior.variance[leader] - 2 * with_leader
    distance = (posterior.mean[leader] - posterior.mean[others]) / np.sqrt(np.maximum(variance, 1e-12))
    return np.append(others[greatest(-distance, NEAREST)], leader)


@lru_cache(maxsize=4)
def _first_cells(problem: Problem) -> tuple[Ints, Ints]:
    """Cells of the first look: indices of their arms and tasks (n,)."""
    cost = (problem.encode_cost + problem.score_cost).mean(axis=0)
    tasks = np.flatnonzero(problem.in_objective)
    kinds = problem.kind_index[tasks]
    cheapest = np.array([tasks[kinds == kind][cost[tasks[kinds == kind]].argmin()] for kind in np.unique(kinds)])
    arms = representatives(problem)
    return np.repeat(arms, len(cheapest)), np.tile(cheapest, len(arms))


def representatives(problem: Problem) -> Ints:
    """Arms that together tell the most about all arms: each reduces their prior variance the most."""
    arms = np.unique(np.linspace(0, len(problem.arms) - 1, CANDIDATES).round().astype(np.intp))
    prior = Hyperparameters()
    covariance = ArmKernel(problem, prior.time_scale, prior.depth_scale)(arms, arms)
    chosen: list[int] = []
    for _ in range(min(max(FIRST, len(problem.models)), len(arms))):
        left = np.diag(covariance) > 1e-9 * covariance.max()
        reduced = (covariance**2).sum(axis=0) / np.where(left, np.diag(covariance), np.inf)
        chosen.append(int(reduced.argmax()))
        row = covariance[chosen[-1]]
        covariance = covariance - np.outer(row, row) / row[chosen[-1]]
    return np.sort(arms[chosen])
