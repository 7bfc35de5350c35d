"""What a search has paid, what every cell would cost next, and which workers it assumes busy."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence

import numpy as np

from daskmetrics.bandit.problem import Bools, Floats, Problem
from daskmetrics.core.errors import DataError


class PaidCosts:
    """The cells paid for, and what each other cell would cost.

    The first cell of a (checkpoint, task) pays for its encoding, its other layers for a score only.
    Loading a checkpoint is free if a free worker holds it, or if the embeddings exist.

    >>> from daskmetrics.domain.names import Suite
    >>> from daskmetrics.bandit import arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> one = np.ones((4, 1))
    >>> problem = Problem(suite.arms(), ("t",), arm_features([suite]), 10 * one, one)
    >>> costs = PaidCosts(problem)
    >>> [costs.charge(arm, 0) for arm in range(4)]
    [11.0, 1.0, 11.0, 1.0]
    >>> costs.spent == problem.exhaustive_cost
    True
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._paid = np.zeros(problem.score_cost.shape, dtype=bool)
        self._encoded = np.zeros_like(self._paid)  # per arm, equal for all layers of a checkpoint
        self._cost = problem.encode_cost + problem.score_cost  # of each cell, without loading
        self.spent = 0.0

    @property
    def paid(self) -> Bools:
        """Cells that were charged (A, T)."""
        return self._paid.copy()

    def cost(self, held: Sequence[int] = ()) -> Floats:
        """What each cell would cost next (A, T); 0 for paid cells.

        Loading one of the held checkpoints, those of the free workers, costs nothing.
        """
        problem = self._problem
        if not problem.load_costs.any():
            return self._cost.copy()
        is_held = np.isin(problem.checkpoint_index, held)
        loading = np.where(is_held, 0.0, problem.load_costs)
        needs_model = ~(self._encoded | self._paid)
        return np.asarray(self._cost + loading[:, None] * needs_model)

    def needs_encoding(self, arm: int, task: int) -> bool:
        """Whether the embeddings of a cell do not exist yet."""
        return not self._encoded[arm, task]

    def charge(self, arm: int, task: int, held: Sequence[int] = ()) -> float:
        """Pay for a cell and return its cost.

        Raises
        ------
        DataError
            If it was paid for before.
        """
        problem = self._problem
        if self._paid[arm, task]:
            raise DataError(f"Cell {problem.cell(arm, task)} was already paid for.")
        checkpoint = int(problem.checkpoint_index[arm])
        cost = float(problem.score_cost[arm, task])
        if self.needs_encoding(arm, task):
            cost += float(problem.encode_cost[arm, task])
            if checkpoint not in held:
                cost += float(problem.load_costs[arm])
        self._paid[arm, task] = True
        # where encoding is free, there are no embeddings to share: each score needs the model
        cells = np.flatnonzero(problem.checkpoint_index == checkpoint), task
        self._encoded[cells] = problem.encode_cost[arm, task] > 0
        encoding = np.where(self._encoded[cells], 0.0, problem.encode_cost[cells])
        self._cost[cells] = np.where(self._paid[cells], 0.0, encoding + problem.score_cost[cells])
        self.spent += cost
        return cost


# --- the workers that a search assumes

#: decisions open at once: with more, each knows less, and a budget buys less
#: (docs/figures/search.md)
MOST_OPEN = 32
NO_CHECKPOINT = -1  #: what a worker holds before its first encoding


def useful_workers(policy: str) -> float:
    """Number of workers that a search by this policy can use.

    It is `MOST_OPEN`, or all if the policy does not look at scores.

    >>> useful_workers("race"), useful_workers("sweep")
    (32, inf)
    """
    if policy in ("sweep", "random"):
        return math.inf
    return MOST_OPEN


class AssumedWorkers:
    """The schedule that a search assumes: its workers, their ends, their checkpoints.

    The time at which a real worker becomes free varies from run to run, and decisions must not. So
    a cell is assumed to take as long as it costs. A decision waits for the outcomes that this
    schedule says have arrived, and takes all others as pending, whichever arrives first. If the
    costs are about right, decisions wait little and find the checkpoints that the workers really
    hold.

    >>> workers = AssumedWorkers(2)
    >>> workers.assign(checkpoint=0, cost=5.0), workers.assign(checkpoint=1, cost=1.0)
    (0, 1)
    >>> workers.finished, workers.held  # decision 1 ends first; its worker is then free
    ([1], [1])
    """

    def __init__(self, workers: int) -> None:
        self._holds = [NO_CHECKPOINT] * workers
        self._until = [0.0] * workers
        self._ends: list[tuple[float, int]] = []  # (end, number) of every decision, ascending
        self._clock = 0.0

    @property
    def now(self) -> float:
        """Time of the next decision: when a worker is free."""
        return max(self._clock, min(self._until))

    @property
    def held(self) -> list[int]:
        """Checkpoints of the workers that are free at that time."""
        return [self._holds[worker] for worker in self._free()]

    @property
    def order(self) -> list[int]:
        """All decisions in the order of their ends."""
        return [number for _, number in self._ends]

    @property
    def finished(self) -> list[int]:
        """Decisions that have ended, by their ends; it only grows."""
        return self.order[: self._ended]

    def advance(self) -> bool:
        """Move the clock to the next end; False if none is open."""
        if self._ended == len(self._ends):
            return False
        self._clock, _ = self._ends[self._ended]
        return True

    def assign(self, checkpoint: int, cost: float, loads: bool = True) -> int:
        """Give a decision to a free worker, and return the worker."""
        holds = self._holds
        # one that holds the checkpoint, else one that holds none, else any
        worker = min(
            self._free(), key=lambda w: (holds[w] != checkpoint, holds[w] != NO_CHECKPOINT, w)
        )
        end = self.now + cost
        insort(self._ends, (end, len(self._ends)))
        self._until[worker] = end
        if loads:
            holds[worker] = checkpoint
        return worker

    @property
    def _ended(self) -> int:
        return bisect_right(self._ends, (self.now, math.inf))

    def _free(self) -> list[int]:
        clock = self.now
        return [worker for worker, until in enumerate(self._until) if until <= clock]
