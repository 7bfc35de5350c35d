"""State of every item: its failures, the largest batch it may run in, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daskmetrics.core._events import Event, ItemsRetried, Record, UnitAsked, UnitsRetried
from daskmetrics.core.names import Key
from daskmetrics.execution.map._items import Item

BATCH = "batch"  # the kind of the work units of a map


@dataclass(frozen=True)
class ItemResult:
    """Result of one item.

    A failed item has a `status` other than ``ok`` and a `reason`; for status ``nan``, `value` holds the finite parts
    of what was returned. `seconds` is the duration of the last call, or None if no call finished.
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
    """What follows from a batch: finished items, items to try again, and smaller batches of suspected items."""

    finished: tuple[ItemResult, ...] = ()
    again: tuple[Item, ...] = ()
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

    A failed item is tried again ``retries`` times; at most once after a timeout or lack of memory with the item alone.
    Entries of items that this map does not have are ignored.

    >>> from daskmetrics.execution.map._items import make_items
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
                    seen.add(key)  # of two records of one key the first counts
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
            return BatchOutcome(suspects=self._split([key for key in keys if self._is_unfinished(key)], len(keys)))
        alone: list[dict[str, Any]] = [{"key": key, "status": record.status, "reason": record.reason} for key in keys]
        reported = alone if record.value is None else record.value["items"]
        outcomes = [outcome for outcome in reported if self._is_unfinished(outcome["key"])]
        # memory that is short in company may suffice in a smaller batch
        crowded = [outcome["key"] for outcome in outcomes if outcome["status"] == "oom" and len(keys) > 1]
        states = [self._decide(outcome, record.worker) for outcome in outcomes if outcome["key"] not in crowded]
        return BatchOutcome(
            tuple(state.result for state in states if state.result),
            tuple(state.item for state in states if not state.result),
            self._split(crowded, len(keys)),
        )

    def _is_unfinished(self, key: Key) -> bool:
        return key in self._states and self._states[key].result is None

    def _split(self, keys: Sequence[Key], size: int) -> tuple[tuple[Item, ...], ...]:
        half = (size + 1) // 2
        states = [self._states[key] for key in keys]
        for state in states:
            state.batch_limit = half
        return tuple(tuple(s.item for s in states[i : i + half]) for i in range(0, len(states), half))

    def _decide(self, outcome: Mapping[str, Any], worker: str | None) -> ItemState:
        state, status = self._states[outcome["key"]], outcome["status"]
        attempts = state.attempts + 1
        if status not in ("ok", "nan"):
            state.failures[status] += 1
            allowed = self._budgets.get(status, self._budget)
            if not outcome.get("permanent") and state.failures[status] < allowed:
                return state
        item = state.item
        fields = {name: outcome.get(name) for name in ("value", "reason", "traceback", "seconds")}
        state.result = ItemResult(
            item.key, item.index, item.name, item.value, status, attempts=attempts, worker=worker, **fields
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
