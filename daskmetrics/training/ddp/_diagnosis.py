"""Which rank failed first. The error itself appears on innocent ranks, which lose a partner or wait for it in vain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

SILENT = 5.0  # seconds; a living rank says something twice a second


@dataclass(frozen=True)
class Sign:
    """What was heard of a rank.

    Attributes
    ----------
    rank : int
    heard : float
        When it was last heard of.
    step, phase : int
        Where it was then; phase 0 computes, 1 waits for the others.
    error : str or None
        What it said that it failed of.
    failed : float
        When it failed, by the clock of its machine.
    permanent : bool
        Whether it would fail so again.
    code : int or None
        With which its process ended; negative for a signal.
    lost : bool
        Whether its worker is gone.
    """

    rank: int
    heard: float
    step: int = 0
    phase: int = 0
    error: str | None = None
    failed: float = 0.0
    permanent: bool = False
    code: int | None = None
    lost: bool = False

    @property
    def is_done(self) -> bool:
        return self.code == 0

    @property
    def is_broken(self) -> bool:
        """Whether it will take no further step."""
        return self.lost or self.error is not None or (self.code or 0) != 0

    def with_news(self, now: float, **news: object) -> Sign:
        return replace(self, heard=now, **news)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Blame:
    """The rank that failed first, why, and whether it would again."""

    rank: int
    reason: str
    permanent: bool = False


def blame(signs: Iterable[Sign], now: float, timeout: float) -> Blame | None:
    """Whom a gang failed of; None while nothing is wrong.

    Parameters
    ----------
    signs : iterable of Sign
    now : float
    timeout : float
        Seconds of silence after which a rank is given up although nobody complains.

    Notes
    -----
    In this order: who was lost with its worker or killed without a word; who had fallen silent when others complained;
    who complained at the earliest step and phase, and then first.

    Examples
    --------
    >>> stopped = Sign(rank=1, heard=0.0, step=7)
    >>> complains = Sign(rank=0, heard=60.0, step=7, phase=1, error="timed out", failed=60.0)
    >>> blame([complains, stopped], now=60.0, timeout=90.0).rank
    1
    """
    signs = tuple(signs)
    silent = [s for s in signs if s.code is None and not s.is_broken and now - s.heard > SILENT]
    if not any(s.is_broken for s in signs):
        silent = [s for s in silent if now - s.heard > timeout]
    ended = [s for s in signs if s.lost or (s.error is None and (s.code or 0) != 0)]
    complaints = [s for s in signs if s.error is not None]
    if ended:
        first = min(ended, key=lambda s: (not s.lost, s.heard))
        return Blame(first.rank, "its worker was lost" if first.lost else _ending(first.code or 0))
    if silent:
        first = min(silent, key=lambda s: s.heard)
        return Blame(first.rank, f"it fell silent at step {first.step}, {now - first.heard:.0f} s ago")
    if complaints:
        first = min(complaints, key=lambda s: (s.step, s.phase, s.failed))
        return Blame(first.rank, first.error or "", any(s.permanent for s in complaints))
    return None


def _ending(code: int) -> str:
    return f"its process was ended by signal {-code}" if code < 0 else f"its process ended with exit code {code}"
