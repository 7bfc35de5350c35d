"""Averages of arms over tasks, and tasks in order of cost, for policies that use no posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._problem import Floats, Ints, Observations, Problem
from daskmetrics.bandit._rewards import reward_scale

SHRINK = 1.0  #: pulls of an average arm that are added to every arm, so that one lucky task does not decide
PRIOR_COUNT = 3.0  #: pulls that the arms' total variance counts for in the variance between tasks


@dataclass(frozen=True, eq=False)
class Averages:
    """Arms compared over the tasks on which they were scored, in units of the reward."""

    value: Floats  # (A,), lead over an average arm, corrected for its tasks; 0 without a score
    sd: Floats  # (A,), of its mean over all tasks, given the paid ones; 0 once all are paid
    pulls: Ints  # (A,), number of tasks paid for, pending and failed ones included


def averages(state: State) -> Averages:
    """Least squares of value = arm + task, the arms shrunk towards their mean by `SHRINK` pulls.

    So arms that were scored on different tasks are compared through the tasks that connect them. The variance between
    tasks is that of the residuals. Since the tasks are finite, an arm that was scored on all of them is known exactly.
    """
    problem, seen = state.problem, state.observations
    values, weight = reward_scale(problem, seen).values(seen), problem.objective_weights[seen.task] * len(problem.tasks)
    arm, residual = _two_way(problem, seen, values, weight)
    parameters = len(np.unique(seen.arm)) + len(np.unique(seen.task)) - 1
    freedom = max(len(seen) - parameters, 0)
    count = np.bincount(seen.task)
    means = np.asarray((np.bincount(seen.task, weights=values) / np.maximum(count, 1))[seen.task])
    total = float((weight * (values - means) ** 2).sum()) / max(len(seen), 1)
    variance = (float((weight * residual**2).sum()) + PRIOR_COUNT * total) / (freedom + PRIOR_COUNT)
    pulls = state.paid.sum(axis=1)
    unpaid = 1.0 - (state.paid * problem.objective_weights).sum(axis=1)
    return Averages(arm, np.sqrt(np.maximum(variance * unpaid, 0.0) / (pulls + SHRINK)), pulls)


def tasks_by_cost(problem: Problem) -> Ints:
    """Tasks of the objective, cheapest first by their mean cost over the arms; of equal ones the first (W,)."""
    order = np.argsort((problem.encode_cost + problem.score_cost).mean(axis=0), kind="stable")
    return np.asarray(order[problem.in_objective[order]])


def next_pull(state: State, arm: int) -> Choice | None:
    """The cheapest open cell of an arm, or None."""
    tasks = tasks_by_cost(state.problem)
    open_ = tasks[state.open[arm, tasks]]
    return Choice(arm, int(open_[0])) if len(open_) else None


def _two_way(problem: Problem, seen: Observations, values: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Effect of every arm (A,), and the residuals of the fit (n,)."""
    arms, tasks = len(problem.arms), len(problem.tasks)
    cells = np.zeros((arms, tasks))
    cells[seen.arm, seen.task] = weight
    scores = np.zeros((arms, tasks))
    scores[seen.arm, seen.task] = values
    share = cells / (cells.sum(axis=1) + SHRINK)[:, None]
    # with the arms eliminated, these are the normal equations of the tasks
    normal = np.diag(cells.sum(axis=0)) - cells.T @ share
    right = (cells * scores).sum(axis=0) - cells.T @ (share * scores).sum(axis=1)
    task = np.linalg.lstsq(normal, right, rcond=1e-9)[0]
    arm = (share * (scores - task)).sum(axis=1)
    return arm, values - arm[seen.arm] - task[seen.task]
