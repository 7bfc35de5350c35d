"""The record of a work unit."""

from __future__ import annotations

from dataclasses import dataclass

from daskmetrics.core.keys import Key


@dataclass(frozen=True)
class Record:
    """What the journal holds of a finished or failed work unit.

    The value of a unit that knows metrics, tasks or items is one of `domain.results`; other units
    give any value of JSON. A unit without a value has a `status` other than ``ok`` and a `reason`;
    it is never a number.
    `seconds` is the time of the last attempt on its worker, without that of its input; `at` is the
    driver's clock when the record was written, in seconds since 1970.
    """

    key: Key
    name: str
    kind: str
    status: str
    value: object = None
    reason: str | None = None
    attempts: int = 1
    seconds: float = 0.0
    worker: str | None = None
    at: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status == "ok"
