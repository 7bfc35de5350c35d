"""The source of work of a map: batches of items, smaller ones where something went wrong."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, content_key
from daskmetrics.execution import Record, RetryPolicy, WorkUnit
from daskmetrics.execution.map._batch import Call, run_batch
from daskmetrics.execution.map._function import Function
from daskmetrics.execution.map._items import Item
from daskmetrics.execution.map._ledger import BATCH, Ledger, Result

PAUSES = RetryPolicy()  # an item that failed waits as long as a unit does, behind the other items or on its worker
SLACK = 5  # how much longer than the longest item so far another one may take, where it runs in company


@dataclass(frozen=True)
class Options:
    """How a map is run; nothing here changes a result.

    Attributes
    ----------
    batch_size : int
        Items per work unit: each unit costs some milliseconds.
    retries : int
        How often an item that failed is tried again.
    timeout : float or None
        Seconds that one item may take.
    resources : mapping
        What a batch occupies of a worker, for instance ``{"GPU": 1}``.
    """

    batch_size: int = 1
    retries: int = 3
    timeout: float | None = 300.0
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}; a batch holds at least 1 item.")
        if self.retries < 0:
            raise ConfigError(f"retries is {self.retries}; 0 tries every item once.")


class Map:
    """Asks for every item once, in batches; for those that failed again, and for suspects in ever smaller batches.

    A batch whose worker died, or that ran out of time or memory, is halved, down to single items: those are guilty.
    What is recorded is not asked for.

    Parameters
    ----------
    function : Function
    items : sequence of Item
    options : Options
    entries : iterable of mapping
        The journal so far.
    clock : callable
        Seconds, for the pause before an item is tried again.
    """

    def __init__(
        self,
        function: Function,
        items: Sequence[Item],
        options: Options,
        entries: Iterable[Mapping[str, Any]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.function, self.options, self.clock = function, options, clock
        self.ledger = Ledger(items, options.retries)
        self.ledger.replay(entries)
        self.on_result: Callable[[Result], None] = lambda result: None
        self._fresh: deque[Item] = deque()
        self._suspects: deque[tuple[Item, ...]] = deque()
        self._asked: dict[Key, tuple[Item, ...]] = {}
        self._due: dict[Key, float] = {}
        self._longest: float | None = None
        self._stopped = False
        for item in self.ledger.open():
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
        return min(self.ledger.limit(item) or self.options.batch_size, self.options.batch_size)

    def ask(self, n: int) -> Sequence[WorkUnit]:
        if self._stopped:
            return []
        batches: list[tuple[Item, ...]] = []
        while len(batches) < n and (self._suspects or self._fresh):
            batches.append(self._suspects.popleft() if self._suspects else self._fresh_batch())
        return [self._unit(batch) for batch in batches]

    def _fresh_batch(self) -> tuple[Item, ...]:
        return tuple(self._fresh.popleft() for _ in range(min(self.options.batch_size, len(self._fresh))))

    def _unit(self, batch: tuple[Item, ...]) -> WorkUnit:
        keys = [item.key for item in batch]
        key = content_key(BATCH, [[item.key, self.ledger.tries(item)] for item in batch])
        self._asked[key] = batch
        wait = max(0.0, *(self._due.get(key, -math.inf) - self.clock() for key in keys))
        calls = tuple(Call(item.key, item.value, self._keywords(item, len(batch))) for item in batch)
        return WorkUnit(
            key,
            _name(batch),
            BATCH,
            run_batch,
            (self.function.payload, cloudpickle.dumps(calls), wait),
            resources=self.options.resources,
            note={"items": keys},
            timeout=self._deadline(len(batch), wait),
        )

    def _deadline(self, size: int, wait: float) -> float | None:
        """Seconds for a batch: one item may take all of its time, the others what was seen of their like.

        Too little for a slow batch convicts nobody, it is halved.
        """
        alone = self.options.timeout
        if alone is None:
            return None
        others = alone if self._longest is None else min(alone, SLACK * self._longest)
        return wait + alone + (size - 1) * others

    def _keywords(self, item: Item, size: int) -> dict[str, int]:
        seed = {"seed": item.seed} if self.function.seeded else {}
        return seed | ({"batch_size": size} if self.function.sized else {})

    def tell(self, record: Record) -> None:
        batch = self._asked.pop(record.key)
        taken = self.ledger.take(record, [item.key for item in batch])
        self._suspects.extend(taken.suspects)
        for item in taken.again:
            pause = min(PAUSES.longest_delay, PAUSES.delay * 2 ** (self.ledger.tries(item) - 1))
            self._due[item.key] = self.clock() + pause
            self._queue(item)
        for result in taken.finished:
            if result.seconds is not None:
                self._longest = max(self._longest or 0.0, result.seconds)
            self.on_result(result)

    def stop(self) -> None:
        """Ask for nothing more: what is running is finished and recorded."""
        self._stopped = True


def _name(batch: Sequence[Item]) -> str:
    return batch[0].name if len(batch) == 1 else f"{batch[0].name} ... {batch[-1].name} ({len(batch)} items)"
