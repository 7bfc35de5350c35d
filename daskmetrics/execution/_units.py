"""Work units, the sources that ask for them, and the settings of a run."""

from __future__ import annotations

import io
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeAlias

import cloudpickle

from daskmetrics.core.errors import describe
from daskmetrics.core.keys import Key
from daskmetrics.domain.record import Record
from daskmetrics.domain.retry import RetryPolicy

TaskId: TypeAlias = str  #: names one attempt, so that late messages of an earlier one are dropped


@dataclass(frozen=True)
class WorkUnit:
    """One call that Dask runs for us.

    Attributes
    ----------
    key : str
        Names the content: equal keys mean equal results, so a recorded key is never run again.
    name, kind : str
        For display: ``tiny@step8/3:stdlib:order`` is a ``score``.
    function : callable
        Importable on the workers; returns JSON values (an `input` may return any object).
    args : tuple
        Its arguments, after the result of `input` if there is one.
    resources : mapping
        Resources of a worker that it occupies, for instance ``{"GPU": 1}``.
    input : WorkUnit or None
        A unit whose result is the first argument. It runs once for all units that share it, and is
        not recorded: it can always be computed again.
    note : mapping
        Why the source asked for it; kept in the journal.
    timeout : float or None
        Seconds after which an attempt is stopped; None for no limit.
    delay : float
        Seconds of these that it waits before it begins, after a failure.
    keeps : str or None
        Names what stays in the memory of the worker, such as a loaded checkpoint: the next unit
        with the same name runs there if it can start at once.
    """

    key: Key
    name: str
    kind: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)
    input: WorkUnit | None = None
    note: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    delay: float = 0.0
    keeps: str | None = None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A pickler that refuses open files.

    Cloudpickle sends a copy of what they contain, and from which place on a call reads would depend
    on the calls before it.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, io.TextIOWrapper) and value not in (sys.stdout, sys.stderr):
            raise pickle.PicklingError(f"the file '{value.name}' is open")
        return super().reducer_override(value)


def pickled(value: object) -> bytes:
    """What is sent to the workers.

    Raises `pickle.PicklingError`, naming the error, if it cannot be.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(value)
    except Exception as error:  # the __reduce__ of a captured object can raise anything
        raise pickle.PicklingError(describe(error)) from None
    return buffer.getvalue()


class Source(Protocol):
    """Supplies units and receives their records. It does not know Dask."""

    def ask(self, n: int) -> Sequence[WorkUnit]:
        """At most ``n`` units to run now.

        No unit, while none is running, means that the source is exhausted.
        """

    def tell(self, record: Record) -> Collection[Key] | None:
        """Receive the record of a unit: computed now, or recorded before an interruption.

        Returns the keys of inputs that need not be kept any longer. No unit that was asked for and
        has no record needs one of them; if a later unit does, it runs again.
        """


class Sweep:
    """Asks for every unit once, in the given order.

    Examples
    --------
    >>> sweep = Sweep(WorkUnit(key, key, "demo", print) for key in "abca")
    >>> [unit.name for unit in sweep.ask(2)]
    ['a', 'b']
    >>> [unit.name for unit in sweep.ask(2)]
    ['c']
    """

    def __init__(self, units: Iterable[WorkUnit]) -> None:
        distinct = {unit.key: unit for unit in units}
        self._waiting = iter(distinct.values())
        self._inputs = {unit.key: unit.input.key for unit in distinct.values() if unit.input}
        self._users = Counter(self._inputs.values())

    def ask(self, n: int) -> Sequence[WorkUnit]:
        return list(islice(self._waiting, n))

    def tell(self, record: Record) -> list[Key]:
        used = self._inputs.get(record.key)
        if used is None:
            return []
        self._users[used] -= 1
        return [] if self._users[used] else [used]


@dataclass(frozen=True)
class Settings:
    """Settings of `run`; all times in seconds.

    Attributes
    ----------
    slots : int or None
        Most units in flight; None for one per thread of the workers, and `ahead` more per worker.
    retry : RetryPolicy
    ahead : int
        Units that may wait on a worker behind the running ones, so that it is not idle while the
        driver decides; without `slots` more of them, where units take less than 50 ms.
    grace : float
        How long after a deadline the driver waits for the timer of the worker before it kills the
        worker: a stopped process has no timer.
    patience : float
        How long no unit may run because no worker can take one, before `run` raises an error.
    pause : float
        Pause after a full disk.
    stop_grace : float
        How long running units may continue after SIGTERM or SIGHUP. The first Ctrl-C at a terminal
        waits for all.
    most_memory : float
        Bytes that a worker can have in this run. A unit that was killed for memory on one with less
        waits for more.
    alone : bool
        Whether a worker that was started without our resources runs one unit at a time, however
        many threads it has.
    asks_once : bool
        Whether the source asks for no unit that has a record: records are not kept for it.
    commit_every : int
        Results after which the driver waits until they are on disk. A killed driver loses none of
        them; a power failure can lose fewer than this.
    """

    slots: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    ahead: int = 1
    grace: float = 5.0
    patience: float = 600.0
    pause: float = 5.0
    stop_grace: float = 2.0
    alone: bool = False
    most_memory: float = 0.0
    asks_once: bool = False
    commit_every: int = 1
