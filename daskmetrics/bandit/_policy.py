"""What a policy sees (`State`) and returns (`Choice`).

A policy is a pure function, so that a search can be rebuilt from its journal.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from daskmetrics.bandit._costs import cost_correction
from daskmetrics.bandit._incremental import IncrementalPosterior
from daskmetrics.bandit._posterior import Posterior, first_max
from daskmetrics.bandit._problem import Bools, Floats, Observations, Outcome, OutcomeArrays, OutcomeHistory, Problem
from daskmetrics.bandit._rewards import measured_objectives
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.names import seed_of

CONFIRM = 0.1  #: share of the budget that may be reserved for measuring the leader on all tasks

Why = Mapping[str, float | str]


@dataclass(frozen=True)
class Choice:
    """The next cell, by its indices, and the reason for it in a few numbers or words."""

    arm: int
    task: int
    why: Why = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class State:
    """Everything that decision number ``len(cells)`` may depend on.

    Attributes
    ----------
    problem : Problem
    cells : sequence of (arm, task)
        Indices of the cells chosen so far, in the order of the decisions.
    outcomes : sequence of Outcome
        Outcomes of the first of these cells; the others are pending.
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
    insists : bool
        Whether to go on although no rival is worth its cost: the search is to spend more.
    cache : IncrementalPosterior or None
        Reuses the work of earlier states. It changes the time that `posterior` and `finished` take, not their values.
    """

    problem: Problem
    cells: Sequence[tuple[int, int]]
    outcomes: Sequence[Outcome]
    paid: Bools
    cost: Floats
    remaining: float
    seed: int
    budget: float = math.inf
    insists: bool = False
    cache: IncrementalPosterior | None = None

    @cached_property
    def observations(self) -> Observations:
        """The known scores, sorted by cell."""
        return self.finished.scores.by_cell()

    @cached_property
    def finished(self) -> OutcomeArrays:
        """The outcomes with their cells, as arrays, in order."""
        return (self.cache or OutcomeHistory()).read(self.cells, self.outcomes)

    @property
    def complete(self) -> Bools:
        """Arms that have an outcome on every task of the objective (A,)."""
        finished = np.zeros_like(self.paid)
        finished[self.finished.arm, self.finished.task] = True
        return np.asarray((finished | ~self.problem.in_objective).all(axis=1))

    @cached_property
    def scored(self) -> Bools:
        """Arms that have a score on every task of the objective (A,)."""
        return _all_scored(self.problem, self.observations)

    @property
    def usable(self) -> Bools:
        """Arms that failed at most as often as they gave a score (A,); the others are not recommended."""
        arms, size = self.finished.arm, len(self.problem.arms)
        failed = np.bincount(arms[self.finished.failed], minlength=size)
        return np.asarray(2 * failed <= np.bincount(arms, minlength=size))

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior of every arm's objective; computed on first use."""
        return (self.cache or IncrementalPosterior(self.problem)).posterior(self.cells, self.outcomes)

    @cached_property
    def leader(self) -> int:
        """The usable arm with the greatest expected objective; the last model's default arm before the first score."""
        default_arm = int(self.problem.default_arms[-1])
        if not len(self.observations) and self.usable[default_arm]:
            return default_arm
        return first_max(self.posterior.mean, self.usable)

    @cached_property
    def recommended(self) -> int:
        """The arm that is reported; see `recommended_arm`. Policies decide by the `leader`."""
        return recommended_arm(self.posterior, self.observations, self.usable)

    @cached_property
    def measured(self) -> Floats:
        """Objective of every arm by its own scores (A,), NaN without any; comparable between `scored` arms."""
        return measured_objectives(self.problem, self.observations)

    @cached_property
    def spendable(self) -> float:
        """What the search may still spend: the remaining budget, less the cost of confirming the leader.

        Nothing is reserved if confirming would take more than `CONFIRM` of the whole budget: the search makes better
        use of it.
        """
        share = CONFIRM * self.budget
        if self.remaining > 2 * share:  # far from the end the leader need not be computed
            return self.remaining - share
        missing = float(self.cost[self.leader, self.problem.in_objective].sum())
        return self.remaining - missing if missing <= share else self.remaining

    @cached_property
    def corrected_cost(self) -> Floats:
        """`cost`, corrected by the measured seconds (A, T)."""
        return np.asarray(self.cost * cost_correction(self.problem, self.finished))

    @cached_property
    def open(self) -> Bools:
        """Cells that may be chosen: not paid for yet, and affordable (A, T)."""
        # sums of costs are exact to rounding only
        return np.asarray(~self.paid & (self.cost <= self.spendable + 1e-9 * self.problem.exhaustive_cost))

    def random(self) -> np.random.Generator:
        """A generator for this decision alone; it is seeded by the search and the number of the decision."""
        return np.random.default_rng(seed_of("bandit", self.seed, len(self.cells)))


def recommended_arm(posterior: Posterior, seen: Observations, usable: Bools) -> int:
    """The arm that a search reports: one rule for every report, so that none contradicts the scores that it shows.

    Of the arms scored on every task of the objective it is the one with the greatest mean by these scores. If there
    are none, it is the arm with a score whose expected objective is the greatest, a usable one if possible. An arm
    without a score is never reported, whatever the posterior expects of it.
    """
    problem = posterior.problem
    is_complete = _all_scored(problem, seen)
    if is_complete.any():
        return first_max(measured_objectives(problem, seen), is_complete)
    has_score = np.isin(np.arange(len(problem.arms)), seen.arm)
    is_candidate = has_score & usable
    return first_max(posterior.mean, is_candidate if is_candidate.any() else has_score)


def _all_scored(problem: Problem, seen: Observations) -> Bools:
    needed = problem.in_objective
    return np.asarray(np.bincount(seen.arm[needed[seen.task]], minlength=len(problem.arms)) == needed.sum())


class Policy(Protocol):
    """A pure function of a `State`; it returns None if no open cell is worth its cost."""

    def __call__(self, state: State, /) -> Choice | None: ...


def ask(policy: Policy, state: State) -> Choice | None:
    """What a policy chooses; a `ConfigError` if it fails or returns something else, since it may be any function."""
    try:
        choice = policy(state)
    except DaskmetricsError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"The policy failed with {type(error).__name__} in {place.filename}, line {place.lineno}. It must be a "
            "function of a State that returns a Choice or None."
        ) from error
    if not isinstance(choice, Choice | None):
        raise ConfigError(f"The policy must return a Choice or None, but returned a {type(choice).__name__}.")
    return choice
