"""A map as a source of work: its options, the state of every item, batches of items, and smaller
batches after a failure.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import cloudpickle

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.keys import Key, content_key
from daskmetrics.domain.events import Event, ItemsRetried, UnitAsked, standing
from daskmetrics.domain.results import ItemOutcome, Mapped
from daskmetrics.execution import Record, RetryPolicy, WorkUnit
from daskmetrics.execution.map.function import (
    Item,
    PreparedFunction,
    make_items,
    prepare,
    run_batch,
    unchanged,
    with_keys,
)

BATCH = "batch"  # the kind of the work units of a map
SLACK = 5  # in a batch, an item may take this many times the duration of the longest item so far
# a failed item pauses as long as a failed unit, behind the other items or on its worker
RETRY = RetryPolicy()
Batch: TypeAlias = tuple[Item, ...]


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
    items: Batch
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
    items = make_items(values, "", "")  # read once: a generator may use a value again
    prepared = prepare(function, version, (item.value for item in items))
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
    """Failures of one item, the largest batch it may run in, and its result."""

    item: Item
    failures: Counter[str] = field(default_factory=Counter)  # since the user asked for a retry
    attempts: int = 0  # that failed, over all retries
    batch_limit: int | None = None  # for a suspected item
    result: ItemResult | None = None


class ItemTracker:
    """State of all items: rebuilt from the journal, then updated by every batch that finishes.

    A failed item is tried again ``retries`` times; at most once after a timeout or lack of memory
    with the item alone. Entries of items that this map does not have are ignored.

    >>> from daskmetrics.execution.map.function import make_items
    >>> one, two = make_items("ab", "bench:step", "v1")
    >>> tracker = ItemTracker([one, two], retries=0)
    >>> died = Record("u", "a, b", "batch", "quarantined", reason="the worker died")
    >>> states, suspects = tracker.update(died, [one.key, two.key])
    >>> [(item.name, tracker.states[item.key].batch_limit) for item in suspects]
    [('a', 1), ('b', 1)]
    >>> [state], suspects = tracker.update(died, [two.key])
    >>> state.result.status
    'quarantined'
    """

    def __init__(self, items: Sequence[Item], retries: int, entries: Iterable[Event] = ()) -> None:
        self.states = {item.key: ItemState(item) for item in items}
        self._retries = retries
        asked: dict[Key, Sequence[Key]] = {}
        for entry in standing(entries):
            match entry:
                case UnitAsked(key=key, note=note):
                    asked[key] = note.get("items", ())
                case Record(key=key, kind=kind) if kind == BATCH:
                    self.update(entry, asked.get(key, ()))
                case ItemsRetried(items=keys):
                    for key in self.states.keys() & keys:  # they run again with all their retries
                        state = self.states[key]
                        self.states[key] = ItemState(state.item, attempts=state.attempts)

    def update(
        self, record: Record, keys: Sequence[Key]
    ) -> tuple[Sequence[ItemState], Sequence[Item]]:
        """Enter the record of a batch of these items.

        Returns
        -------
        sequence of ItemState
            The items that were decided: with a result, or to be tried again.
        sequence of Item
            Suspected items, which may run in batches of half the size.
        """
        if record.value is None and len(keys) > 1:
            return [], self._suspect(filter(self._is_unfinished, keys), len(keys))
        reported = [ItemOutcome(key, record.status, reason=record.reason) for key in keys]
        if isinstance(record.value, Mapped):
            reported = list(record.value.items)
        states, crowded = [], []
        for outcome in reported:
            if not self._is_unfinished(outcome.key):
                continue
            if outcome.status == "oom" and len(keys) > 1:
                # memory that is short in company may suffice in a smaller batch
                crowded.append(outcome.key)
            else:
                states.append(self._decide(outcome, record.worker))
        return states, self._suspect(crowded, len(keys))

    def _is_unfinished(self, key: Key) -> bool:
        return key in self.states and self.states[key].result is None

    def _suspect(self, keys: Iterable[Key], size: int) -> Sequence[Item]:
        states = [self.states[key] for key in keys]
        for state in states:
            state.batch_limit = (size + 1) // 2
        return [state.item for state in states]

    def _decide(self, outcome: ItemOutcome, worker: str | None) -> ItemState:
        state = self.states[outcome.key]
        status = outcome.status
        attempts = state.attempts + 1
        if status not in ("ok", "nan"):
            state.attempts = attempts
            state.failures[status] += 1
            retries = self._retries
            if status in ("timeout", "oom"):
                retries = min(1, retries)
            if not outcome.permanent and state.failures[status] <= retries:
                return state
        item = state.item
        state.result = ItemResult(
            item.key,
            item.index,
            item.name,
            item.value,
            status,
            outcome.value,
            outcome.reason,
            outcome.traceback,
            attempts,
            outcome.seconds,
            worker,
        )
        return state

    def failed(self) -> list[ItemResult]:
        """Results that are not ok."""
        return [result for result in self.results() if not result.ok]

    def results(self) -> list[ItemResult]:
        """Results of the finished items, in the order of the items."""
        return [state.result for state in self.states.values() if state.result]

    def unfinished(self) -> list[Item]:
        """Items without a result, in their order."""
        return [state.item for state in self.states.values() if not state.result]


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
        self._due: dict[Key, float] = {}
        self._longest: float | None = None
        self._stopped = False

    def ask(self, n: int) -> Sequence[WorkUnit]:
        units: list[WorkUnit] = []
        while not self._stopped and len(units) < n and self._waiting:
            units.append(self._unit(self._next_batch()))
        return units

    def _next_batch(self) -> Batch:
        batch: list[Item] = []
        largest = self.options.batch_size
        while self._waiting:
            limit = self.tracker.states[self._waiting[0].key].batch_limit
            largest = min(largest, limit or largest)
            if len(batch) >= largest:
                break
            batch.append(self._waiting.popleft())
        return tuple(batch)

    def _unit(self, batch: Batch) -> WorkUnit:
        size = len(batch)
        function = self.spec.function
        name = batch[0].name
        if size > 1:
            name = f"{name} ... {batch[-1].name} ({size} items)"
        attempts = [[item.key, self.tracker.states[item.key].attempts] for item in batch]
        key = content_key(BATCH, attempts)
        self._running[key] = batch
        wait = max(0.0, *(self._due.get(item.key, -math.inf) - self.clock() for item in batch))
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
            for item in batch
        ]
        return WorkUnit(
            key,
            name,
            BATCH,
            run_batch,
            (function.payload, calls, wait),
            resources=self.options.resources,
            note={"items": [item.key for item in batch]},
            timeout=timeout,
            delay=wait,
        )

    def tell(self, record: Record) -> None:
        batch = self._running.pop(record.key)
        states, suspects = self.tracker.update(record, [item.key for item in batch])
        self._waiting.extendleft(reversed(suspects))  # before the others: what kills is found early
        for state in states:
            if result := state.result:
                if result.seconds is not None:
                    self._longest = max(self._longest or 0.0, result.seconds)
                self.on_result(result)
            else:
                self._due[state.item.key] = self.clock() + RETRY.pause(state.attempts)
                self._waiting.append(state.item)

    def stop(self) -> None:
        """Ask for no more batches: running ones finish and are recorded."""
        self._stopped = True
