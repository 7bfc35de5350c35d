"""A map as a source of work: its options, the state of every item, batches of items, and smaller
batches after a failure.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.events import Event, ItemsRetried, MapStarted, UnitAsked, UnitsRetried
from daskmetrics.core.machine import environment
from daskmetrics.core.names import Key, content_key
from daskmetrics.core.results import ItemOutcome, Mapped
from daskmetrics.core.text import parse_duration
from daskmetrics.execution import Record, RetryPolicy, WorkUnit
from daskmetrics.execution.map.function import Call, PreparedFunction, prepare, run_batch
from daskmetrics.execution.map.items import Item, make_items

BATCH = "batch"  # the kind of the work units of a map
SLACK = 5  # in a batch, an item may take this many times the duration of the longest item so far
# a failed item pauses as long as a failed unit, behind the other items or on its worker
RETRY = RetryPolicy()


@dataclass(frozen=True)
class MapOptions:
    """How a map runs; no option changes a result. The attributes are parameters of `map`, which
    describes them.
    """

    batch_size: int = 1
    retries: int = 3
    timeout: float | str | None = "5m"
    resources: Mapping[str, float] = field(default_factory=dict)
    checkpoint_interval: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}, but a batch has at least 1 item.")
        if self.retries < 0:
            raise ConfigError(
                f"retries is {self.retries}, but must be at least 0 (each item runs once)."
            )
        if self.checkpoint_interval < 1:
            raise ConfigError(
                f"checkpoint_interval is {self.checkpoint_interval}, but must be at least 1 item."
            )
        parse_duration(self.timeout)

    @property
    def timeout_seconds(self) -> float | None:
        """Seconds that one item may take; None for no limit."""
        return parse_duration(self.timeout)


@dataclass(frozen=True)
class MapSpec:
    """A function, its items, and how they are run."""

    function: PreparedFunction
    items: tuple[Item, ...]
    options: MapOptions
    seed: int = 0  # of the run; each item's seed follows from it
    reference: str | None = None  # where the function was loaded from, as module.py:function

    def event(self) -> MapStarted:
        """Its entry in the journal."""
        return MapStarted(
            function=self.function.name,
            version=self.function.version,
            stated=self.function.stated,
            reference=self.reference,
            items=len(self.items),
            seed=self.seed,
            batch_size=self.options.batch_size,
            retries=self.options.retries,
            timeout=self.options.timeout_seconds,
            environment=environment("daskmetrics", "distributed", "numpy"),
        )


def make_spec(
    function: Callable[..., Any],
    values: Iterable[Any],
    options: MapOptions | None = None,
    *,
    seed: int = 0,
    version: str | None = None,
    reference: str | None = None,
) -> MapSpec:
    """The specification of a map; raises ConfigError if the function or an item cannot be used."""
    prepared = prepare(function, version)
    items = make_items(values, prepared.name, prepared.version, seed)
    return MapSpec(prepared, items, options or MapOptions(), seed, reference)


@dataclass(frozen=True)
class ItemResult:
    """Result of one item.

    A failed item has a `status` other than ``ok`` and a `reason`; for status ``nan``, `value` holds
    the finite parts of what was returned. `seconds` is the duration of the last call, or None if no
    call finished.
    """

    key: Key
    index: int
    name: str
    item: Any
    status: str
    value: Any = None
    reason: str | None = None
    traceback: str | None = None
    attempts: int = 1
    seconds: float | None = None
    worker: str | None = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True)
class BatchOutcome:
    """What follows from a batch: finished items, items to try again, and smaller batches of
    suspected items.
    """

    finished: tuple[ItemResult, ...] = ()
    retried: tuple[Item, ...] = ()
    suspects: tuple[tuple[Item, ...], ...] = ()


@dataclass
class ItemState:
    """Failures of one item, the largest batch it may run in, and its result."""

    item: Item
    failures: Counter[str] = field(default_factory=Counter)
    batch_limit: int | None = None  # for a suspected item
    result: ItemResult | None = None
    earlier_failures: int = 0  # before the user asked for a retry

    @property
    def attempts(self) -> int:
        """How often the item has failed so far, before and after retries by the user."""
        return self.failures.total() + self.earlier_failures


class ItemTracker:
    """State of all items: rebuilt from the journal, then updated by every batch that finishes.

    A failed item is tried again ``retries`` times; at most once after a timeout or lack of memory
    with the item alone. Entries of items that this map does not have are ignored.

    >>> from daskmetrics.execution.map.items import make_items
    >>> one, two = make_items("ab", "bench:step", "v1")
    >>> tracker = ItemTracker([one, two], retries=0)
    >>> died = Record("u", "a, b", "batch", "quarantined", reason="the worker died")
    >>> [[item.name for item in batch] for batch in tracker.update(died, [one.key, two.key]).suspects]
    [['a'], ['b']]
    >>> tracker.update(died, [two.key]).finished[0].status
    'quarantined'
    """

    def __init__(self, items: Sequence[Item], retries: int, entries: Iterable[Event] = ()) -> None:
        self._states = {item.key: ItemState(item) for item in items}
        self._budgets = {"timeout": min(2, 1 + retries), "oom": min(2, 1 + retries)}
        self._budget = 1 + retries
        asked: dict[Key, Sequence[Key]] = {}
        seen: set[Key] = set()
        for entry in entries:
            match entry:
                case UnitAsked(key=key, note=note):
                    asked[key] = note.get("items", ())
                case Record(key=key, kind=kind) if kind == BATCH and key not in seen:
                    seen.add(key)  # of two records of one key the earlier one counts
                    self.update(entry, asked.get(key, ()))
                case ItemsRetried(items=keys):
                    self.retry(keys)
                case UnitsRetried(keys=keys):
                    seen.difference_update(keys)  # the next record of each counts
                    for key in keys:
                        self.retry(asked.get(key, ()))

    def update(self, record: Record, keys: Sequence[Key]) -> BatchOutcome:
        """Enter the record of a batch of these items, and return what follows from it."""
        if record.value is None and len(keys) > 1:
            suspects = [key for key in keys if self._is_unfinished(key)]
            return BatchOutcome(suspects=self._split(suspects, len(keys)))
        reported = [ItemOutcome(key, record.status, reason=record.reason) for key in keys]
        if isinstance(record.value, Mapped):
            reported = list(record.value.items)
        outcomes = [outcome for outcome in reported if self._is_unfinished(outcome.key)]
        # memory that is short in company may suffice in a smaller batch
        crowded = [outcome.key for outcome in outcomes if outcome.status == "oom" and len(keys) > 1]
        alone = [outcome for outcome in outcomes if outcome.key not in crowded]
        states = [self._decide(outcome, record.worker) for outcome in alone]
        return BatchOutcome(
            tuple(state.result for state in states if state.result),
            tuple(state.item for state in states if not state.result),
            self._split(crowded, len(keys)),
        )

    def _is_unfinished(self, key: Key) -> bool:
        return key in self._states and self._states[key].result is None

    def _split(self, keys: Sequence[Key], size: int) -> tuple[tuple[Item, ...], ...]:
        half = (size + 1) // 2
        for key in keys:
            self._states[key].batch_limit = half
        items = [self._states[key].item for key in keys]
        return tuple(tuple(items[i : i + half]) for i in range(0, len(items), half))

    def _decide(self, outcome: ItemOutcome, worker: str | None) -> ItemState:
        state, status = self._states[outcome.key], outcome.status
        attempts = state.attempts + 1
        if status not in ("ok", "nan"):
            state.failures[status] += 1
            allowed = self._budgets.get(status, self._budget)
            if not outcome.permanent and state.failures[status] < allowed:
                return state
        item = state.item
        fields = {name: value for name, value in vars(outcome).items() if name != "permanent"}
        state.result = ItemResult(
            index=item.index,
            name=item.name,
            item=item.value,
            attempts=attempts,
            worker=worker,
            **fields,
        )
        return state

    def retry(self, keys: Iterable[Key]) -> None:
        """Reset items, so that they run again with all their retries."""
        for key in keys:
            if key in self._states:
                state = self._states[key]
                state.earlier_failures += state.failures.total()
                state.failures, state.result, state.batch_limit = Counter(), None, None

    def failed(self) -> list[ItemResult]:
        """Results that are not ok."""
        return [result for result in self.results() if not result.ok]

    def results(self) -> list[ItemResult]:
        """Results of the finished items, in the order of the items."""
        return [state.result for state in self._states.values() if state.result]

    def unfinished(self) -> list[Item]:
        """Items without a result, in their order."""
        return [state.item for state in self._states.values() if not state.result]

    def state(self, item: Item) -> ItemState:
        """The failures, batch limit and result of one item."""
        return self._states[item.key]


class MapSource:
    """Asks for every unfinished item once, in batches; then for failed items again, and for
    suspects in halved batches.

    A batch whose worker died, or that ran out of time or memory, is halved until single items
    remain: only an item that fails alone is recorded as failed. The clock measures the pause before
    an item is tried again.
    """

    def __init__(
        self,
        spec: MapSpec,
        entries: Iterable[Event] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.function, self.options, self.clock = spec.function, spec.options, clock
        self.tracker = ItemTracker(spec.items, spec.options.retries, entries)
        self.on_result: Callable[[ItemResult], None] = lambda result: None
        self._fresh: deque[Item] = deque()
        self._suspects: deque[tuple[Item, ...]] = deque()
        self._running: dict[Key, tuple[Item, ...]] = {}
        self._due: dict[Key, float] = {}
        self._longest: float | None = None
        self._stopped = False
        for item in self.tracker.unfinished():
            self._queue(item)

    def _queue(self, item: Item) -> None:
        limit = self._limit(item)
        if limit == self.options.batch_size:
            self._fresh.append(item)
            return
        batch = self._suspects[-1] if self._suspects else ()
        if 0 < len(batch) < limit and all(self._limit(other) == limit for other in batch):
            self._suspects[-1] += (item,)
        else:
            self._suspects.append((item,))

    def _limit(self, item: Item) -> int:
        largest = self.options.batch_size
        return min(self.tracker.state(item).batch_limit or largest, largest)

    def ask(self, n: int) -> Sequence[WorkUnit]:
        if self._stopped:
            return []
        batches: list[tuple[Item, ...]] = []
        while len(batches) < n and (self._suspects or self._fresh):
            if self._suspects:
                batches.append(self._suspects.popleft())
            else:
                size = min(self.options.batch_size, len(self._fresh))
                batches.append(tuple(self._fresh.popleft() for _ in range(size)))
        return [self._unit(batch) for batch in batches]

    def _unit(self, batch: tuple[Item, ...]) -> WorkUnit:
        size = len(batch)
        name = batch[0].name
        if size > 1:
            name = f"{name} ... {batch[-1].name} ({size} items)"
        key = content_key(BATCH, [[item.key, self.tracker.state(item).attempts] for item in batch])
        self._running[key] = batch
        wait = max(0.0, *(self._due.get(item.key, -math.inf) - self.clock() for item in batch))
        timeout = self.options.timeout_seconds
        if timeout is not None:
            # the whole timeout for one item, and for the others what the durations so far suggest;
            # if that is too short for a slow batch, no item is blamed: the batch is halved
            others = timeout if self._longest is None else min(timeout, SLACK * self._longest)
            timeout = wait + timeout + (size - 1) * others
        calls = tuple(
            Call(item.key, item.value, self.function.keywords(item.seed, size)) for item in batch
        )
        return WorkUnit(
            key,
            name,
            BATCH,
            run_batch,
            (self.function.payload, cloudpickle.dumps(calls), wait),
            resources=self.options.resources,
            note={"items": [item.key for item in batch]},
            timeout=timeout,
        )

    def tell(self, record: Record) -> None:
        batch = self._running.pop(record.key)
        outcome = self.tracker.update(record, [item.key for item in batch])
        self._suspects.extend(outcome.suspects)
        for item in outcome.retried:
            attempts = self.tracker.state(item).attempts
            pause = min(RETRY.longest_delay, RETRY.delay * 2 ** (attempts - 1))
            self._due[item.key] = self.clock() + pause
            self._queue(item)
        for result in outcome.finished:
            if result.seconds is not None:
                self._longest = max(self._longest or 0.0, result.seconds)
            self.on_result(result)

    def stop(self) -> None:
        """Ask for no more batches: running ones finish and are recorded."""
        self._stopped = True
