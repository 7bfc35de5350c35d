"""The status of a stored value; shared by journal, store and report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from daskmetrics.core.table import Table

__all__ = ["EQUAL", "FLAGS", "Status", "cause"]

EQUAL = 1e-6
"""Vectors are equal if no entry differs by more than this share of the largest; a layer of such has no numbers."""


class Status(IntEnum):
    """Status of a value in the Zarr arrays; a failure has a status and a reason, never a number."""

    MISSING = 0
    OK = 1
    NAN = 2
    OOM = 3
    TIMEOUT = 4
    QUARANTINED = 5
    ERROR = 6
    NOT_APPLICABLE = 7

    @property
    def label(self) -> str:
        """The status in lower case."""
        return self.name.lower()

    @classmethod
    def of(cls, label: str) -> Status:
        """The status with this label.

        Examples
        --------
        >>> Status.of("nan")
        <Status.NAN: 2>
        """
        return cls[label.upper()]


FLAGS = {
    "flag_values": [int(status) for status in Status],
    "flag_meanings": " ".join(status.label for status in Status),
}
"""Attributes that explain the numbers to a reader of the store (CF conventions, section 3.5)."""

NO_REASON = "no reason was recorded"


def cause(reason: str) -> str:
    """A reason without its quoted names, paths, addresses and numbers, so that equal causes give
    equal texts.

    Examples
    --------
    >>> cause("DataError: no 'a/b.txt' in /tmp/x7/y, 3 of 4") == cause("DataError: no 'c.txt' in /tmp/x8/z, 1 of 9")
    True
    """
    return re.sub(r"'[^']*'|\"[^\"]*\"|\w+@\S+|(?<!\w)/\S+|0x[0-9a-f]+|\d+", "#", reason)


@dataclass(frozen=True)
class Failure:
    """Missing values with one reason, and the first of them as an example."""

    kind: str
    status: str
    count: int
    example: str
    reason: str


def grouped(missing: Iterable[tuple[str, str, str, str | None]]) -> tuple[Failure, ...]:
    """Missing values (kind, status, name and reason) by cause, the most frequent first."""
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for kind, status, name, recorded in missing:
        reason = recorded or NO_REASON
        groups.setdefault((kind, status, cause(reason)), []).append((name, reason))
    failures = [
        Failure(kind, status, len(group), *group[0]) for (kind, status, _), group in groups.items()
    ]
    return tuple(sorted(failures, key=lambda failure: -failure.count))


def failures_table(failures: Iterable[Failure]) -> Table:
    """A row for each cause."""
    rows = [
        (f"{failure.count:,}", failure.kind, failure.status, failure.reason, failure.example)
        for failure in failures
    ]
    return Table(("count", "what", "status", "reason", "first"), tuple(rows))
