"""What a check says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from daskmetrics.planning.doctor._facts import Facts


class Verdict(Enum):
    """How bad it is."""

    GOOD = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True)
class Finding:
    """What was found, and what to do about it."""

    verdict: Verdict
    said: str
    remedy: str = ""


Check = Callable[[Facts], Finding | None]
"""None where it does not apply, or nothing is known of it."""


def good(said: str) -> Finding:
    """Nothing to do."""
    return Finding(Verdict.GOOD, said)


def warning(said: str, remedy: str) -> Finding:
    """It works, but not as well as it could, or it may stop to."""
    return Finding(Verdict.WARNING, said, remedy)


def failure(said: str, remedy: str) -> Finding:
    """It will not work."""
    return Finding(Verdict.FAILURE, said, remedy)
