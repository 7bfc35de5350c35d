"""The trivial source: a fixed set of units, each asked for once, as soon as what it requires is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from daskmetrics.arms import Key
from daskmetrics.execution.units import Record, WorkUnit


class Sweep:
    """Asks for every unit once, in the given order as far as their requirements allow.

    A unit whose requirement failed is not asked for; it is listed by `blocked`.

    Examples
    --------
    >>> first = WorkUnit("a", "first", "demo", print)
    >>> second = WorkUnit("b", "second", "demo", print, requires=("a",))
    >>> sweep = Sweep([second, first])
    >>> [unit.name for unit in sweep.ask(2)]
    ['first']
    >>> sweep.tell(Record("a", "first", "demo", "ok"))
    >>> [unit.name for unit in sweep.ask(2)]
    ['second']
    """

    def __init__(self, units: Iterable[WorkUnit]) -> None:
        self._open: dict[Key, WorkUnit] = {unit.key: unit for unit in units}
        self._records: dict[Key, Record] = {}

    def ask(self, n: int) -> Sequence[WorkUnit]:
        ready = [unit for unit in self._open.values() if all(self._succeeded(key) for key in unit.requires)][:n]
        for unit in ready:
            del self._open[unit.key]
        return ready

    def tell(self, record: Record) -> None:
        self._records[record.key] = record

    def blocked(self) -> list[WorkUnit]:
        """Units that were never asked for, since a unit that they require failed."""
        return list(self._open.values())

    def _succeeded(self, key: Key) -> bool:
        return key in self._records and self._records[key].ok
