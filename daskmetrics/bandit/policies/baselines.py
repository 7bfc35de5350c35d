"""Policies to compare with: those that pay for whole arms, random cells, and all cells in order.

A policy of whole arms scores one arm at a time on all tasks and learns from finished arms alone. Bandits are usually
applied to such a search in this way. It ignores that tasks differ in cost and that their scores are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._posterior import first_max
from daskmetrics.bandit._problem import Floats, Ints, Problem
from daskmetrics.bandit.policies._averages import averages, next_pull
from daskmetrics.bandit.policies.race import normal_tail

__all__ = ["gp_ei", "gp_ucb", "linear_ts", "linucb", "random", "sweep"]

RIDGE = 0.1  #: penalty of the linear models, on standardised values and features in (0, 1)
ALPHA = 1.0  #: weight of the uncertainty in LinUCB, in standard deviations of the arms' values
DELTA = 0.1  #: probability with which the bounds of GP-UCB may fail
SCALE = 5.0  #: divisor of the exploration weight of GP-UCB


def by_arms(state: State, rate: Callable[[Ints], Floats]) -> Choice | None:
    """Continue with the last arm; once it is paid for on every task, rate the others and start the best rated."""
    if state.cells and (choice := next_pull(state, state.cells[-1][0])):
        return choice
    needed = state.problem.in_objective
    missing = ~state.paid[:, needed]
    affordable = state.cost[:, needed].sum(axis=1) <= state.spendable + 1e-9 * state.problem.exhaustive_cost
    arms = np.flatnonzero(missing.any(axis=1) & affordable & state.usable)
    if not len(arms):
        return None
    rated = rate(arms)
    best = first_max(rated)
    choice = next_pull(state, int(arms[best]))
    return choice and Choice(choice.arm, choice.task, {"rated": float(rated[best])})


def design(problem: Problem) -> Floats:
    """Features of a linear model (A, F): constant, step, depth, their squares and product, models, metrics.

    The squares allow the best arm to lie inside the ranges.
    """
    time, depth, rest = problem.features[:, 0], problem.features[:, 1], problem.features[:, 2:]
    return np.column_stack([np.ones_like(time), time, depth, time**2, depth**2, time * depth, rest])


def ridge(state: State) -> tuple[Floats, Floats]:
    """Ridge regression on the finished arms: weights (F,) for standardised values, and their covariance (F, F).

    In the covariance pending arms count as finished.
    """
    features = design(state.problem)
    begun, finished = state.paid.any(axis=1), state.complete & state.usable
    value = averages(state).value[finished]
    target = (value - value.mean()) / (float(value.std()) or 1.0) if len(value) else value
    prior = RIDGE * np.eye(features.shape[1])
    weights = np.linalg.solve(prior + features[finished].T @ features[finished], features[finished].T @ target)
    return np.asarray(weights), np.asarray(np.linalg.inv(prior + features[begun].T @ features[begun]))


def gp_ei(state: State) -> Choice | None:
    """Expected improvement over the best finished arm; None if no whole arm is affordable.

    After Jones, Schonlau and Welch, "Efficient global optimization of expensive black-box functions" (Journal of Global
    Optimization 13, 1998), eq. 15. Pending arms count as observed at their expected value.
    """

    def improvement(arms: Ints) -> Floats:
        mean, sd = state.posterior.mean, state.posterior.sd
        finished = state.complete & state.usable
        best = float(mean[finished].max()) if finished.any() else float(mean.mean())
        return expected_improvement(mean[arms] - best, sd[arms])

    return by_arms(state, improvement)


def expected_improvement(lead: Floats, sd: Floats) -> Floats:
    """E[max(0, x)] of normal variables x with these means and standard deviations.

    >>> expected_improvement(np.array([0.0, 1.0, -1.0]), np.array([1.0, 0.0, 1.0])).round(4).tolist()
    [0.3989, 1.0, 0.0833]
    """
    spread = np.maximum(sd, 1e-12)
    distance = lead / spread
    return np.asarray(lead * normal_tail(-distance) + spread * np.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi))


def gp_ucb(state: State) -> Choice | None:
    """Upper confidence bound of the posterior; None if no whole arm is affordable.

    After Srinivas, Krause, Kakade and Seeger, "Gaussian process optimization in the bandit setting" (ICML 2010),
    theorem 1 for finite sets, with the square of the bound divided by `SCALE`, as in their experiments.
    """

    def bound(arms: Ints) -> Floats:
        turn = 1 + int(state.paid.any(axis=1).sum())
        beta = 2 * math.log(len(state.problem.arms) * turn**2 * math.pi**2 / (6 * DELTA)) / SCALE
        return np.asarray(state.posterior.mean[arms] + math.sqrt(beta) * state.posterior.sd[arms])

    return by_arms(state, bound)


def linucb(state: State) -> Choice | None:
    """Upper confidence bound of one linear model that all arms share; None if no whole arm is affordable.

    After Li, Chu, Langford and Schapire, "A contextual-bandit approach to personalized news article recommendation"
    (WWW 2010). Their algorithm 1 has a model per arm, which learns nothing here, since no arm is pulled twice.
    """

    def bound(arms: Ints) -> Floats:
        weights, covariance = ridge(state)
        features = design(state.problem)[arms]
        return np.asarray(features @ weights + ALPHA * np.sqrt(((features @ covariance) * features).sum(axis=1)))

    return by_arms(state, bound)


def linear_ts(state: State) -> Choice | None:
    """The best arm under one draw of the linear model; None if no whole arm is affordable.

    After Agrawal and Goyal, "Thompson sampling for contextual bandits with linear payoffs" (ICML 2013).
    Their factor on the covariance, which the proof needs, is one here.
    """

    def drawn(arms: Ints) -> Floats:
        weights, covariance = ridge(state)
        values, vectors = np.linalg.eigh(covariance)
        normal = state.random().standard_normal(len(weights))
        return np.asarray(design(state.problem)[arms] @ (weights + vectors @ (np.sqrt(np.maximum(values, 0)) * normal)))

    return by_arms(state, drawn)


def random(state: State) -> Choice | None:
    """Choose uniformly among the open cells."""
    cells = np.argwhere(state.open)
    if not len(cells):
        return None
    arm, task = cells[state.random().integers(len(cells))]
    return Choice(int(arm), int(task))


def sweep(state: State) -> Choice | None:
    """Choose the first open cell: arm by arm, task by task."""
    arm, task = divmod(int(np.argmax(state.open)), len(state.problem.tasks))
    return Choice(arm, task) if state.open[arm, task] else None
