"""Failures grouped by their causes, and the table of them that every view shows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from daskmetrics.core.table import Table

NO_REASON = "no reason was recorded"


def cause(reason: str) -> str:
    """A reason without its names, paths and numbers, equal for equal causes.

    Examples
    --------
    >>> cause("DataError: no 'a/b.txt' in /tmp/x7/y, 3 of 4") == cause("DataError: no 'c.txt' in /tmp/x8/z, 1 of 9")
    True
    """
    return re.sub(r"'[^']*'|\"[^\"]*\"|\w+@\S+|(?<!\w)/\S+|0x[0-9a-f]+|\d+", "#", reason)


@dataclass(frozen=True)
class Failure:
    """Missing values with one reason, and the first as an example."""

    kind: str
    status: str
    count: int
    example: str
    reason: str


def grouped(missing: Iterable[tuple[str, str, str, str | None]]) -> tuple[Failure, ...]:
    """Missing values by cause, the most frequent first.

    Each is kind, status, name and reason.
    """
    groups = defaultdict[tuple[str, str, str], list[tuple[str, str]]](list)
    for kind, status, name, recorded in missing:
        reason = recorded or NO_REASON
        groups[kind, status, cause(reason)].append((name, reason))
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
    return Table(("count", "what", "status", "reason", "first"), rows)
