"""The heaps choose as a look at all workers would."""

from __future__ import annotations

import math
import random

import pytest

from daskmetrics.core._events import AttemptFailed
from daskmetrics.execution import WorkUnit
from daskmetrics.execution._messages import Joined, Left, Started
from daskmetrics.execution._placement import Placement, QueuedUnit, WorkerState
from tests.execution.test_loop import Bench

RESOURCES = ({}, {"GPU": 1}, {"CPU": 1}, {"GPU": 1, "CPU": 2})


def new_worker(chance: random.Random, number: int) -> WorkerState:
    offers = {"GPU": chance.randint(0, 2), "CPU": chance.randint(0, 3)}
    ends = chance.choice([math.inf, math.inf, 50.0])
    return WorkerState(f"tcp://{number}", f"w{number}", chance.randint(1, 3), offers, ends)


def new_unit(chance: random.Random, number: int) -> QueuedUnit:
    keeps = chance.choice([None, None, "x", "y", "z"])
    resources = chance.choice(RESOURCES)
    return QueuedUnit(WorkUnit(f"u{number}", f"u{number}", "demo", print, resources=resources, keeps=keeps))


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_that_among_all_workers(seed):
    chance = random.Random(seed)
    workers: dict[str, WorkerState] = {}
    placement = Placement(workers, ahead=seed % 3)
    chosen = 0
    for number in range(300):
        if chance.random() < 0.1 or not workers:
            worker = new_worker(chance, number)
            workers[worker.address] = worker
            placement.update(worker)
        if chance.random() < 0.05:
            del workers[chance.choice(list(workers))]
        for worker in workers.values():
            if worker.placed and chance.random() < 0.2:
                worker.placed.remove(chance.choice(worker.placed))
                placement.update(worker)
            elif chance.random() < 0.02:
                worker.change({"GPU": chance.randint(0, 2)})
                placement.update(worker)
        placement.begin(now=number / 4)
        for part in range(chance.randint(0, 4)):
            item = new_unit(chance, 10 * number + part)
            seconds, near = chance.choice([0.0, 20.0]), chance.choice([None, *workers])
            worker = placement.choose(item, seconds, near)
            assert worker is placement._choose_among_all(item, seconds, near)
            if worker:
                chosen += 1
                worker.placed.append(item)
                worker.at_hand = item.unit.keeps or worker.at_hand
                placement.update(worker)
    assert chosen > 50


def test_a_unit_that_was_killed_for_memory_waits_for_more_where_there_can_be_more():
    bench = Bench([WorkUnit("u", "u", "demo", print)], most_memory=8)
    (attempt,) = bench.submitted(Joined("w", "w", memory=4))
    bench.step(Started(attempt.task))
    assert not bench.submitted(Left("w", memory=True), Joined("x", "x", memory=4), after=40)
    (attempt,) = bench.submitted(Joined("y", "y", memory=8), after=40)
    assert attempt.worker == "y"
    bench.step(Started(attempt.task))
    bench.step(Left("y", memory=True))  # there is no more, so that it counts
    (attempt,) = bench.submitted(Joined("z", "z", memory=8), after=40)
    bench.step(Started(attempt.task))
    bench.step(Left("z", memory=True))
    assert bench.statuses() == {"u": "oom"}
    counted = [entry.blamed for entry in bench.journal.entries if isinstance(entry, AttemptFailed)]
    assert counted == [False, True, True]
