"""The retry policy: what follows a failed attempt, as a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from daskmetrics.core._events import AttemptFailed, Event, InputRecovered, UnitsRetried
from daskmetrics.core.names import Key


class Fault(Enum):
    """Why an attempt failed."""

    DEATH = "death"  # the worker died
    EXCEPTION = "exception"
    MEMORY = "memory"
    TIMEOUT = "timeout"
    DISK = "disk"  # the disk of the worker is full; the run pauses, and nothing is blamed
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
    """The number of faults of each kind after which a unit is given up.

    Attributes
    ----------
    exceptions, deaths, memory, timeouts : int
        Faults of a kind that end a unit. Deaths count only if the unit was alone on the worker; their limit is larger,
        because a worker that is killed from outside looks the same.
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
        return Retry(min(self.longest_delay, self.delay * 2 ** min(faults - 1, 16)))


def faults_so_far(entries: Iterable[Event]) -> dict[Key, tuple[Counter[Fault], int]]:
    """Faults that count and number of attempts of each unit in a journal, since it recovered or was retried."""
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


@dataclass(frozen=True)
class Settings:
    """Settings of `run`; all times in seconds.

    Attributes
    ----------
    slots : int or None
        Most units in flight; None for one per thread of the workers, and `ahead` more per worker.
    retry : RetryPolicy
    spare_inputs : int
        Shared inputs that stay on the workers although no unit in flight needs them.
    ahead : int
        Units that may wait on a worker behind the running ones, so that it is not idle while the driver decides.
    grace : float
        How long after a deadline the driver waits for the timer of the worker before it kills the worker: a stopped
        process has no timer.
    margin : float
        A unit starts on a worker with a walltime only if ``margin`` times the longest unit of its kind still fits.
    patience : float
        How long no unit may run because no worker can take one, before `run` raises an error.
    pause : float
        Pause after a full disk.
    stop_grace : float
        How long running units may continue after SIGTERM or SIGHUP. The first Ctrl-C at a terminal waits for all.
    scratch : Path or None
        A folder that driver and workers share, for tracebacks of stopped units; None for one beside the journal.
    most_memory : float
        Bytes that a worker can have in this run. A unit that was killed for memory on one with less waits for more.
    alone : bool
        Whether a worker that was started without our resources runs one unit at a time, however many threads it has.
    commit_every : int
        Results after which the driver waits until they are on disk. A killed driver loses none of them; a power failure
        can lose fewer than this.
    """

    slots: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    spare_inputs: int = 4
    ahead: int = 1
    grace: float = 5.0
    margin: float = 1.5
    patience: float = 600.0
    pause: float = 5.0
    stop_grace: float = 2.0
    scratch: Path | None = None
    alone: bool = False
    most_memory: float = 0.0
    commit_every: int = 1
