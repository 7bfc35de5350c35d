"""The source without Dask: a seeded simulator of workers that die, hang and run out of memory, and of interruptions."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.execution import Record
from daskmetrics.execution.map._function import prepare
from daskmetrics.execution.map._items import items
from daskmetrics.execution.map._source import Map, Options

FAULTS = ("error", "quarantined", "timeout", "oom", "nan")


def step(item, *, seed, batch_size):
    """Never called here: outcomes are drawn."""


FUNCTION = prepare(step)


def things(n):
    return items(range(n), FUNCTION.name, FUNCTION.version)


class World:
    """Workers as data: what an item does is given, what happens besides is drawn."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.n = self.random.randrange(1, 60)
        self.bad = {i: self.random.choice(FAULTS) for i in range(self.n) if self.random.random() < 0.1}
        self.crowd = {i: self.random.randrange(1, 6) for i in range(self.n) if self.random.random() < 0.1}
        self.calls: Counter[int] = Counter()

    def run(self, unit) -> Record:
        calls = pickle.loads(unit.args[1])
        for call in calls:
            self.calls[call.value] += 1
        kinds = [self.bad.get(call.value) for call in calls]
        for kind in ("quarantined", "timeout"):
            if kind in kinds:
                return Record(unit.key, unit.name, unit.kind, kind, reason="it was stopped")
        if self.random.random() < 0.02:  # a kill from outside
            return Record(unit.key, unit.name, unit.kind, "quarantined", reason="killed from outside")
        outcomes = [self.outcome(call, len(calls)) for call in calls]
        return Record(unit.key, unit.name, unit.kind, "ok", {"items": outcomes}, seconds=1.0, worker="w")

    def outcome(self, call, size):
        kind = self.bad.get(call.value)
        if kind is None and size > self.crowd.get(call.value, size):
            kind = "oom"
        told = {"value": call.value} if kind is None else {"reason": kind}
        return {"key": call.key, "status": kind or "ok", "seconds": 0.5, **told}


def drive(world: World, entries: list[dict], options: Options, steps: int) -> list:
    """As the loop does it: a window, completions in any order, the journal before the source; ends after ``steps``."""
    results = []
    source = Map(FUNCTION, things(world.n), options, entries)
    source.on_result = results.append
    known = {e["key"]: Record.from_entry(e) for e in entries if e["type"] == "record"}
    running: list = []
    while steps:
        while len(running) < 4 and (units := source.ask(4 - len(running))):
            for unit in units:
                entries.append({"type": "ask", "key": unit.key, "name": unit.name, "note": dict(unit.note)})
                if unit.key in known:
                    source.tell(known[unit.key])
                else:
                    running.append(unit)
        if not running:
            break
        record = world.run(running.pop(world.random.randrange(len(running))))
        assert record.key not in known
        known[record.key] = record
        entries.append(record.entry())
        source.tell(record)
        steps -= 1
    return results


@pytest.mark.parametrize("block", range(10))
def test_each_item_is_recorded_once_and_only_bad_ones_fail(block):
    for seed in range(100 * block, 100 * block + 100):
        world, entries, told = World(seed), [], []
        for _ in range(world.random.randrange(4)):
            options = Options(batch_size=world.random.randrange(1, 15), retries=3)
            told += drive(world, entries, options, steps=world.random.randrange(1, 20))
        told += drive(world, entries, Options(batch_size=10, retries=3), steps=-1)
        assert Counter(result.item for result in told) == Counter(range(world.n)), seed
        failed = {result.item: result.status for result in told if not result.ok}
        by_chance = {i for i, status in failed.items() if i not in world.bad}
        assert {i: s for i, s in failed.items() if i in world.bad} == world.bad, seed
        assert not by_chance, seed
        replayed = Map(FUNCTION, things(world.n), Options(3, 3), entries).ledger.results()
        assert replayed == sorted(told, key=lambda result: result.index), seed
        fine = Counter(
            o["key"]
            for e in entries
            if e["type"] == "record" and e["value"]
            for o in e["value"]["items"]
            if o["status"] == "ok"
        )
        assert set(fine.values()) <= {1}, seed


def test_retries_are_counted_over_interruptions():
    world, entries = World(0), []
    world.n, world.bad, world.crowd = 1, {0: "error"}, {}
    world.random = random.Random(1)
    for _ in range(10):
        drive(world, entries, Options(retries=3), steps=1)
    assert world.calls[0] == 4


def test_more_retries_later_are_more_chances():
    world, entries = World(0), []
    world.n, world.bad, world.crowd = 1, {0: "error"}, {}
    drive(world, entries, Options(retries=0), steps=-1)
    drive(world, entries, Options(retries=2), steps=-1)
    assert world.calls[0] == 3


@pytest.mark.parametrize("by", ["item", "unit"])
def test_another_chance_is_a_new_budget(by):
    world, entries = World(0), []
    world.n, world.bad, world.crowd = 2, {0: "quarantined"}, {}
    world.random = random.Random(1)
    drive(world, entries, Options(retries=1), steps=-1)
    assert world.calls == {0: 2, 1: 1}
    failed = [entry["key"] for entry in entries if entry["type"] == "record" and not entry["value"]]
    chance = {"type": "chance", "items": [things(2)[0].key]}
    entries.append(chance if by == "item" else {"type": "retry", "keys": failed[-1:]})
    world.bad = {}
    (result,) = drive(world, entries, Options(retries=1), steps=-1)
    assert result.ok and result.item == 0 and result.attempts == 3


def test_a_suspect_batch_stays_small_after_an_interruption():
    world, entries = World(0), []
    world.n, world.bad, world.crowd = 8, {3: "quarantined"}, {}
    world.random = random.Random(1)
    drive(world, entries, Options(batch_size=8), steps=1)
    source = Map(FUNCTION, things(8), Options(batch_size=8), entries)
    assert [len(unit.note["items"]) for unit in source.ask(9)] == [4, 4]


def test_a_deadline_grows_with_the_batch_as_far_as_others_need_it():
    source = Map(FUNCTION, things(20), Options(batch_size=10, timeout=60.0))
    first, second = source.ask(2)
    assert first.timeout == 600.0
    keys = first.note["items"]
    outcomes = [{"key": key, "status": "ok", "value": 1, "seconds": 0.1} for key in keys]
    source.tell(Record(first.key, first.name, first.kind, "ok", {"items": outcomes}))
    source.tell(Record(second.key, second.name, second.kind, "timeout", reason="late"))
    assert source.ask(1)[0].timeout == pytest.approx(60 + 4 * 5 * 0.1)


def test_an_item_that_failed_waits_behind_the_others_or_on_its_worker():
    now = [0.0]
    source = Map(FUNCTION, things(3), Options(retries=3), clock=lambda: now[0])

    def fail(unit):
        outcome = {"key": unit.note["items"][0], "status": "error", "reason": "no"}
        source.tell(Record(unit.key, unit.name, unit.kind, "ok", {"items": [outcome]}))

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


def test_after_a_stop_nothing_is_asked():
    source = Map(FUNCTION, things(20), Options())
    assert len(source.ask(3)) == 3
    source.stop()
    assert source.ask(3) == []


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"retries": -1}])
def test_options_are_checked(options):
    with pytest.raises(ConfigError):
        Options(**options)
