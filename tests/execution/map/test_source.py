"""The source without Dask: a seeded simulator of workers that die, hang and run out of memory, and
of interruptions.
"""

from __future__ import annotations

import os
import pickle
import random
from collections import Counter

import pytest

from daskmetrics.core.events import Event, ItemsRetried, UnitAsked, UnitsRetried
from daskmetrics.core.results import ItemOutcome, Mapped
from daskmetrics.execution import Record
from daskmetrics.execution.map.source import MapOptions, MapSource, make_spec

HISTORIES = int(os.environ.get("DASKMETRICS_SEEDS", "200"))
FAULTS = ("error", "quarantined", "timeout", "oom", "nan")


def step(item, *, seed, batch_size):
    """Never called here: outcomes are drawn."""


def make_source(n, options, entries=(), **clock):
    return MapSource(make_spec(step, range(n), options), entries, **clock)


class World:
    """Simulated workers: the faults of each item are fixed, kills from outside are random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.n = self.random.randrange(1, 60)
        self.bad = {
            i: self.random.choice(FAULTS) for i in range(self.n) if self.random.random() < 0.1
        }
        self.crowd = {
            i: self.random.randrange(1, 6) for i in range(self.n) if self.random.random() < 0.1
        }
        self.calls: Counter[int] = Counter()

    def run(self, unit) -> Record:
        calls = pickle.loads(unit.args[1])
        for _, value, _ in calls:
            self.calls[value] += 1
        kinds = [self.bad.get(value) for _, value, _ in calls]
        for kind in ("quarantined", "timeout"):
            if kind in kinds:
                return Record(unit.key, unit.name, unit.kind, kind, reason="it was stopped")
        if self.random.random() < 0.02:  # a kill from outside
            return Record(
                unit.key, unit.name, unit.kind, "quarantined", reason="killed from outside"
            )
        outcomes = [self.outcome(call, len(calls)) for call in calls]
        return Record(
            unit.key, unit.name, unit.kind, "ok", Mapped(tuple(outcomes)), seconds=1.0, worker="w"
        )

    def outcome(self, call, size):
        key, value, _ = call
        kind = self.bad.get(value)
        if kind is None and size > self.crowd.get(value, size):
            kind = "oom"
        result = value if kind is None else None
        return ItemOutcome(key, kind or "ok", result, reason=kind, seconds=0.5)


def drive(world: World, entries: list[Event], options: MapOptions, steps: int) -> list:
    """Acts as the loop: a window of units, completed in random order, each recorded first; ends
    after ``steps``.
    """
    results = []
    source = make_source(world.n, options, entries)
    source.on_result = results.append
    known = {e.key: e for e in entries if isinstance(e, Record)}
    running: list = []
    while steps:
        while len(running) < 4 and (units := source.ask(4 - len(running))):
            for unit in units:
                entries.append(UnitAsked(unit.key, unit.name, dict(unit.note)))
                if unit.key in known:
                    source.tell(known[unit.key])
                else:
                    running.append(unit)
        if not running:
            break
        record = world.run(running.pop(world.random.randrange(len(running))))
        assert record.key not in known
        known[record.key] = record
        entries.append(record)
        source.tell(record)
        steps -= 1
    return results


def test_each_item_is_recorded_once_and_only_faulty_ones_fail():
    for seed in range(HISTORIES):
        world, entries, results = World(seed), [], []
        for _ in range(world.random.randrange(4)):
            options = MapOptions(batch_size=world.random.randrange(1, 15), retries=3)
            results += drive(world, entries, options, steps=world.random.randrange(1, 20))
        results += drive(world, entries, MapOptions(batch_size=10, retries=3), steps=-1)
        assert Counter(result.item for result in results) == Counter(range(world.n)), seed
        assert {result.item: result.status for result in results if not result.ok} == world.bad, (
            seed
        )
        replayed = make_source(world.n, MapOptions(3, 3), entries).tracker.results()
        assert replayed == sorted(results, key=lambda result: result.index), seed
        succeeded = Counter(
            o.key
            for e in entries
            if isinstance(e, Record) and e.value
            for o in e.value.items
            if o.status == "ok"
        )
        assert set(succeeded.values()) <= {1}, seed


def test_retries_are_counted_over_interruptions():
    world, entries = World(0), []
    world.n, world.bad, world.crowd = 1, {0: "error"}, {}
    world.random = random.Random(1)
    for _ in range(10):
        drive(world, entries, MapOptions(retries=3), steps=1)
    assert world.calls[0] == 4


def test_a_later_run_with_more_retries_tries_again():
    world, entries = World(0), []
    world.n, world.bad, world.crowd = 1, {0: "error"}, {}
    drive(world, entries, MapOptions(retries=0), steps=-1)
    drive(world, entries, MapOptions(retries=2), steps=-1)
    assert world.calls[0] == 3


@pytest.mark.parametrize("by", ["item", "unit"])
def test_a_retry_by_the_user_resets_the_budget(by):
    world, entries = World(0), []
    world.n, world.bad, world.crowd = 2, {0: "quarantined"}, {}
    world.random = random.Random(1)
    drive(world, entries, MapOptions(retries=1), steps=-1)
    assert world.calls == {0: 2, 1: 1}
    failed = [entry.key for entry in entries if isinstance(entry, Record) and not entry.value]
    retry = ItemsRetried([make_spec(step, range(2)).items[0].key])
    entries.append(retry if by == "item" else UnitsRetried(failed[-1:]))
    world.bad = {}
    (result,) = drive(world, entries, MapOptions(retries=1), steps=-1)
    assert result.ok and result.item == 0 and result.attempts == 3


def test_a_suspect_batch_stays_small_after_an_interruption():
    world, entries = World(0), []
    world.n, world.bad, world.crowd = 8, {3: "quarantined"}, {}
    world.random = random.Random(1)
    drive(world, entries, MapOptions(batch_size=8), steps=1)
    source = make_source(8, MapOptions(batch_size=8), entries)
    assert [len(unit.note["items"]) for unit in source.ask(9)] == [4, 4]


def test_the_timeout_of_a_batch_depends_on_the_longest_item_so_far():
    source = make_source(20, MapOptions(batch_size=10, timeout=60.0))
    first, second = source.ask(2)
    assert first.timeout == 600.0
    keys = first.note["items"]
    outcomes = [ItemOutcome(key, "ok", 1, seconds=0.1) for key in keys]
    source.tell(Record(first.key, first.name, first.kind, "ok", Mapped(tuple(outcomes))))
    source.tell(Record(second.key, second.name, second.kind, "timeout", reason="late"))
    assert source.ask(1)[0].timeout == pytest.approx(60 + 4 * 5 * 0.1)


def test_a_failed_item_waits_behind_the_others_or_on_its_worker():
    now = [0.0]
    source = make_source(3, MapOptions(retries=3), clock=lambda: now[0])

    def fail(unit):
        outcome = ItemOutcome(unit.note["items"][0], "error", reason="no")
        source.tell(Record(unit.key, unit.name, unit.kind, "ok", Mapped((outcome,))))

    first, second = source.ask(2)
    fail(first)
    third, again = source.ask(2)
    assert [unit.args[2] for unit in (first, second, third)] == [0.0] * 3
    assert (again.name, again.args[2]) == (first.name, 0.5)
    assert again.timeout == first.timeout + 0.5
    fail(again)
    now[0] = 0.4
    assert source.ask(1)[0].args[2] == pytest.approx(0.6)
    fail(second)
    now[0] = 9.0
    assert source.ask(1)[0].args[2] == 0.0


def test_a_stopped_source_asks_for_nothing():
    source = make_source(20, MapOptions())
    assert len(source.ask(3)) == 3
    source.stop()
    assert source.ask(3) == []
