"""Which worker gets which unit, where memory and time differ."""

from __future__ import annotations

import math

from daskmetrics.execution import WorkUnit
from daskmetrics.execution.loop import Joined, Left, Started
from daskmetrics.execution.placement import Placement, QueuedUnit, WorkerState
from tests.execution.test_loop import Bench


def test_a_unit_that_finds_no_worker_hides_none_from_shorter_or_other_units():
    """A round remembers for which resources it found no worker, and for how long."""
    workers = [
        WorkerState("a", "a", 1, {"GPU": 1}, ends=50.0),
        WorkerState("b", "b", 1, {"CPU": 1}, ends=math.inf),
    ]
    placement = Placement(workers, ahead=1, now=0.0)

    def chosen(resources: dict[str, float], seconds: float) -> str | None:
        unit = WorkUnit("u", "u", "demo", print, resources=resources)
        worker = placement.choose(QueuedUnit(unit), seconds)
        return worker.address if worker else None

    assert chosen({"GPU": 1}, 60.0) is None
    assert chosen({"GPU": 1}, 70.0) is None
    assert chosen({"CPU": 1}, 70.0) == "b"
    assert chosen({"GPU": 1}, 40.0) == "a"


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
    assert [attempt.blamed for attempt in bench.attempts()] == [False, True, True]
