"""Workers as a search assumes them to be: who is busy until when, and who holds which checkpoint.

When a real worker is free depends on the hour, and a decision must not. A cell is assumed to take as long as it costs;
what would be over by the time of a decision is waited for, and what would not is taken as pending, whichever arrives
first. Where the costs are about right, decisions wait for little, and find workers with the checkpoints they hold.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort

NOTHING = -1  #: the checkpoint of a worker that has loaded none


class Fleet:
    """The assumed workers of one search.

    Examples
    --------
    >>> fleet = Fleet(2)
    >>> fleet.give(checkpoint=0, cost=5.0), fleet.give(checkpoint=1, cost=1.0)
    (0, 1)
    >>> fleet.over, fleet.held  # decision 1 ends first, and a worker with checkpoint 1 is free then
    ([1], [1])
    """

    def __init__(self, workers: int) -> None:
        self._holds = [NOTHING] * workers
        self._until = [0.0] * workers
        self._worker: list[int] = []  # of every decision
        self._ends: list[tuple[float, int]] = []  # of every decision, with its number, ascending
        self._over: list[int] = []
        self._clock = 0.0

    @property
    def now(self) -> float:
        """When the next decision is taken: as soon as a worker is free."""
        return max(self._clock, min(self._until))

    @property
    def held(self) -> list[int]:
        """Checkpoints of the workers that are free then."""
        return [self._holds[worker] for worker in self._free()]

    @property
    def order(self) -> list[int]:
        """All decisions in the order of their ends."""
        return [number for _, number in self._ends]

    @property
    def over(self) -> list[int]:
        """Those that have ended by now, in the order of their ends: no later decision will come between them."""
        last = bisect_right(self._ends, (self.now, math.inf))
        self._over += [number for _, number in self._ends[len(self._over) : last]]
        return self._over[:last]

    def wait(self) -> bool:
        """Let time pass until one more decision has ended; False if none is open."""
        later = bisect_right(self._ends, (self.now, math.inf))
        if later == len(self._ends):
            return False
        self._clock = self._ends[later][0]
        return True

    def give(self, checkpoint: int, cost: float, loads: bool = True) -> int:
        """A free worker takes on a decision, if possible one that holds the checkpoint; else one that holds none."""
        holds = self._holds
        worker = min(self._free(), key=lambda w: (holds[w] != checkpoint, holds[w] != NOTHING, w))
        end = self.now + cost
        insort(self._ends, (end, len(self._worker)))
        self._worker.append(worker)
        self._until[worker] = end
        if loads:
            holds[worker] = checkpoint
        return worker

    def free(self, number: int) -> None:
        """A decision has really ended, whenever it was assumed to."""
        self._until[self._worker[number]] = -math.inf

    def _free(self) -> list[int]:
        now = self.now
        return [worker for worker, until in enumerate(self._until) if until <= now]
