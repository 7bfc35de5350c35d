"""The source without Dask: a seeded simulator of workers that die, hang and run out of memory, and
of interruptions.
"""

from __future__ import annotations

import os
import pickle
import random
from collections import Counter

import pytest

from daskmetrics.domain.events import Event, ItemsRetried, UnitAsked
from daskmetrics.domain.results import ItemOutcome, Mapped
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.map.folder import RecordedResults
from daskmetrics.execution.map.source import MapOptions, MapSource, make_spec

HISTORIES = int(os.environ.get("DASKMETRICS_SEEDS", "60"))
FAULTS = ("error", "quarantined", "timeout", "oom", "nan")


def step(item, *, seed, batch_size):
    """Never called here: outcomes are drawn."""


class World:
    """Simulated workers: the faults of each item are fixed, kills from outside are random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.n = self.random.randrange(1, 60)
        self.bad = {}  # how an item fails
        self.crowd = {}  # with how many others an item runs out of memory
        for i in range(self.n):
            if self.random.random() < 0.1:
                self.bad[i] = self.random.choice(FAULTS)
            if self.random.random() < 0.1:
                self.crowd[i] = self.random.randrange(1, 6)
        self.calls: Counter[int] = Counter()
        self.kills = 0.02
        self.entries: list[Event] = []

    @classmethod
    def quiet(cls, n: int, bad: dict[int, str]) -> World:
        """Of these items and faults, without kills from outside."""
        world = cls(0)
        world.n, world.bad, world.crowd, world.kills = n, bad, {}, 0.0
        return world

    def source(self, options: MapOptions, **clock) -> MapSource:
        return MapSource(make_spec(step, range(self.n), options), self.entries, **clock)

    def run(self, unit) -> Record:
        calls = [pickle.loads(call) for call in unit.args[1]]
        self.calls.update(value for _, value, _ in calls)
        kinds = [self.bad.get(value) for _, value, _ in calls]
        for kind in ("quarantined", "timeout"):
            if kind in kinds:
                return recorded(unit, kind)
        if self.random.random() < self.kills:
            return recorded(unit, "quarantined")
        outcomes = [self.outcome(key, value, len(calls)) for key, value, _ in calls]
        return recorded(unit, "ok", *outcomes)

    def outcome(self, key, value, size) -> ItemOutcome:
        kind = self.bad.get(value)
        if kind is None and size > self.crowd.get(value, size):
            kind = "oom"
        result = value if kind is None else None
        return ItemOutcome(key, kind or "ok", result, reason=kind, seconds=0.5)

    def drive(self, options: MapOptions, steps: int = -1) -> list:
        """Act as the loop: a window of units, completed in random order, each recorded first; end
        after this many.
        """
        results = []
        source = self.source(options)
        source.on_result = results.append
        known = {entry.key: entry for entry in self.entries if isinstance(entry, Record)}
        running: list = []
        while steps:
            while len(running) < 4 and (units := source.ask(4 - len(running))):
                for unit in units:
                    self.entries.append(UnitAsked(unit.key, unit.name, dict(unit.note)))
                    if unit.key in known:
                        source.tell(known[unit.key])
                    else:
                        running.append(unit)
            if not running:
                break
            record = self.run(running.pop(self.random.randrange(len(running))))
            assert record.key not in known
            known[record.key] = record
            self.entries.append(record)
            source.tell(record)
            steps -= 1
        return results


def recorded(unit, status: str, *outcomes: ItemOutcome) -> Record:
    value = Mapped(outcomes) if status == "ok" else None
    reason = None if status == "ok" else "it was stopped"
    return Record(unit.key, unit.name, unit.kind, status, value, reason, worker="w")


def test_each_item_is_recorded_once_and_only_faulty_ones_fail(tmp_path):
    for seed in range(HISTORIES):
        world, results = World(seed), []
        for _ in range(world.random.randrange(4)):
            options = MapOptions(batch_size=world.random.randrange(1, 15), retries=3)
            results += world.drive(options, steps=world.random.randrange(1, 20))
        results += world.drive(MapOptions(batch_size=10, retries=3))
        assert Counter(result.item for result in results) == Counter(range(world.n)), seed
        failed = {result.item: result.status for result in results if not result.ok}
        assert failed == world.bad, seed
        path = tmp_path / f"{seed}.jsonl"
        with Journal(path, tmp_path / "lock") as journal:
            journal.append(*world.entries)
        items = make_spec(step, range(world.n), MapOptions()).items
        assert list(RecordedResults(path, items, 3)) == sorted(
            results, key=lambda result: result.index
        ), seed
        batches = [e.value.items for e in world.entries if isinstance(e, Record) and e.value]
        outcomes = [outcome for batch in batches for outcome in batch if outcome.status == "ok"]
        assert len({outcome.key for outcome in outcomes}) == len(outcomes), seed


def test_retries_count_across_interruptions_and_may_be_raised():
    world = World.quiet(1, {0: "error"})
    for _ in range(10):
        world.drive(MapOptions(retries=2), steps=1)
    assert world.calls[0] == 3
    world.drive(MapOptions(retries=3))
    assert world.calls[0] == 4


def test_a_retry_by_the_user_resets_the_budget():
    world = World.quiet(2, {0: "quarantined"})
    world.drive(MapOptions(retries=1))
    assert world.calls == {0: 2, 1: 1}
    world.entries.append(ItemsRetried([make_spec(step, range(2), MapOptions()).items[0].key]))
    world.bad = {}
    (result,) = world.drive(MapOptions(retries=1))
    assert result.ok and result.item == 0 and result.attempts == 3


def test_a_suspect_batch_stays_small_after_an_interruption():
    world = World.quiet(8, {3: "quarantined"})
    world.drive(MapOptions(batch_size=8), steps=1)
    source = world.source(MapOptions(batch_size=8))
    assert [len(unit.note["items"]) for unit in source.ask(9)] == [4, 4]


def test_a_batchs_timeout_depends_on_the_longest_item_so_far():
    source = World.quiet(20, {}).source(MapOptions(batch_size=10, timeout=60.0))
    first, second = source.ask(2)
    assert first.timeout == 600.0
    outcomes = [ItemOutcome(key, "ok", 1, seconds=0.1) for key in first.note["items"]]
    source.tell(recorded(first, "ok", *outcomes))
    source.tell(recorded(second, "timeout"))
    assert source.ask(1)[0].timeout == pytest.approx(60 + 4 * 5 * 0.1)


def test_a_failed_item_waits_behind_the_others_or_on_its_worker():
    now = 0.0
    source = World.quiet(3, {}).source(MapOptions(retries=3), clock=lambda: now)

    def fail(unit):
        source.tell(recorded(unit, "ok", ItemOutcome(unit.note["items"][0], "error", reason="no")))

    first, second = source.ask(2)
    fail(first)
    third, again = source.ask(2)
    assert [unit.args[2] for unit in (first, second, third)] == [0.0] * 3
    assert (again.name, again.args[2]) == (first.name, 0.5)
    assert again.timeout == first.timeout + 0.5
    fail(again)
    now = 0.4
    assert source.ask(1)[0].args[2] == pytest.approx(0.6)
    fail(second)
    now = 9.0
    assert source.ask(1)[0].args[2] == 0.0
