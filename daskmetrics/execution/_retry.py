"""What to do after a failed attempt: a decision as a value."""

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

    DEATH = "death"  # the worker went away
    EXCEPTION = "exception"
    MEMORY = "memory"
    TIMEOUT = "timeout"
    DISK = "disk"  # the worker found no room; the run pauses, and nobody is to blame
    PERMANENT = "permanent"  # trying again cannot help
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
    """Own budgets for each kind of fault: a unit is not blamed for the deaths of its workers as for its own errors.

    Attributes
    ----------
    exceptions, deaths, memory, timeouts : int
        So many faults of a kind end a unit. Deaths count only where the unit was alone on the worker, and they have
        more room than the others: a kill from outside looks the same.
    delay, longest_delay : float
        Seconds before the second attempt, doubled for each further one, and the most that is waited.

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
    """Of each unit in a journal the faults that count and the attempts, since it healed or was given another chance."""
    found: dict[Key, tuple[Counter[Fault], int]] = {}
    for entry in entries:
        if isinstance(entry, UnitsRetried):  # a new chance for failed units is one for their inputs
            found.clear()
        elif isinstance(entry, InputRecovered):
            found.pop(entry.key, None)
        elif isinstance(entry, AttemptFailed):
            faults, tried = found.get(entry.key, (Counter(), 0))
            faults[Fault(entry.fault)] += entry.blamed
            found[entry.key] = faults, tried + 1
    return found


@dataclass(frozen=True)
class Settings:
    """How `run` treats the cluster; all times in seconds.

    Attributes
    ----------
    slots : int or None
        Units in flight at most; None as many as the workers have threads, and `ahead` more for each worker.
    retry : RetryPolicy
    spare_inputs : int
        Shared inputs kept on the workers although no unit in flight needs them.
    ahead : int
        Units that may wait on a worker behind the running ones, so that it does not idle while the driver thinks.
    grace : float
        How long after a unit's deadline the driver waits for the worker's own timer before it has the worker killed,
        as a stopped process has no timer.
    margin : float
        A unit is begun on a worker with an end only if ``margin`` times the longest unit of its kind still fits.
    patience : float
        How long nothing may be running, for want of a worker that could take what is waiting.
    pause : float
        How long a full disk is given before the next try.
    stop_grace : float
        How long SIGTERM and SIGHUP let running units finish. The first Ctrl-C at a terminal waits for all of them.
    scratch : Path or None
        A folder that driver and workers see, for the tracebacks of stopped units; None beside the journal.
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
