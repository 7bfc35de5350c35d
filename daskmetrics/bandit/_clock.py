"""The schedule that a search assumes: which worker is busy until when, and which checkpoint it holds.

The time at which a real worker becomes free varies from run to run, and decisions must not. So a cell is assumed to
take as long as it costs. A decision waits for the outcomes that this schedule says have arrived, and takes all others
as pending, whichever arrives first. If the costs are about right, decisions wait little and find the checkpoints that
the workers really hold.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort

MOST_OPEN = 32  #: decisions open at once: with more, each knows less, and a budget buys less (docs/figures/search.md)
NO_CHECKPOINT = -1  #: what a worker holds before its first encoding


def useful_workers(policy: str) -> float:
    """Workers that a search by this policy can use: `MOST_OPEN`, or all if it does not look at scores.

    >>> useful_workers("race"), useful_workers("sweep")
    (32, inf)
    """
    return math.inf if policy in ("sweep", "random") else MOST_OPEN


class AssumedWorkers:
    """The assumed workers of one search.

    >>> workers = AssumedWorkers(2)
    >>> workers.assign(checkpoint=0, cost=5.0), workers.assign(checkpoint=1, cost=1.0)
    (0, 1)
    >>> workers.finished, workers.held  # decision 1 ends first; its worker is then free and holds checkpoint 1
    ([1], [1])
    """

    def __init__(self, workers: int) -> None:
        self._holds = [NO_CHECKPOINT] * workers
        self._until = [0.0] * workers
        self._worker: list[int] = []  # of every decision
        self._ends: list[tuple[float, int]] = []  # (end, number) of every decision, ascending
        self._finished: list[int] = []
        self._clock = 0.0

    @property
    def now(self) -> float:
        """Time of the next decision: as soon as a worker is free."""
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
        """Decisions that have ended, in the order of their ends; later decisions are only appended."""
        last = bisect_right(self._ends, (self.now, math.inf))
        self._finished += [number for _, number in self._ends[len(self._finished) : last]]
        return self._finished[:last]

    def advance(self) -> bool:
        """Move the clock to the end of the next open decision; return False if none is open."""
        later = bisect_right(self._ends, (self.now, math.inf))
        if later == len(self._ends):
            return False
        self._clock = self._ends[later][0]
        return True

    def assign(self, checkpoint: int, cost: float, loads: bool = True) -> int:
        """Give a decision to a free worker: one that holds the checkpoint, else one that holds none, else any."""
        holds = self._holds
        worker = min(self._free(), key=lambda w: (holds[w] != checkpoint, holds[w] != NO_CHECKPOINT, w))
        end = self.now + cost
        insort(self._ends, (end, len(self._worker)))
        self._worker.append(worker)
        self._until[worker] = end
        if loads:
            holds[worker] = checkpoint
        return worker

    def release(self, number: int) -> None:
        """End a decision now, whatever its assumed end."""
        self._until[self._worker[number]] = -math.inf

    def _free(self) -> list[int]:
        now = self.now
        return [worker for worker, until in enumerate(self._until) if until <= now]
