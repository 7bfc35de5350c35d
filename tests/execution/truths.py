"""What must hold in every history that the simulator plays, whatever dies, freezes or comes late."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from daskmetrics.domain.events import AttemptFailed, Event, from_json, to_json
from daskmetrics.execution import Record, Sweep, WorkUnit
from daskmetrics.execution.loop import Left, Submit

if TYPE_CHECKING:
    from tests.execution.simulator import World

NEVER = math.inf
#: how a unit behaves, and the status that it must get however it is disturbed
NATURES = {
    "good": "ok",
    "flaky": "ok",  # two exceptions, then good
    "disk": "ok",  # finds no room for a while
    "error": "error",
    "permanent": "error",
    "nan": "nan",
    "cuda": "oom",
    "hog": "oom",  # is killed by its nanny
    "hang": "timeout",
    "poison": "quarantined",
}


class Crash(Exception):
    """The driver was killed."""


class MemoryJournal:
    """A journal that is killed before or after one of its lines is on disk; lines that did not wait
    are lost then.

    Of lines that are written together, those before that one are on disk.
    """

    def __init__(self) -> None:
        self.entries: list[Event] = []
        self.crash: tuple[int, bool] | None = None
        self._safe = 0

    def append(self, *entries, wait=True) -> None:
        number, before = self.crash or (-1, False)
        for entry in entries:
            if number == len(self.entries) and before:
                self._die()
            self.entries.append(from_json(json.loads(json.dumps(to_json(entry), allow_nan=False))))
            if wait:
                self._safe = len(self.entries)
            if number == len(self.entries) - 1:
                self._die()

    def _die(self) -> None:
        self.crash = None
        del self.entries[self._safe :]
        raise Crash

    def records(self):
        return (entry for entry in self.entries if isinstance(entry, Record))


class CheckedSweep(Sweep):
    """Checks that the journal holds every record that the source receives, and that it receives
    each once.

    Like a search, it asks for no more while ``window`` units have no record.
    """

    def __init__(self, units, journal: MemoryJournal, window: float) -> None:
        super().__init__(units)
        self.journal, self.window, self.received = journal, window, set()
        self.asked: dict[str, str | None] = {}  # inputs of units without a record

    def ask(self, n: int):
        units = super().ask(min(n, self.window - len(self.asked)))
        self.asked |= {unit.key: unit.input and unit.input.key for unit in units}
        return units

    def tell(self, record: Record) -> set[str]:
        assert record.key not in self.received, f"{record.key} received twice"
        written = (replace(r, at=0.0) for r in self.journal.records())
        assert any(r == replace(record, at=0.0) for r in written), (
            f"{record.key} received before it was in the journal"
        )
        self.received.add(record.key)
        released = set(super().tell(record))
        used = self.asked.pop(record.key)
        if used and len(self.received) % 2 and used not in self.asked.values():
            released.add(used)  # before its last unit
        assert not released & set(self.asked.values())
        return released


def submission(world: World, submit: Submit) -> None:
    unit, worker = submit.unit, world.loop.workers[submit.worker]
    assert not world.loop.stopping, "submitted although it was asked to stop"
    assert world.now >= world.paused_until, "submitted although a disk is full"
    assert submit.task not in world.sent
    assert (submit.given is not None) == (unit.input is not None)
    assert submit.given is None or submit.given in world.sent, "the input was released"
    here = [item for item in worker.placed if item.task != submit.task]
    assert len(here) < worker.threads + world.ahead, "too many on a worker"
    suspects = [item for item in (*here, *worker.placed) if item.suspect]
    assert not suspects or worker.threads == 1 or not here, "a suspect must run alone"
    expected = min(1.5 * world.longest[unit.kind], unit.timeout or NEVER)
    ends = world.workers[submit.worker].ends
    assert world.now + expected <= ends + 0.1, "it does not fit before the walltime's end"
    if ends < NEVER:
        assert len(here) < worker.threads, "it would wait while the walltime runs"
    retry(world, submit)


def step(world: World, messages: list, attempts: list[AttemptFailed]) -> None:
    for entry in attempts:
        world.faulted[entry.key] = world.tried_at.pop(entry, world.now), entry.worker
    match messages:
        case [Left(_, expired)] if expired:
            keys = {task.split("-")[1] for task in expired}
            for entry in attempts:  # another one that hangs may have been late, too
                assert entry.key in keys or world.nature[entry.key] == "hang", (
                    "a bystander was blamed"
                )


def workers(world: World) -> None:
    for worker in world.workers.values():
        known = worker.address in world.loop.workers
        assert not (worker.alive and worker.greeted) or known or worker.killed, (
            "a worker was forgotten"
        )
    for run in world.sent.values():
        if run.announced is not None and not run.heard and run.submit.unit.timeout:
            assert world.now <= run.announced + run.submit.unit.timeout + world.settings.grace, (
                "never stopped"
            )


def retry(world: World, submit: Submit) -> None:
    """Not before its time, and elsewhere where there is an elsewhere."""
    if submit.unit.key not in world.faulted:
        return
    at, where = world.faulted[submit.unit.key]
    faults = [entry for entry in attempts_of(world) if entry.key == submit.unit.key]
    faults = faults[world.forgiven[submit.unit.key] :]
    of_kind = (
        sum(e.fault == faults[-1].fault and e.blamed for e in faults) if faults[-1].blamed else 1
    )
    assert world.now >= at + min(30.0, 0.5 * 2 ** (of_kind - 1)) - 1e-6, "tried again too early"
    able = {host.name for host in world.loop.workers.values() if world.now + 15 <= host.ends}
    if world.walltime == NEVER and able - {where}:
        assert world.loop.workers[submit.worker].name != where, "tried again on the same worker"


def end(world: World) -> None:
    records = [r.key for r in world.journal.records()]
    assert len(records) == len(set(records)), "recorded twice"
    recorded = {r.key: r for r in world.journal.records()}
    assert recorded.keys() == {unit.key for unit in world.units}, "lost"
    for unit in world.units:
        record(world, unit, recorded[unit.key])
    deaths = [entry for entry in attempts_of(world) if entry.fault == "death"]
    assert Counter(entry.key for entry in deaths) <= world.there, (
        "suspected of a death it was not there for"
    )
    blamed = Counter(entry.key for entry in deaths if entry.blamed)
    assert blamed <= world.alone, "blamed for a death with which it was not alone"
    poisons = [key for key, nature in world.nature.items() if nature == "poison"]
    # that an input is to blame is not recorded: each life finds it out again
    lives = 1 + world.crashes + world.stops
    assert max((blamed[key] for key in poisons), default=0) < 6 + lives


def attempts_of(world: World) -> list[AttemptFailed]:
    return [entry for entry in world.journal.entries if isinstance(entry, AttemptFailed)]


def record(world: World, unit: WorkUnit, record: Record) -> None:
    expected = NATURES[world.nature[unit.key]]
    if unit.input and NATURES[world.nature[unit.input.key]] != "ok":
        expected = NATURES[world.nature[unit.input.key]]
        assert unit.input.name in (record.reason or "")
    assert record.status == expected, (
        f"{unit.key} ({world.nature[unit.key]}): {record.status}, {record.reason}"
    )
    assert record.value == (unit.key if record.ok else None)
    assert record.ok == (record.reason is None)
    attempts = sum(entry.key == unit.key for entry in attempts_of(world)) + record.ok
    assert record.attempts == attempts or (unit.input and not record.ok)
