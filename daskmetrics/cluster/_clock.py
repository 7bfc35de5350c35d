"""How far the clock of a worker's machine is from that of this one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

TOLERATED = 5.0  # seconds; certificates allow a day, but times of files and logs would mislead


@dataclass(frozen=True)
class ClockOffset:
    """Seconds by which another clock is ahead of this one, and the largest error of this number."""

    seconds: float
    error: float

    @property
    def problem(self) -> str | None:
        """What is wrong, or None if the clocks agree within what could be measured.

        >>> ClockOffset(-1800.0, 0.1).problem
        "its clock is 1800 s behind this machine's"
        >>> ClockOffset(6.0, 2.0).problem
        """
        if abs(self.seconds) - self.error <= TOLERATED:
            return None
        return f"its clock is {abs(self.seconds):.0f} s {'ahead of' if self.seconds > 0 else 'behind'} this machine's"


def compare_clocks(ask: Callable[[], float], clock: Callable[[], float] = time.time) -> ClockOffset:
    """The offset of the clock that ``ask`` reads, from the better of two answers.

    >>> times = iter([100.0, 104.0, 110.0, 111.0])
    >>> compare_clocks(lambda: 130.0, lambda: next(times))
    ClockOffset(seconds=19.5, error=0.5)
    """
    offsets = []
    for _ in range(2):  # the first may have to connect
        sent, theirs, received = clock(), ask(), clock()
        offsets.append(ClockOffset(theirs - (sent + received) / 2, (received - sent) / 2))
    return min(offsets, key=lambda offset: offset.error)
