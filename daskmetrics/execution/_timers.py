"""Times that the loop watches: the deadlines of running attempts, and how long no unit can run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from daskmetrics.core.errors import ClusterLostError
from daskmetrics.execution._messages import Notice, TaskId
from daskmetrics.execution._placement import QueuedUnit

REPORT_IDLE_AFTER = 10.0  # seconds without a worker before the user gets a message


class AttemptTimers:
    """When the driver stops waiting for each running attempt, the earliest first.

    Parameters
    ----------
    grace : float
        Seconds after the deadline of an attempt.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._heap: list[tuple[float, int, QueuedUnit]] = []  # an attempt that ended stays until its time
        self._numbers = count()

    @property
    def next(self) -> float:
        """A time before which no attempt is late."""
        return self._heap[0][0] if self._heap else math.inf

    def start(self, item: QueuedUnit) -> None:
        """Watch an attempt that began."""
        if item.deadline < math.inf:
            heappush(self._heap, (item.deadline + self._grace, next(self._numbers), item))

    def late(self, now: float) -> dict[str, list[TaskId]]:
        """The attempts that are late and were not named before, by the address of their worker."""
        late = defaultdict[str, list[TaskId]](list)
        while self.next <= now:
            until, _, item = heappop(self._heap)
            if item.task and item.worker and item.deadline + self._grace == until:
                late[item.worker].append(item.task)
        return late


class Patience:
    """How long no unit may run because no worker can take one.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._reported = False

    def watch(self, now: float, stuck: bool, why: Callable[[], str]) -> list[Notice]:
        """Notices for the user; raises ClusterLostError at the end of the time."""
        if not stuck:
            self._since, self._reported = None, False
            return []
        self._since = now if self._since is None else self._since
        idle = now - self._since
        if idle >= self._seconds:
            raise ClusterLostError(f"{why()} No recorded result is lost: run the same command to resume.")
        if idle < REPORT_IDLE_AFTER or self._reported:
            return []
        self._reported = True
        return [Notice(f"{why()} Waiting for {self._seconds:.0f} s.")]
