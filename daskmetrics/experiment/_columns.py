"""Metrics of one checkpoint, column by column, so that a unit computes only those that are not recorded yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from daskmetrics.core.names import Key
from daskmetrics.execution import Record

Reason = tuple[int, str, str]


@dataclass(frozen=True)
class Column:
    """One metric at all layers of a checkpoint, as plain JSON values; None for an undefined number."""

    name: str
    values: tuple[float | None, ...]
    stderr: tuple[float | None, ...]
    status: tuple[int, ...]
    reasons: tuple[Reason, ...]


def columns_of(value: Mapping[str, Any]) -> dict[Key, Column]:
    """The columns of a recorded value, by metric key.

    Examples
    --------
    >>> parts = {"values": [[0.5]], "stderr": [[None]], "status": [[1]], "reasons": []}
    >>> columns_of({"names": ["a"], "metrics": ["k"], **parts})["k"].values
    (0.5,)
    """
    columns = {}
    for i, (key, name) in enumerate(zip(value["metrics"], value["names"], strict=True)):
        values, stderr, status = (tuple(row[i] for row in value[part]) for part in ("values", "stderr", "status"))
        reasons = tuple((layer, metric, reason) for layer, metric, reason in value["reasons"] if metric == name)
        columns[key] = Column(name, values, stderr, status, reasons)
    return columns


def value_of(columns: Mapping[Key, Column]) -> dict[str, Any]:
    """The inverse of `columns_of`; columns keep their order."""
    parts = {
        part: [list(row) for row in zip(*(getattr(column, part) for column in columns.values()), strict=True)]
        for part in ("values", "stderr", "status")
    }
    reasons = sorted(reason for column in columns.values() for reason in column.reasons)
    names = [column.name for column in columns.values()]
    return {"names": names, "metrics": list(columns), **parts, "reasons": [list(reason) for reason in reasons]}


def known_columns(records: Iterable[Record]) -> dict[Key, dict[Key, Column]]:
    """All recorded columns, by the key of the states from which they were computed."""
    known: dict[Key, dict[Key, Column]] = {}
    for record in records:
        if record.kind == "measure" and record.ok and "states" in (record.value or {}):  # older records name none
            columns = known.setdefault(record.value["states"], {})
            columns.update({key: column for key, column in columns_of(record.value).items() if key not in columns})
    return known
