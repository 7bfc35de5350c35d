"""What a policy sees (`State`) and returns (`Choice`).

A policy is a pure function, so that a search can be rebuilt from its journal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from daskmetrics.bandit.model import (
    LEAST_SD,
    IncrementalPosterior,
    Posterior,
    first_max,
    measured_objectives,
)
from daskmetrics.bandit.problem import (
    ROUNDING,
    Bools,
    Floats,
    Ints,
    Observations,
    Problem,
)
from daskmetrics.core.keys import seed_of

#: probability of being as good as another arm below which an arm with all scores is not reported
DISBELIEVED = 0.01
#: by how much the scores of the `finalist` may exceed the budget, as a share of it
OVERDRAFT = 0.01
CONFIRM = 0.1  #: share of the budget that may be reserved for measuring the leader on all tasks

Why = Mapping[str, float | str]


@dataclass(frozen=True)
class Choice:
    """The next cell, by its indices, and the reason for it."""

    arm: int
    task: int
    why: Why = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class State:
    """Everything that a decision may depend on.

    Attributes
    ----------
    problem : Problem
    finished : Observations
        The chosen cells with an outcome, in the order in which decisions take them into account.
    pending : ndarray of int (n, 2)
        Arm and task of the chosen cells without an outcome, in the order of the decisions.
    paid : ndarray of bool (A, T)
        The same cells as a mask, failed ones included: no cell is chosen twice.
    cost : ndarray (A, T)
        What each cell would cost next; an encoding that exists is free.
    remaining : float
        Budget that is not spent; infinite where the budget pays for every cell.
    seed : int
        Seed of the search.
    budget : float
        The whole budget; infinite where it pays for every cell.
    most_cells : float
        Decisions that the search may make.
    cache : IncrementalPosterior or None
        Reuses the work of earlier states. It changes the time that `posterior` takes, not its
        values.
    """

    problem: Problem
    finished: Observations
    pending: Ints
    paid: Bools
    cost: Floats
    remaining: float
    seed: int
    budget: float = math.inf
    most_cells: float = math.inf
    cache: IncrementalPosterior | None = None

    @cached_property
    def observations(self) -> Observations:
        """The known scores, sorted by cell."""
        return self.finished.scores.by_cell()

    @property
    def cells(self) -> Ints:
        """Arm and task of every chosen cell, finished ones first (n, 2)."""
        finished = np.column_stack([self.finished.arm, self.finished.task])
        return np.concatenate([finished, self.pending])

    @cached_property
    def failed(self) -> Bools:
        """Cells that gave no score (A, T)."""
        failed = np.zeros_like(self.paid)
        rows = self.finished.take(self.finished.failed)
        failed[rows.arm, rows.task] = True
        return failed

    @cached_property
    def scored(self) -> Bools:
        """Arms with a score on every task of the objective (A,)."""
        needed = self.problem.in_objective
        arms = self.observations.arm[needed[self.observations.task]]
        count = np.bincount(arms, minlength=len(self.problem.arms))
        return np.asarray(count == needed.sum())

    @property
    def usable(self) -> Bools:
        """Arms that may be recommended: at most half of their cells failed (A,)."""
        tried = np.bincount(self.finished.arm, minlength=len(self.problem.arms))
        return np.asarray(2 * self.failed.sum(axis=1) <= tried)

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior of every arm's objective; computed on first use."""
        cache = self.cache or IncrementalPosterior(self.problem)
        return cache.posterior(self.finished, self.pending)

    @cached_property
    def leader(self) -> int:
        """The usable arm with the greatest expected objective.

        Before the first score it is the last model's default arm.
        """
        default_arm = int(self.problem.default_arms[-1])
        if not len(self.observations) and self.usable[default_arm]:
            return default_arm
        return first_max(self.posterior.mean, self.usable)

    @cached_property
    def recommended(self) -> int:
        """The arm that is reported; policies decide by the `leader`.

        This is the one rule for every report, so that none contradicts the scores that it shows. Of
        the arms scored on every task of the objective it is the one with the greatest mean by these
        scores. If there are none, or if another one is better than that by all that is known (with
        a probability of error of `DISBELIEVED`), it is the arm with a score whose expected
        objective is the greatest, a usable one if possible: a budget may end before a good arm is
        scored on every task. An arm without a score is never reported, whatever the posterior
        expects of it, nor one that failed on a task in place of one with all scores.
        """
        arms = np.arange(len(self.problem.arms))
        has_score = np.isin(arms, self.observations.arm)
        candidates = has_score & self.usable
        if not candidates.any():
            candidates = has_score
        if not self.scored.any():
            return first_max(self.posterior.mean, candidates)
        measured = first_max(self.measured, self.scored)
        failed_cells = self.failed & self.problem.in_objective
        candidates &= ~failed_cells.any(axis=1)
        expected = first_max(self.posterior.mean, candidates | self.scored)
        if self.scored[expected] or _is_as_good(self.posterior, measured, expected):
            return measured
        return expected

    @cached_property
    def measured(self) -> Floats:
        """Objective of every arm by its own scores (A,).

        NaN without any; comparable between `scored` arms.
        """
        return measured_objectives(self.problem, self.observations)

    @cached_property
    def spendable(self) -> float:
        """The remaining budget, less the cost of confirming the leader.

        Nothing is reserved if confirming would take more than `CONFIRM` of the whole budget: the
        search makes better use of it.
        """
        share = CONFIRM * self.budget
        if self.remaining > 2 * share:  # far from the end the leader need not be computed
            return self.remaining - share
        missing = float(self.cost[self.leader, self.problem.in_objective].sum())
        if missing > share:
            return self.remaining
        return self.remaining - missing

    @cached_property
    def is_confirmable(self) -> Bools:
        """Arms that the remaining budget can score on every task (A,).

        It may be exceeded a little: otherwise a worse arm would be confirmed, whose scores cost
        less.
        """
        missing = self.cost[:, self.problem.in_objective].sum(axis=1)
        return self.affordable(missing, self.remaining + OVERDRAFT * self.budget)

    @cached_property
    def finalist(self) -> int:
        """The arm to score on every task: the leader, if the budget allows.

        Else it is the best that can still be scored on every task: otherwise a worse one, which
        happens to have all scores, would be reported.
        """
        candidates = self.is_confirmable & self.usable
        if self.is_confirmable[self.leader] or not candidates.any():
            return self.leader
        return first_max(self.posterior.mean, candidates)

    @cached_property
    def open(self) -> Bools:
        """Cells that may be chosen: unpaid and affordable (A, T)."""
        return ~self.paid & self.affordable(self.cost, self.spendable)

    def affordable(self, cost: Floats, budget: float) -> Bools:
        """Which costs a budget pays for, up to rounding."""
        return cost <= budget + ROUNDING * self.problem.exhaustive_cost

    def random(self) -> np.random.Generator:
        """A generator for this decision alone.

        It is seeded by the search and the number of the decision.
        """
        return np.random.default_rng(seed_of("bandit", self.seed, len(self.cells)))


def _is_as_good(posterior: Posterior, arm: int, other: int) -> bool:
    """Whether an arm may be as good, by the distribution of the confidence."""
    from scipy.special import stdtr

    of_scores = posterior.without_pending()
    (variance,) = of_scores.difference_variance(np.array([arm]), other)
    gap = posterior.mean[other] - posterior.mean[arm]
    distance = gap / np.sqrt(max(variance, LEAST_SD**2))
    probability = stdtr(posterior.model.freedom, -distance)
    return bool(probability >= DISBELIEVED)


class Policy(Protocol):
    """A pure function of a `State`; None if no open cell is worth its cost."""

    def __call__(self, state: State, /) -> Choice | None: ...
