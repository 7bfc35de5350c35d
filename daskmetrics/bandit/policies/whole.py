"""What policies that pay for whole arms share: one arm at a time on all its tasks, learning from finished arms alone.

This is how a bandit is mostly put to such a search. It ignores that tasks differ in cost and agree with each other;
these policies are here to compare with.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from daskmetrics.bandit.policies.tries import averages, next_try
from daskmetrics.bandit.policy import Choice, State
from daskmetrics.bandit.posterior import first_max
from daskmetrics.bandit.problem import Bools, Floats, Ints, Problem

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
