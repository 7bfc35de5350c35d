"""Work units, and the protocols of the source that asks for them and of the log that keeps their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from daskmetrics.core._events import Event, Record
from daskmetrics.core.names import Key


@dataclass(frozen=True)
class WorkUnit:
    """One call that Dask runs for us.

    Attributes
    ----------
    key : str
        Names the content: equal keys mean equal results, so a recorded key is never run again.
    name, kind : str
        For people: ``tiny@step8/3:stdlib:order`` is a ``score``.
    function : callable
        Importable on the workers; returns JSON values (an `input` may return anything).
    args : tuple
        Its arguments, after the result of `input` if there is one.
    resources : mapping
        What it occupies of a worker, for instance ``{"GPU": 1}``.
    requires : tuple of str
        Keys of units whose success must be recorded first.
    input : WorkUnit or None
        A unit whose result is the first argument. It runs once for all units that share it, near them, and is not
        recorded: it can always be computed again.
    note : mapping
        Why it was asked for; kept in the journal.
    timeout : float or None
        Seconds after which an attempt is stopped; None never.
    keeps : str or None
        What a worker has at hand once it ran such a unit, a loaded checkpoint say: the next one that keeps the same
        goes there if it can begin at once.
    """

    key: Key
    name: str
    kind: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)
    requires: tuple[Key, ...] = ()
    input: WorkUnit | None = None
    note: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    keeps: str | None = None


class Source(Protocol):
    """Where work comes from. It knows what is wanted next, and nothing of Dask."""

    def ask(self, n: int) -> Sequence[WorkUnit]:
        """At most ``n`` units to run now. None now, with nothing running, means the source is exhausted."""

    def tell(self, record: Record) -> None:
        """Take in the result of a unit that was asked for: computed now, or known from before an interruption."""


class EventLog(Protocol):
    """The part of a journal that the loop uses."""

    @property
    def entries(self) -> Sequence[Event]:
        """All entries so far."""

    def append(self, entry: Event, wait: bool = True) -> None:
        """Commit an entry; without waiting, with the next one that waits."""

    def records(self) -> Iterator[Record]:
        """The records that count."""


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
