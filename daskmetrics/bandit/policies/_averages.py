"""What policies without a model of the arms go by: averages over the tasks tried, and tasks in order of their cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._problem import Floats, Ints, Observations, Problem
from daskmetrics.bandit._rewards import scale

SHRINK = 1.0  #: tries of an average arm that every arm is given, so that one lucky task does not decide
PRIOR_COUNT = 3.0  #: tries that the arms' whole spread counts for, where their spread between tasks is hardly known


@dataclass(frozen=True, eq=False)
class Averages:
    """What the tasks tried say of every arm, in units of the reward.

    Attributes
    ----------
    value : ndarray (A,)
        By how much an arm is better than an average one, corrected for which tasks it was tried on; 0 if on none.
    sd : ndarray (A,)
        Of its mean over all tasks, given those that were tried or are pending; 0 once all are.
    tries : ndarray (A,)
        Tasks asked for, pending and failed ones included.
    """

    value: Floats
    sd: Floats
    tries: Ints


def averages(state: State) -> Averages:
    """Least squares of value = arm + task, the arms shrunk towards their mean by `SHRINK` tries.

    Arms that were tried on other tasks are thus compared by the tasks that join them. The spread between tasks is the
    residuals'; since the tasks are finite, an arm that was tried on all of them is known exactly.
    """
    problem, seen = state.problem, state.seen
    unit = scale(problem, seen)
    values, weight = unit.values(seen), problem.shares[seen.task] * len(problem.tasks)
    arm, rest = _two_way(problem, seen, values, weight)
    count = len(np.unique(seen.arm)) + len(np.unique(seen.task)) - 1
    freedom = max(len(seen) - count, 0)
    whole = float((weight * (values - _task_means(seen, values)) ** 2).sum()) / max(len(seen), 1)
    variance = (float((weight * rest**2).sum()) + PRIOR_COUNT * whole) / (freedom + PRIOR_COUNT)
    tries = state.paid.sum(axis=1)
    left = 1.0 - (state.paid * problem.shares).sum(axis=1)
    return Averages(arm, np.sqrt(np.maximum(variance * left, 0.0) / (tries + SHRINK)), tries)


def order_of_cost(problem: Problem) -> Ints:
    """Tasks that count, cheapest first by their mean cost over the arms; of equal ones the first (W,)."""
    order = np.argsort((problem.encode_cost + problem.score_cost).mean(axis=0), kind="stable")
    return np.asarray(order[problem.wanted[order]])


def next_try(state: State, arm: int) -> Choice | None:
    """An arm on the cheapest of the tasks that it was not tried on, or None if none is open to it."""
    tasks = order_of_cost(state.problem)
    open_ = tasks[state.open[arm, tasks]]
    return Choice(arm, int(open_[0])) if len(open_) else None


def _two_way(problem: Problem, seen: Observations, values: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Effect of every arm (A,), and what arm and task do not explain (n,)."""
    arms, tasks = len(problem.arms), len(problem.tasks)
    cells = np.zeros((arms, tasks))
    cells[seen.arm, seen.task] = weight
    scores = np.zeros((arms, tasks))
    scores[seen.arm, seen.task] = values
    share = cells / (cells.sum(axis=1) + SHRINK)[:, None]
    # the arms eliminated, what is left are the normal equations of the tasks
    normal = np.diag(cells.sum(axis=0)) - cells.T @ share
    right = (cells * scores).sum(axis=0) - cells.T @ (share * scores).sum(axis=1)
    task = np.linalg.lstsq(normal, right, rcond=1e-9)[0]
    arm = (share * (scores - task)).sum(axis=1)
    return arm, values - arm[seen.arm] - task[seen.task]


def _task_means(seen: Observations, values: Floats) -> Floats:
    """Mean of the values of its task, for every observation (n,)."""
    count = np.bincount(seen.task)
    return np.asarray((np.bincount(seen.task, weights=values) / np.maximum(count, 1))[seen.task])
