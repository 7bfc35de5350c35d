"""A map as a source of work: its options, the state of every item, batches of items, and smaller
batches after a failure.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import cloudpickle

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.keys import Key, content_key
from daskmetrics.domain.events import Event, ItemsRetried, UnitAsked
from daskmetrics.domain.results import ItemOutcome, Mapped
from daskmetrics.execution import Record, RetryPolicy, WorkUnit
from daskmetrics.execution.map.function import (
    Items,
    PreparedFunction,
    prepare,
    run_batch,
    unchanged,
    with_keys,
    without_keys,
)

BATCH = "batch"  # the kind of the work units of a map
#: entries of batches: they stay in the journal, and the driver holds what an `ItemTracker` does
RESULTS = (UnitAsked, Record)
SLACK = 5  # in a batch, an item may take this many times the duration of the longest item so far
# a failed item pauses as long as a failed unit, behind the other items or on its worker
RETRY = RetryPolicy()
Batch: TypeAlias = tuple[int, ...]  #: positions of items


@dataclass(frozen=True)
class MapOptions:
    """How a map runs.

    No option changes a result. The attributes are parameters of `map`, which describes them.
    """

    batch_size: int = 1
    retries: int = 3
    timeout: float | None = 300.0  # seconds that one item may take; None for no limit
    resources: Mapping[str, float] = field(default_factory=dict)
    checkpoint_interval: int = 1

    def __post_init__(self) -> None:
        for name, minimum in {"batch_size": 1, "retries": 0, "checkpoint_interval": 1}.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < minimum:
                raise ConfigError(f"{name} is {value!r}, but must be an int from {minimum}.")
        amounts = [math.nan]
        if isinstance(self.resources, Mapping):
            amounts = list(self.resources.values())
        if not all(isinstance(amount, int | float) and amount >= 0 for amount in amounts):
            raise ConfigError(
                f"resources is {self.resources!r}, but must name numbers from 0, such as"
                " {'GPU': 1}."
            )


@dataclass(frozen=True)
class MapSpec:
    """A function, its items, and how they are run."""

    function: PreparedFunction
    items: Items
    options: MapOptions
    seed: int = 0  # of the run; each item's seed follows from it
    reference: str | None = None  # where the function was loaded from, as module.py:function

    def under(self, version: str) -> MapSpec:
        """The same map with the items' keys of another version."""
        function = replace(self.function, version=version)
        items = with_keys(self.items, function.name, version, self.seed)
        return replace(self, function=function, items=items)


def make_spec(
    function: Callable[..., object],
    values: Iterable[object],
    options: MapOptions,
    *,
    seed: int = 0,
    version: str | None = None,
    reference: str | None = None,
) -> MapSpec:
    """The specification of a map.

    Raises ConfigError if the function or an item cannot be used.
    """
    # iterated by characters and by the names of columns
    if isinstance(values, str) or hasattr(values, "columns"):
        raise ConfigError(
            f"The items are a {type(values).__name__}. Give a list of items; of a table, its rows:"
            " frame.to_dict('records')."
        )
    # a journal with another type could not be read
    if not isinstance(seed, int):
        raise ConfigError(f"seed is {seed!r}, but must be an int.")
    if not isinstance(version, str | None):
        raise ConfigError(f"version is {version!r}, but must be a text.")
    items = without_keys(values)
    prepared = prepare(function, version, items.values)
    items = with_keys(items, prepared.name, prepared.version, seed)
    return MapSpec(prepared, items, options, seed, reference)


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


@dataclass
class ItemState:
    """Failures of an unfinished item, and the largest batch that it may run in."""

    failures: Counter[str] = field(default_factory=Counter)  # since the user asked for a retry
    batch_limit: int | None = None  # for a suspected item


@dataclass(frozen=True)
class Update:
    """What the record of a batch says of its items, by their positions."""

    finished: Sequence[tuple[int, ItemOutcome]] = ()
    again: Sequence[int] = ()  # failed, to be tried again
    suspects: Sequence[int] = ()  # which may run in batches of half the size


class ItemTracker:
    """State of all items: rebuilt from the journal, then updated by every batch that finishes.

    Results stay in the journal: of a finished item the status is held, of an unfinished one what
    failed. A failed item is tried again ``retries`` times; at most once after a timeout or lack of
    memory with the item alone. Entries of items that this map does not have are ignored.

    >>> from daskmetrics.execution.map.function import make_items
    >>> one, two = items = make_items("ab", "bench:step", "v1")
    >>> tracker = ItemTracker(items, retries=0)
    >>> died = Record("u", "a, b", "batch", "quarantined", reason="the worker died")
    >>> tracker.update(died, [one.key, two.key]).suspects, tracker.batch_limit(0)
    ([0, 1], 1)
    >>> [(position, outcome)] = tracker.update(died, [two.key]).finished
    >>> position, outcome.status, tracker.unfinished()
    (1, 'quarantined', [0])
    """

    def __init__(self, items: Items, retries: int, entries: Iterable[Event] = ()) -> None:
        self.items = items
        self.statuses: list[str | None] = [None] * len(items)  # by position; None: unfinished
        self.counts: Counter[str] = Counter()  # of the finished items, by status
        self._retries = retries
        self._states: dict[int, ItemState] = {}  # of unfinished items that failed
        self._failed_attempts: dict[int, int] = {}  # over all retries
        self._asked: dict[Key, Sequence[Key]] = {}  # items of batches that have no record yet
        for entry in entries:
            self.enter(entry)

    def enter(self, entry: Event) -> Sequence[tuple[int, ItemOutcome]]:
        """Enter the next entry of the journal; returns the items that it finished."""
        match entry:
            case UnitAsked(key=key, note=note):
                self._asked[key] = note.get("items", ())
            # a second record of a batch says nothing new
            case Record(key=key, kind=kind) if kind == BATCH and key in self._asked:
                return self.update(entry, self._asked.pop(key)).finished
            case ItemsRetried(items=keys):
                # they run again with all their retries
                for position in self._positions(keys):
                    self._states.pop(position, None)
                    if status := self.statuses[position]:
                        self.counts[status] -= 1
                    self.statuses[position] = None
        return ()

    def update(self, record: Record, keys: Sequence[Key]) -> Update:
        """Enter the record of a batch of these items."""
        size = len(keys)
        if record.value is None and size > 1:
            return Update(suspects=self._suspect(self._unfinished_of(keys), size))
        finished, again, crowded = [], [], []
        for outcome in outcomes_of(record, keys):
            for position in self._unfinished_of([outcome.key]):
                if outcome.status == "oom" and size > 1:
                    # memory that is short in company may suffice in a smaller batch
                    crowded.append(position)
                elif self._is_last(position, outcome):
                    finished.append((position, outcome))
                else:
                    again.append(position)
        return Update(finished, again, self._suspect(crowded, size))

    def _positions(self, keys: Iterable[Key]) -> list[int]:
        positions = self.items.positions
        return [positions[key] for key in keys if key in positions]

    def _unfinished_of(self, keys: Iterable[Key]) -> list[int]:
        return [position for position in self._positions(keys) if not self.statuses[position]]

    def _suspect(self, positions: Sequence[int], size: int) -> Sequence[int]:
        for position in positions:
            self._states.setdefault(position, ItemState()).batch_limit = (size + 1) // 2
        return positions

    def _is_last(self, position: int, outcome: ItemOutcome) -> bool:
        """Enter the outcome of an item; whether it is not tried again."""
        status = sys.intern(outcome.status)
        if status not in ("ok", "nan"):
            self._failed_attempts[position] = self._failed_attempts.get(position, 0) + 1
            failures = self._states.setdefault(position, ItemState()).failures
            failures[status] += 1
            retries = self._retries
            if status in ("timeout", "oom"):
                retries = min(1, retries)
            if not outcome.permanent and failures[status] <= retries:
                return False
        self._states.pop(position, None)
        self.statuses[position] = status
        self.counts[status] += 1
        return True

    def batch_limit(self, position: int) -> int | None:
        """The largest batch that an item may run in."""
        return self._states.get(position, ItemState()).batch_limit

    def failed_attempts(self, position: int) -> int:
        """How many attempts at an item have failed, over all retries."""
        return self._failed_attempts.get(position, 0)

    def result(self, position: int, outcome: ItemOutcome, worker: str | None) -> ItemResult:
        """The result of a finished item."""
        item = self.items[position]
        return ItemResult(
            item.key,
            item.index,
            item.name,
            item.value,
            outcome.status,
            outcome.value,
            outcome.reason,
            outcome.traceback,
            self.failed_attempts(position) + (outcome.status in ("ok", "nan")),
            outcome.seconds,
            worker,
        )

    @property
    def finished(self) -> int:
        """How many items have a result."""
        return self.counts.total()

    @property
    def failed(self) -> int:
        """How many items have a result that is not ok."""
        return self.finished - self.counts["ok"]

    def has_unsuccessful(self, keys: Iterable[Key]) -> bool:
        """Whether one of these items has no result, or one that is not ok."""
        return any(self.statuses[position] != "ok" for position in self._positions(keys))

    def unfinished(self) -> list[int]:
        """Positions of the items without a result."""
        return [i for i in self.items.positions.values() if not self.statuses[i]]


def outcomes_of(record: Record, keys: Iterable[Key]) -> Sequence[ItemOutcome]:
    """What the record of a batch says of its items, or of the one that failed alone."""
    if isinstance(record.value, Mapped):
        return record.value.items
    return [ItemOutcome(key, record.status, reason=record.reason) for key in keys]


class MapSource:
    """Asks for every unfinished item once, in batches.

    Then for failed items again, and for suspects in halved batches.

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
        self.spec = spec
        self.options = spec.options
        self.clock = clock
        self.tracker = ItemTracker(spec.items, spec.options.retries, entries)
        self.on_result: Callable[[ItemResult], None] = lambda result: None
        self._waiting = deque(self.tracker.unfinished())
        self._running: dict[Key, Batch] = {}
        self._due: dict[int, float] = {}
        self._longest: float | None = None
        self._stopped = False

    def ask(self, n: int) -> Sequence[WorkUnit]:
        units: list[WorkUnit] = []
        while not self._stopped and len(units) < n and self._waiting:
            units.append(self._unit(self._next_batch()))
        return units

    def _next_batch(self) -> Batch:
        batch: list[int] = []
        largest = self.options.batch_size
        while self._waiting:
            limit = self.tracker.batch_limit(self._waiting[0])
            largest = min(largest, limit or largest)
            if len(batch) >= largest:
                break
            batch.append(self._waiting.popleft())
        return tuple(batch)

    def _unit(self, batch: Batch) -> WorkUnit:
        size = len(batch)
        function = self.spec.function
        items = [self.spec.items[position] for position in batch]
        name = items[0].name
        if size > 1:
            name = f"{name} ... {items[-1].name} ({size} items)"
        keys = [item.key for item in items]
        attempts = [
            [key, self.tracker.failed_attempts(i)] for key, i in zip(keys, batch, strict=True)
        ]
        key = content_key(BATCH, attempts)
        self._running[key] = batch
        wait = max(0.0, *(self._due.get(position, -math.inf) - self.clock() for position in batch))
        timeout = self.options.timeout
        if timeout is not None:
            # the whole timeout for one item, and for the others what the durations so far suggest;
            # if that is too short for a slow batch, no item is blamed: the batch is halved
            others = timeout
            if self._longest is not None:
                others = min(timeout, SLACK * self._longest)
            timeout = wait + timeout + (size - 1) * others
        calls = [
            cloudpickle.dumps((item.key, unchanged(item), function.keywords(item.seed, size)))
            for item in items
        ]
        return WorkUnit(
            key,
            name,
            BATCH,
            run_batch,
            (function.payload, calls, wait),
            resources=self.options.resources,
            note={"items": keys},
            timeout=timeout,
            delay=wait,
        )

    def tell(self, record: Record) -> None:
        batch = self._running.pop(record.key)
        update = self.tracker.update(record, [self.spec.items.keys[i] for i in batch])
        self._waiting.extendleft(reversed(update.suspects))  # what kills is found early
        for position, outcome in update.finished:
            if outcome.seconds is not None:
                self._longest = max(self._longest or 0.0, outcome.seconds)
            self.on_result(self.tracker.result(position, outcome, record.worker))
        for position in update.again:
            pause = RETRY.pause(self.tracker.failed_attempts(position))
            self._due[position] = self.clock() + pause
            self._waiting.append(position)

    def stop(self) -> None:
        """Ask for no more batches: running ones finish and are recorded."""
        self._stopped = True
