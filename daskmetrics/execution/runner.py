"""The one loop: ask a source for work, submit it, journal what comes back, tell the source."""

from __future__ import annotations

import queue
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Future, get_worker
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from daskmetrics.arms import Key
from daskmetrics.errors import ConfigError, DaskmetricsError, DataError, UndefinedError
from daskmetrics.execution.journal import Journal, encode
from daskmetrics.execution.retry import Fault, GiveUp, RetryPolicy
from daskmetrics.execution.units import Record, Source, WorkUnit


class ClusterLostError(DaskmetricsError):
    """The scheduler went away; nothing recorded is lost."""


@dataclass(frozen=True)
class Settings:
    """How `run` treats the cluster.

    Attributes
    ----------
    slots : int
        Units in flight at most. Annotated tasks are not queued by the scheduler, so the window is kept here.
    retry : RetryPolicy
    spare_inputs : int
        Shared inputs kept on the workers although no unit in flight needs them.
    fetch_timeout : float
        Seconds to wait for the result of a finished unit.
    """

    slots: int
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    spare_inputs: int = 4
    fetch_timeout: float = 60.0


@dataclass
class _Attempt:
    """All that is known of a unit in flight, in one place."""

    unit: WorkUnit
    faults: Counter[Fault] = field(default_factory=Counter)
    future: Future | None = None
    not_before: float = 0.0

    @property
    def number(self) -> int:
        return self.faults.total() + 1


def run(
    source: Source,
    client: Client,
    journal: Journal,
    settings: Settings,
    on_record: Callable[[Record], None] = lambda record: None,
) -> None:
    """Run all work of a source to its end; a unit that the journal already holds is answered from there.

    A unit is committed by its line in the journal; only then does the source learn of it.

    Parameters
    ----------
    source : Source
    client : distributed.Client
    journal : Journal
    settings : Settings
    on_record : callable
        Called with each new record, after it was journaled.

    Raises
    ------
    ClusterLostError
        If the scheduler goes away. Run again to resume.
    """
    _Loop(source, client, journal, settings, on_record).run()


class _Loop:
    def __init__(
        self,
        source: Source,
        client: Client,
        journal: Journal,
        settings: Settings,
        on_record: Callable[[Record], None],
    ) -> None:
        self.source, self.client, self.journal, self.settings = source, client, journal, settings
        self.on_record = on_record
        self.known = {record.key: record for record in journal.records()}
        self.asked = {encode(entry) for entry in journal.entries if entry["type"] == "ask"}
        self.attempts: dict[Key, _Attempt] = {}
        # on a shared scheduler an old future of the same key would answer with its own function's result
        self.nonce = secrets.token_hex(4)
        self.inputs = _Inputs(client, settings.spare_inputs, self.nonce)
        self.finished: queue.SimpleQueue[tuple[Key, Future]] = queue.SimpleQueue()

    def run(self) -> None:
        while self._top_up():
            for key, future in self._wait():
                attempt = self.attempts.get(key)
                if attempt is not None and attempt.future is future:  # a late result of an earlier attempt is dropped
                    self._conclude(attempt, future)

    def _top_up(self) -> bool:
        """Fill the window; False when nothing is running and nothing is left."""
        while units := self.source.ask(self.settings.slots - len(self.attempts)):
            for unit in units:
                self._take(unit)
        now = time.monotonic()
        for attempt in self.attempts.values():
            if attempt.future is None and attempt.not_before <= now:
                self._submit(attempt)
        return bool(self.attempts)

    def _take(self, unit: WorkUnit) -> None:
        entry = {"type": "ask", "key": unit.key, "name": unit.name, "note": dict(unit.note)}
        if encode(entry) not in self.asked:
            self.journal.append(entry)
        if unit.key in self.known:
            self.source.tell(self.known[unit.key])
        else:
            self.attempts[unit.key] = _Attempt(unit)

    def _submit(self, attempt: _Attempt) -> None:
        unit = attempt.unit
        first = (self.inputs.future(unit.input),) if unit.input else ()
        attempt.future = self.client.submit(
            _call,
            unit.function,
            *first,
            *unit.args,
            key=f"{unit.kind}-{unit.key}-{self.nonce}-{attempt.number}",
            resources=dict(unit.resources),
            pure=False,
        )
        attempt.future.add_done_callback(lambda future, key=unit.key: self.finished.put((key, future)))

    def _wait(self) -> list[tuple[Key, Future]]:
        """Everything that has finished; waits for the first, at most until a retry is due."""
        due = [attempt.not_before for attempt in self.attempts.values() if attempt.future is None]
        timeout = max(0.01, min(due) - time.monotonic()) if due else 5.0
        try:
            ready = [self.finished.get(timeout=timeout)]
        except queue.Empty:
            if self.client.status not in ("running", "connecting"):
                raise _lost() from None
            return []
        while not self.finished.empty():
            ready.append(self.finished.get())
        return ready

    def _conclude(self, attempt: _Attempt, future: Future) -> None:
        unit = attempt.unit
        if future.status == "cancelled":
            raise _lost()
        try:
            outcome = future.result(timeout=self.settings.fetch_timeout)
        except Exception as error:
            self._fail(attempt, error)
            return
        self._commit(attempt, Record(unit.key, unit.name, unit.kind, "ok", attempts=attempt.number, **outcome))

    def _fail(self, attempt: _Attempt, error: Exception) -> None:
        fault, reason = blame(error), describe(error)
        attempt.faults[fault] += 1
        unit = attempt.unit
        self.journal.append(
            {"type": "attempt", "key": unit.key, "name": unit.name, "fault": fault.value, "reason": reason}
        )
        if unit.input:
            self.inputs.forget_failed(unit.input)
        decision = self.settings.retry.after(fault, attempt.faults[fault])
        if isinstance(decision, GiveUp):
            tried = attempt.faults.total()
            record = Record(unit.key, unit.name, unit.kind, decision.status, reason=reason, attempts=tried)
            self._commit(attempt, record)
        else:
            attempt.future = None
            attempt.not_before = time.monotonic() + decision.delay

    def _commit(self, attempt: _Attempt, record: Record) -> None:
        self.journal.append(record.entry())
        del self.attempts[record.key]
        self.source.tell(record)
        if attempt.unit.input:
            self.inputs.done(
                attempt.unit.input, still={a.unit.input.key for a in self.attempts.values() if a.unit.input}
            )
        self.on_record(record)


class _Inputs:
    """Shared inputs on the workers: each computed once while it is wanted, a few kept a little longer."""

    def __init__(self, client: Client, spare: int, nonce: str) -> None:
        self.client, self.spare, self.nonce = client, spare, nonce
        self.futures: OrderedDict[Key, Future] = OrderedDict()
        self.failures: Counter[Key] = Counter()

    def future(self, unit: WorkUnit) -> Future:
        if unit.key not in self.futures:
            self.futures[unit.key] = self.client.submit(
                unit.function,
                *unit.args,
                key=f"{unit.kind}-{unit.key}-{self.nonce}-{self.failures[unit.key] + 1}",
                resources=dict(unit.resources),
                pure=False,
            )
        self.futures.move_to_end(unit.key)
        return self.futures[unit.key]

    def forget_failed(self, unit: WorkUnit) -> None:
        future = self.futures.get(unit.key)
        if future is not None and future.status in ("error", "lost", "cancelled"):
            self.failures[unit.key] += 1
            del self.futures[unit.key]

    def done(self, unit: WorkUnit, still: set[Key]) -> None:
        idle = [key for key in self.futures if key not in still]
        for key in idle[: max(0, len(idle) - self.spare)]:
            del self.futures[key]  # the scheduler frees the result with its last future


def _call(function: Callable[..., Any], *args: Any) -> Mapping[str, Any]:
    """Runs on the worker: the value of a unit, with the time it took and where it ran."""
    started = time.perf_counter()
    value = function(*args)
    return {"value": value, "seconds": time.perf_counter() - started, "worker": str(get_worker().name)}


def blame(error: BaseException) -> Fault:
    """Which kind of fault an exception that came back from a worker stands for."""
    if isinstance(error, KilledWorker | CommClosedError):
        return Fault.DEATH
    if isinstance(error, UndefinedError):
        return Fault.UNDEFINED
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Fault.MEMORY
    if isinstance(error, ConfigError | DataError):
        return Fault.PERMANENT
    return Fault.EXCEPTION


def describe(error: BaseException) -> str:
    """One line that names the error, short enough for a table."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500]


def _lost() -> ClusterLostError:
    return ClusterLostError("The scheduler went away. Nothing recorded is lost: run the same command again to resume.")
