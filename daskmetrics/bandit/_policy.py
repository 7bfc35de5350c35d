"""What a policy sees and answers: a pure choice, so that a search can be rebuilt from its journal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from daskmetrics.bandit._costs import correction
from daskmetrics.bandit._memory import Memory
from daskmetrics.bandit._observations import Answers, Book
from daskmetrics.bandit._posterior import Posterior, first_max
from daskmetrics.bandit._problem import Bools, Floats, Ints, Observations, Outcome, Problem
from daskmetrics.core.names import seed_of

CONFIRM = 0.1  #: share of the budget that may be kept back for measuring the leader on all tasks

Why = Mapping[str, float | str]


@dataclass(frozen=True)
class Choice:
    """The cell that a policy wants next, by its indices, and the reason in a few numbers or words."""

    arm: int
    task: int
    why: Why = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class State:
    """All that decision number ``len(cells)`` may depend on.

    Attributes
    ----------
    problem : Problem
    cells : sequence of (arm, task)
        Indices of the cells asked for so far, in the order of the decisions.
    outcomes : sequence of Outcome
        Of the first of these cells; the others are pending.
    paid : ndarray (A, T)
        The same cells as a mask, whatever became of them: they are never asked for again.
    cost : ndarray (A, T)
        What a cell would cost next, shared encodings taken into account.
    rest : float
        The part of the budget that is not spent; infinite where the budget pays for every cell.
    seed : int
        Of the search.
    budget : float
        The whole of it; infinite where it pays for every cell.
    memory : Memory or None
        What makes `belief` and `answers` quick, and no other.
    """

    problem: Problem
    cells: Sequence[tuple[int, int]]
    outcomes: Sequence[Outcome]
    paid: Bools
    cost: Floats
    rest: float
    seed: int
    budget: float = math.inf
    memory: Memory | None = None

    @cached_property
    def seen(self) -> Observations:
        """The scores that are known, sorted by cell."""
        return self.answers.scores.by_cell()

    @cached_property
    def answers(self) -> Answers:
        """The outcomes with their cells, in order."""
        return (self.memory or Book()).answers(self.cells, self.outcomes)

    @cached_property
    def pending(self) -> Observations:
        """The cells whose outcome is to come, sorted; their scores are not to be read."""
        return Observations.of((*cell, 0.0, 0.0) for cell in self.cells[len(self.outcomes) :])

    @property
    def settled(self) -> Bools:
        """Arms all of whose cells that count are answered (A,)."""
        answered = np.zeros_like(self.paid)
        answered[self.answers.arm, self.answers.task] = True
        return np.asarray((answered | ~self.problem.wanted).all(axis=1))

    @property
    def usable(self) -> Bools:
        """Arms that did not fail more often than they gave a score (A,): others are not worth recommending."""
        answered, failed = self._answers
        return np.asarray(2 * failed <= answered)

    @cached_property
    def belief(self) -> Posterior:
        """The posterior of every arm; computed only if someone looks at it."""
        return (self.memory or Memory(self.problem)).posterior(self.cells, self.outcomes)

    @cached_property
    def leader(self) -> int:
        """The usable arm with the greatest expected objective; the default arm while nothing is known."""
        if not len(self.seen) and self.usable[self.problem.default_arm]:
            return self.problem.default_arm
        return first_max(self.belief.mean, self.usable)

    @cached_property
    def left(self) -> float:
        """What the search may still spend: the rest of the budget, less what confirming the leader will cost.

        Nothing is kept back where confirming would take more than `CONFIRM` of the whole budget: the search can make
        better use of it.
        """
        share = CONFIRM * self.budget
        if self.rest > 2 * share:  # far from the end it need not be known who leads
            return self.rest - share
        missing = float(self.cost[self.leader, self.problem.wanted].sum())
        return self.rest - missing if missing <= share else self.rest

    @cached_property
    def price(self) -> Floats:
        """What a cell would cost next by all that was told (A, T): `cost`, corrected by measured seconds."""
        return np.asarray(self.cost * correction(self.problem, self.answers))

    @cached_property
    def open(self) -> Bools:
        """Cells that may be chosen: not paid for yet, and affordable (A, T)."""
        # sums of costs are exact to rounding only
        return np.asarray(~self.paid & (self.cost <= self.left + 1e-9 * self.problem.exhaustive_cost))

    def random(self) -> np.random.Generator:
        """A generator of this decision's own: no generator is shared between two decisions."""
        return np.random.default_rng(seed_of("bandit", self.seed, len(self.cells)))

    @cached_property
    def _answers(self) -> tuple[Ints, Ints]:
        """How many of an arm's cells are answered, and how many of these failed (A,)."""
        arms, size = self.answers.arm, len(self.problem.arms)
        return np.bincount(arms, minlength=size), np.bincount(arms[self.answers.failed], minlength=size)


class Policy(Protocol):
    """A pure function of a `State`; None when nothing open is worth its cost."""

    def __call__(self, state: State, /) -> Choice | None: ...
