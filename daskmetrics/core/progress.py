"""How far a long call is: reported where the work is done, heard by who waits for it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_LISTENER = ContextVar[Callable[[float], object]]("listener", default=lambda part: None)


def tell(part: float) -> None:
    """Say that a further part of the call is done; all parts together are 1.

    >>> with heard(print), share(0.5):
    ...     tell(0.2)
    0.1
    """
    _LISTENER.get()(part)


@contextmanager
def heard(listener: Callable[[float], object]) -> Iterator[None]:
    """Call a function with what is reported within the block, in this thread."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def share(of_call: float) -> Iterator[None]:
    """Let what is reported within the block be this share of the call."""
    whole = _LISTENER.get()
    with heard(lambda part: whole(part * of_call)):
        yield


class TimeLeft:
    """The time that is left, from assumed costs of several kinds of work and what they took.

    Parameters
    ----------
    costs : mapping
        Assumed seconds of each kind in all; their ratios are corrected by what is measured.

    Examples
    --------
    >>> pace = TimeLeft({"read": 11.0, "score": 2.0}, clock=iter([9.0, 14.0, 29.0, 33.0]).__next__)
    >>> pace.did("read", 1.0)  # the clock begins with the first work
    >>> pace.did("read", 2.5)
    >>> pace.left  # twice as long as assumed
    19.0
    >>> pace.did("read", 7.5)
    >>> pace.did("score", 1.0)
    >>> pace.left, pace.elapsed
    (4.0, 24.0)
    """

    def __init__(
        self, costs: Mapping[str, float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._costs = dict(costs)
        self._clock = clock
        self._latest: float | None = None
        self._done: defaultdict[str, float] = defaultdict(float)
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def did(self, kind: str, cost: float) -> None:
        """Count work of an assumed cost, which took the time since the latest.

        The time before the first is that of starting and loading, and does not count.
        """
        if not cost:
            return
        now = self._clock()
        if self._latest is None:
            self._costs[kind] -= cost
        else:
            self._done[kind] += cost
            self._seconds[kind] += now - self._latest
        self._latest = now

    @property
    def left(self) -> float:
        """Seconds that the rest will take."""
        slowness = self.elapsed / (sum(self._done.values()) or 1.0)
        left = 0.0
        for kind, cost in self._costs.items():
            done = self._done[kind]
            pace = self._seconds[kind] / done if done else slowness
            left += max(0.0, cost - done) * pace
        return left

    @property
    def elapsed(self) -> float:
        """Seconds that the counted work took."""
        return sum(self._seconds.values())
