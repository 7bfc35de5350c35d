"""Which rank failed first. The error itself appears on other ranks, which lose a partner or time
out waiting for it.
"""

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
    began: bool = False  # its process has started
    error: str | None = None
    of_partner: bool = False  # the error is one that follows when another rank has failed
    failed: float = 0.0  # time of the error, by the clock of its machine
    permanent: bool = False  # the same error would occur again
    code: int | None = None  # exit code of its process; negative for a signal
    lines: tuple[str, ...] = ()  # that it printed last
    lost: bool = False  # its worker has left the cluster

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended, as far as is known."""
        return self.code is None and not self.lost


@dataclass(frozen=True)
class RankFailure:
    """The rank that failed first, the reason, and whether it would fail again."""

    rank: int
    reason: str
    permanent: bool = False


def first_failure(states: Iterable[RankState], now: float, timeout: float) -> RankFailure | None:
    """The rank that made a process group fail; None while all ranks work.

    In this order: a rank that lost its worker or was killed without a report; a rank that was
    silent when others reported errors, or for ``timeout`` seconds since it began; the rank that
    reported an error of its own, or then any error, first.

    >>> stopped = RankState(rank=1, heard=0.0, step=7)
    >>> timed_out = RankState(rank=0, heard=60.0, step=7, error="timed out", failed=60.0)
    >>> first_failure([timed_out, stopped], now=60.0, timeout=90.0).rank
    1
    """
    states = tuple(states)
    ended = [state for state in states if state.lost or (state.code and state.error is None)]
    if ended:
        failed = min(ended, key=lambda state: (not state.lost, state.heard))
        code = failed.code or 0
        reason = f"its process ended with exit code {code}"
        if code < 0:
            reason = f"its process was ended by signal {-code}"
        if failed.lost:
            reason = "its worker was lost"
        return RankFailure(failed.rank, reason)
    reported = [state for state in states if state.error is not None]
    tolerated = SILENT if reported else timeout
    silent = [
        state
        for state in states
        if state.code is None and state.error is None and now - state.heard > tolerated
        # its worker may still be busy with other work
        if state.began or reported
    ]
    if silent:
        failed = min(silent, key=lambda state: state.heard)
        silence = now - failed.heard
        reason = f"it stopped reporting at step {failed.step}, {silence:.0f} s ago"
        if not failed.began:
            reason = f"it did not start in {silence:.0f} s"
        return RankFailure(failed.rank, reason)
    if reported:
        failed = min(reported, key=lambda state: (state.of_partner, state.failed))
        permanent = any(state.permanent for state in reported)
        return RankFailure(failed.rank, failed.error or "", permanent)
    return None
