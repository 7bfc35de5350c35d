"""What is run and what is known of it afterwards: frozen values that mean the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

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


@dataclass(frozen=True)
class Record:
    """What the journal holds of a finished or failed work unit.

    A unit without a value has a `status` other than ``ok`` and a `reason`; it is never a number. `seconds` is the
    time of the last attempt on its worker, without that of its input.
    """

    key: Key
    name: str
    kind: str
    status: str
    value: Any = None
    reason: str | None = None
    attempts: int = 1
    seconds: float = 0.0
    worker: str | None = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def entry(self) -> dict[str, Any]:
        """Its line in the journal."""
        return {"type": "record", **asdict(self)}

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Record:
        return cls(**{name: value for name, value in entry.items() if name != "type"})


class Source(Protocol):
    """Where work comes from. It knows what is wanted next, and nothing of Dask."""

    def ask(self, n: int) -> Sequence[WorkUnit]:
        """At most ``n`` units to run now. None now, with nothing running, means the source is exhausted."""

    def tell(self, record: Record) -> None:
        """Take in the result of a unit that was asked for: computed now, or known from before an interruption."""


class Ledger(Protocol):
    """What a loop needs of a journal."""

    @property
    def entries(self) -> Sequence[Mapping[str, Any]]:
        """All entries so far."""

    def append(self, entry: Mapping[str, Any], wait: bool = True) -> None:
        """Commit an entry; if it need not wait, with the next one that does."""

    def records(self) -> Iterator[Record]:
        """The recorded units."""


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
