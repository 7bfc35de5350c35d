"""Which rank failed first. The error itself appears on other ranks, which lose a partner or time out waiting for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SILENT = 5.0  # seconds; a living rank reports twice a second


@dataclass(frozen=True)
class RankState:
    """What is known of a rank from its reports."""

    rank: int
    heard: float  # time of its last report
    step: int = 0
    phase: int = 0  # 0 computes, 1 waits for the other ranks
    error: str | None = None
    failed: float = 0.0  # time of the error, by the clock of its machine
    permanent: bool = False  # the same error would occur again
    code: int | None = None  # exit code of its process; negative for a signal
    lost: bool = False  # its worker has left the cluster

    @property
    def is_done(self) -> bool:
        return self.code == 0

    @property
    def is_broken(self) -> bool:
        """Whether it will take no further step."""
        return self.lost or self.error is not None or (self.code or 0) != 0


@dataclass(frozen=True)
class RankFailure:
    """The rank that failed first, the reason, and whether it would fail again."""

    rank: int
    reason: str
    permanent: bool = False


def first_failure(states: Iterable[RankState], now: float, timeout: float) -> RankFailure | None:
    """The rank that made a process group fail; None while all ranks work.

    In this order: a rank that lost its worker or was killed without a report; a rank that was silent when others
    reported errors, or for ``timeout`` seconds; the rank that reported an error at the earliest step and phase, and
    then first.

    >>> stopped = RankState(rank=1, heard=0.0, step=7)
    >>> timed_out = RankState(rank=0, heard=60.0, step=7, phase=1, error="timed out", failed=60.0)
    >>> first_failure([timed_out, stopped], now=60.0, timeout=90.0).rank
    1
    """
    states = tuple(states)
    silent = [s for s in states if s.code is None and not s.is_broken and now - s.heard > SILENT]
    if not any(s.is_broken for s in states):
        silent = [s for s in silent if now - s.heard > timeout]
    ended = [s for s in states if s.lost or (s.error is None and (s.code or 0) != 0)]
    reported = [s for s in states if s.error is not None]
    if ended:
        first = min(ended, key=lambda s: (not s.lost, s.heard))
        code = first.code or 0
        ended_by = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return RankFailure(first.rank, "its worker was lost" if first.lost else f"its process {ended_by}")
    if silent:
        first = min(silent, key=lambda s: s.heard)
        return RankFailure(first.rank, f"it stopped reporting at step {first.step}, {now - first.heard:.0f} s ago")
    if reported:
        first = min(reported, key=lambda s: (s.step, s.phase, s.failed))
        return RankFailure(first.rank, first.error or "", any(s.permanent for s in reported))
    return None
