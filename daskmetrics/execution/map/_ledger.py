"""What is known of every item: how often it failed, in how large a batch it may run, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daskmetrics.core.names import Key
from daskmetrics.execution import Record
from daskmetrics.execution.map._items import Item

BATCH = "batch"  # the kind of the work units of a map


@dataclass(frozen=True)
class Result:
    """What came of one item.

    An item without a value has a `status` other than ``ok`` and a `reason`; with ``nan``, `value` is what was finite
    of it, if anything. `seconds` are those of its last call, None if no call came to an end.
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
class Taken:
    """What a batch that came back means: finished items, those to try again, and smaller batches of suspects."""

    finished: tuple[Result, ...] = ()
    again: tuple[Item, ...] = ()
    suspects: tuple[tuple[Item, ...], ...] = ()


@dataclass
class _State:
    """All that is known of one item, in one place."""

    item: Item
    failures: Counter[str] = field(default_factory=Counter)
    limit: int | None = None  # the largest batch that it may run in, if it is suspected
    result: Result | None = None
    chances: int = 0

    @property
    def tries(self) -> int:
        """Calls that counted, over all chances."""
        return self.failures.total() + self.chances


class Ledger:
    """The state of all items, made from the journal and kept by what comes back.

    Parameters
    ----------
    items : sequence of Item
    retries : int
        How often an item that failed is tried again; an item that ran out of time or memory alone at most once.

    Examples
    --------
    >>> from daskmetrics.execution.map._items import items
    >>> one, two = items("ab", "bench:step", "v1")
    >>> ledger = Ledger([one, two], retries=0)
    >>> died = Record("u", "a, b", "batch", "quarantined", reason="the worker died")
    >>> [[item.name for item in batch] for batch in ledger.take(died, [one.key, two.key]).suspects]
    [['a'], ['b']]
    >>> ledger.take(died, [two.key]).finished[0].status
    'quarantined'
    """

    def __init__(self, items: Sequence[Item], retries: int) -> None:
        self._states = {item.key: _State(item) for item in items}
        self._budgets = {"timeout": min(2, 1 + retries), "oom": min(2, 1 + retries)}
        self._budget = 1 + retries

    def replay(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Take in a journal; batches of items that are not asked for now pass by."""
        asked: dict[Key, Sequence[Key]] = {}
        seen = set()
        for entry in entries:
            if entry["type"] == "ask":
                asked[entry["key"]] = entry["note"].get("items", ())
            elif entry["type"] == "record" and entry["kind"] == BATCH and entry["key"] not in seen:
                seen.add(entry["key"])  # of two records of one key the first counts
                self.take(Record.from_entry(entry), asked.get(entry["key"], ()))
            elif entry["type"] == "chance":
                self.forget(entry["items"])
            elif entry["type"] == "retry":  # names units, as the verb does
                for key in entry.get("keys") or [entry["key"]]:
                    self.forget(asked.get(key, ()))

    def take(self, record: Record, keys: Sequence[Key]) -> Taken:
        """What a batch of these items means, now that it came back."""
        if record.value is None and len(keys) > 1:
            return Taken(suspects=self._halves([self._states[key] for key in keys if self._open(key)], len(keys)))
        alone: list[Mapping[str, Any]] = [
            {"key": key, "status": record.status, "reason": record.reason} for key in keys
        ]
        outcomes = alone if record.value is None else record.value["items"]
        crowded = [o["key"] for o in outcomes if o["status"] == "oom" and len(keys) > 1]
        decided = [self._decide(o, record.worker) for o in outcomes if self._open(o["key"]) and o["key"] not in crowded]
        return Taken(
            tuple(state.result for state in decided if state.result),
            tuple(state.item for state in decided if not state.result),
            self._halves([self._states[key] for key in crowded if self._open(key)], len(keys)),
        )

    def _open(self, key: Key) -> bool:
        return key in self._states and self._states[key].result is None

    def _halves(self, states: Sequence[_State], size: int) -> tuple[tuple[Item, ...], ...]:
        half = (size + 1) // 2
        for state in states:
            state.limit = half
        return tuple(tuple(s.item for s in states[i : i + half]) for i in range(0, len(states), half))

    def _decide(self, outcome: Mapping[str, Any], worker: str | None) -> _State:
        state, status = self._states[outcome["key"]], outcome["status"]
        attempts = state.tries + 1
        if status not in ("ok", "nan"):
            state.failures[status] += 1
            allowed = self._budgets.get(status, self._budget)
            if not outcome.get("permanent") and state.failures[status] < allowed:
                return state
        item = state.item
        told = {name: outcome.get(name) for name in ("value", "reason", "traceback", "seconds")}
        state.result = Result(
            item.key, item.index, item.name, item.value, status, attempts=attempts, worker=worker, **told
        )
        return state

    def forget(self, keys: Iterable[Key]) -> None:
        """Give items another chance: their failures no longer count."""
        for key in keys:
            if key in self._states:
                state = self._states[key]
                state.chances += state.failures.total()
                state.failures, state.result, state.limit = Counter(), None, None

    def failed(self) -> list[Result]:
        """Results that are not ok."""
        return [result for result in self.results() if not result.ok]

    def results(self) -> list[Result]:
        """What is finished, in the order of the items."""
        return [state.result for state in self._states.values() if state.result]

    def open(self) -> list[Item]:
        """What is not finished, in the order of the items."""
        return [state.item for state in self._states.values() if not state.result]

    def limit(self, item: Item) -> int | None:
        """The largest batch that an item may run in, or None."""
        return self._states[item.key].limit

    def tries(self, item: Item) -> int:
        """How often an item was tried so far."""
        return self._states[item.key].tries
