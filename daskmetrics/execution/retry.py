"""What to do after a failed attempt: a decision as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """Why an attempt failed."""

    DEATH = "death"  # the worker went away
    EXCEPTION = "exception"
    MEMORY = "memory"
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
    delay: float = 0.5
    longest_delay: float = 30.0

    def after(self, fault: Fault, faults: int) -> Retry | GiveUp:
        """The decision after the ``faults``-th fault of this kind of one unit."""
        budget, status = {
            Fault.DEATH: (self.deaths, "quarantined"),
            Fault.EXCEPTION: (self.exceptions, "error"),
            Fault.MEMORY: (self.memory, "oom"),
            Fault.PERMANENT: (1, "error"),
            Fault.UNDEFINED: (1, "nan"),
        }[fault]
        if faults >= budget:
            return GiveUp(status)
        return Retry(min(self.longest_delay, self.delay * 2 ** (faults - 1)))
