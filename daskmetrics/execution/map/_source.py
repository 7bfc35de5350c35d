"""A map as a source of work: its options, batches of items, and smaller batches after a failure."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from daskmetrics.core._events import Event, MapStarted
from daskmetrics.core._machine import environment
from daskmetrics.core._text import parse_duration
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, content_key
from daskmetrics.execution import Record, RetryPolicy, WorkUnit
from daskmetrics.execution.map._batch import Call, run_batch
from daskmetrics.execution.map._function import PreparedFunction, prepare
from daskmetrics.execution.map._items import Item, make_items
from daskmetrics.execution.map._tracker import BATCH, ItemResult, ItemTracker


@dataclass(frozen=True)
class MapOptions:
    """How a map runs; no option changes a result. The attributes are parameters of `map`, which describes them."""

    batch_size: int = 1
    retries: int = 3
    timeout: float | str | None = "5m"
    resources: Mapping[str, float] = field(default_factory=dict)
    checkpoint_interval: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}, but a batch has at least 1 item.")
        if self.retries < 0:
            raise ConfigError(f"retries is {self.retries}, but must be at least 0 (each item runs once).")
        if self.checkpoint_interval < 1:
            raise ConfigError(f"checkpoint_interval is {self.checkpoint_interval}, but must be at least 1 item.")
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


_RETRY = RetryPolicy()  # a failed item pauses as long as a failed unit, behind the other items or on its worker
_SLACK = 5  # in a batch, an item may take this many times the duration of the longest item so far


class MapSource:
    """Asks for every unfinished item once, in batches; then for failed items again, and for suspects in halved batches.

    A batch whose worker died, or that ran out of time or memory, is halved until single items remain: only an item
    that fails alone is recorded as failed. The clock measures the pause before an item is tried again.
    """

    def __init__(
        self, spec: MapSpec, entries: Iterable[Event] = (), clock: Callable[[], float] = time.monotonic
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
        elif self._suspects and all(self._limit(i) == limit > len(self._suspects[-1]) for i in self._suspects[-1]):
            self._suspects[-1] += (item,)
        else:
            self._suspects.append((item,))

    def _limit(self, item: Item) -> int:
        return min(self.tracker.state(item).batch_limit or self.options.batch_size, self.options.batch_size)

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
        first, size = batch[0], len(batch)
        key = content_key(BATCH, [[item.key, self.tracker.state(item).attempts] for item in batch])
        self._running[key] = batch
        wait = max(0.0, *(self._due.get(item.key, -math.inf) - self.clock() for item in batch))
        timeout = self.options.timeout_seconds
        if timeout is not None:
            # the whole timeout for one item, and for the others what the durations so far suggest; if that is too
            # short for a slow batch, no item is blamed: the batch is halved
            others = timeout if self._longest is None else min(timeout, _SLACK * self._longest)
            timeout = wait + timeout + (size - 1) * others
        calls = tuple(Call(item.key, item.value, self.function.keywords(item.seed, size)) for item in batch)
        return WorkUnit(
            key,
            first.name if size == 1 else f"{first.name} ... {batch[-1].name} ({size} items)",
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
        for item in outcome.again:
            pause = min(_RETRY.longest_delay, _RETRY.delay * 2 ** (self.tracker.state(item).attempts - 1))
            self._due[item.key] = self.clock() + pause
            self._queue(item)
        for result in outcome.finished:
            if result.seconds is not None:
                self._longest = max(self._longest or 0.0, result.seconds)
            self.on_result(result)

    def stop(self) -> None:
        """Ask for no more batches: running ones finish and are recorded."""
        self._stopped = True
