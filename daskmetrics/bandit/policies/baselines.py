"""What policies that pay for whole arms share: one arm at a time on all its tasks, learning from finished arms alone.

This is how a bandit is mostly put to such a search. It ignores that tasks differ in cost and agree with each other;
these policies are here to compare with.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._posterior import first_max
from daskmetrics.bandit._problem import Bools, Floats, Ints, Problem
from daskmetrics.bandit.policies._averages import averages, next_try
from daskmetrics.bandit.policies.race import normal_tail

RIDGE = 0.1  #: of the linear models, on standardised values and features in (0, 1)


def by_arms(state: State, rate: Callable[[Ints], Floats]) -> Choice | None:
    """Go on with the arm that was begun; once it is asked for on every task, begin the one that rates highest.

    Parameters
    ----------
    state : State
    rate : callable
        Gives a number for each of some arms; it is called only when an arm is to be begun.
    """
    if state.cells and (choice := next_try(state, state.cells[-1][0])):
        return choice
    arms = np.flatnonzero(_fresh(state))
    if not len(arms):
        return None
    rated = rate(arms)
    best = first_max(rated)
    choice = next_try(state, int(arms[best]))
    return choice and Choice(choice.arm, choice.task, {"rated": float(rated[best])})


def design(problem: Problem) -> Floats:
    """Features of a linear model (A, F): constant, step, depth, their squares and product, models, metrics.

    The squares let the best arm lie inside of the ranges.
    """
    time, depth, rest = problem.features[:, 0], problem.features[:, 1], problem.features[:, 2:]
    return np.column_stack([np.ones_like(time), time, depth, time**2, depth**2, time * depth, rest])


def ridge(state: State) -> tuple[Floats, Floats]:
    """A linear model of the finished arms.

    Returns
    -------
    weights : ndarray (F,)
        Of the features, for standardised values.
    covariance : ndarray (F, F)
        Of the weights; arms that are pending count as finished.
    """
    features = design(state.problem)
    begun, done = state.paid.any(axis=1), state.settled & state.usable
    value = averages(state).value[done]
    target = (value - value.mean()) / (float(value.std()) or 1.0) if len(value) else value
    prior = RIDGE * np.eye(features.shape[1])
    weights = np.linalg.solve(prior + features[done].T @ features[done], features[done].T @ target)
    return np.asarray(weights), np.asarray(np.linalg.inv(prior + features[begun].T @ features[begun]))


def _fresh(state: State) -> Bools:
    """Arms that are not asked for on every task, and whose missing cells can all be paid (A,)."""
    wanted = state.problem.wanted
    missing = ~state.paid[:, wanted]
    affordable = state.cost[:, wanted].sum(axis=1) <= state.left + 1e-9 * state.problem.exhaustive_cost
    return np.asarray(missing.any(axis=1) & affordable & state.usable)


def gp_ei(state: State) -> Choice | None:
    """Choose the next cell of the arm that may improve most on the best finished one; None when none can be paid."""

    def improvement(arms: Ints) -> Floats:
        mean, sd = state.belief.mean, state.belief.sd
        done = state.settled & state.usable
        best = float(mean[done].max()) if done.any() else float(mean.mean())
        return expected_improvement(mean[arms] - best, sd[arms])

    return by_arms(state, improvement)


def expected_improvement(lead: Floats, sd: Floats) -> Floats:
    """E[max(0, x)] of normal variables with these means and standard deviations.

    Examples
    --------
    >>> expected_improvement(np.array([0.0, 1.0, -1.0]), np.array([1.0, 0.0, 1.0])).round(4).tolist()
    [0.3989, 1.0, 0.0833]
    """
    spread = np.maximum(sd, 1e-12)
    distance = lead / spread
    return np.asarray(lead * normal_tail(-distance) + spread * np.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi))


DELTA = 0.1  #: probability with which the bounds may fail
SCALE = 5.0


def gp_ucb(state: State) -> Choice | None:
    """Choose the next cell of the arm with the greatest upper bound; None when no whole arm can be paid."""

    def bound(arms: Ints) -> Floats:
        turn = 1 + int(state.paid.any(axis=1).sum())
        beta = 2 * math.log(len(state.problem.arms) * turn**2 * math.pi**2 / (6 * DELTA)) / SCALE
        return np.asarray(state.belief.mean[arms] + math.sqrt(beta) * state.belief.sd[arms])

    return by_arms(state, bound)


ALPHA = 1.0  #: weight of the uncertainty, in standard deviations of the arms' values


def linucb(state: State) -> Choice | None:
    """Choose the next cell of the arm with the greatest upper bound; None when no whole arm can be paid."""

    def bound(arms: Ints) -> Floats:
        weights, covariance = ridge(state)
        features = design(state.problem)[arms]
        return np.asarray(features @ weights + ALPHA * np.sqrt(((features @ covariance) * features).sum(axis=1)))

    return by_arms(state, bound)


def linear_ts(state: State) -> Choice | None:
    """Choose the next cell of the arm that is best under one draw of the model; None when none can be paid."""

    def drawn(arms: Ints) -> Floats:
        weights, covariance = ridge(state)
        values, vectors = np.linalg.eigh(covariance)
        normal = state.random().standard_normal(len(weights))
        return np.asarray(design(state.problem)[arms] @ (weights + vectors @ (np.sqrt(np.maximum(values, 0)) * normal)))

    return by_arms(state, drawn)


def random(state: State) -> Choice | None:
    """Choose uniformly among the open cells, seeded by the search and the decision's number."""
    cells = np.argwhere(state.open)
    if not len(cells):
        return None
    arm, task = cells[state.random().integers(len(cells))]
    return Choice(int(arm), int(task))


def sweep(state: State) -> Choice | None:
    """Choose the first open cell: arm by arm, task by task."""
    first = int(np.argmax(state.open))
    arm, task = divmod(first, len(state.problem.tasks))
    return Choice(arm, task) if state.open[arm, task] else None
