"""The retry policy: what follows a failed attempt, as a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from daskmetrics.core.keys import Key
from daskmetrics.domain.events import AttemptFailed, Event, InputRecovered, UnitsRetried


class Fault(Enum):
    """Why an attempt failed."""

    DEATH = "death"  # the worker died
    EXCEPTION = "exception"
    MEMORY = "memory"
    TIMEOUT = "timeout"
    # the worker cannot write files of the run; the run pauses, and nothing is blamed
    DISK = "disk"
    DAMAGE = "damage"  # of a file of the run itself: the run ends, and nothing is blamed
    PERMANENT = "permanent"  # a retry cannot succeed
    UNDEFINED = "undefined"  # the result is not a number


@dataclass(frozen=True)
class Retry:
    """Try again after ``delay`` seconds."""

    delay: float


@dataclass(frozen=True)
class GiveUp:
    """Record the unit as failed with this status."""

    status: str


@dataclass(frozen=True)
class RetryPolicy:
    """The number of faults after which a unit is given up.

    Attributes
    ----------
    exceptions, deaths, memory, timeouts : int
        Faults of a kind that end a unit. Deaths count only if the unit was alone on the worker;
        their limit is larger, because a worker that is killed from outside looks the same.
    delay, longest_delay : float
        Seconds before the second attempt, doubled for each further one, and their upper limit.

    Examples
    --------
    >>> RetryPolicy(exceptions=2).after(Fault.EXCEPTION, faults=1)
    Retry(delay=0.5)
    >>> RetryPolicy(exceptions=2).after(Fault.EXCEPTION, faults=2)
    GiveUp(status='error')
    """

    exceptions: int = 3
    deaths: int = 6
    memory: int = 2
    timeouts: int = 2
    delay: float = 0.5
    longest_delay: float = 30.0

    def after(self, fault: Fault, faults: int) -> Retry | GiveUp:
        """The decision after the ``faults``-th fault of this kind of one unit."""
        budget, status = {
            Fault.DEATH: (self.deaths, "quarantined"),
            Fault.EXCEPTION: (self.exceptions, "error"),
            Fault.MEMORY: (self.memory, "oom"),
            Fault.TIMEOUT: (self.timeouts, "timeout"),
            Fault.PERMANENT: (1, "error"),
            Fault.UNDEFINED: (1, "nan"),
        }[fault]
        if faults >= budget:
            return GiveUp(status)
        return Retry(self.pause(faults))

    def pause(self, faults: int) -> float:
        """Seconds before the next attempt."""
        return min(self.longest_delay, self.delay * 2.0 ** min(faults - 1, 16))


def faults_so_far(entries: Iterable[Event]) -> dict[Key, tuple[Counter[Fault], int]]:
    """Faults that count, and attempts, of each unit in a journal.

    They are counted since it recovered or was retried.
    """
    faults_of: dict[Key, tuple[Counter[Fault], int]] = {}
    for entry in entries:
        if isinstance(entry, UnitsRetried):  # a retry of failed units is also one of their inputs
            faults_of.clear()
        elif isinstance(entry, InputRecovered):
            faults_of.pop(entry.key, None)
        elif isinstance(entry, AttemptFailed):
            faults, tried = faults_of.get(entry.key, (Counter(), 0))
            faults[Fault(entry.fault)] += entry.blamed
            faults_of[entry.key] = faults, tried + 1
    return faults_of
