"""Why workers are idle: decided from the state of the loop, and shown while a process drives a run."""

from __future__ import annotations

from daskmetrics.core.files import RunFolder
from daskmetrics.execution import Journal, Settings, Sweep, WorkUnit, run
from daskmetrics.execution.loop import Joined, Left, OfferChanged, Started, StopRequested
from daskmetrics.execution.placement import Capacity
from tests.execution.test_loop import Bench

GPU, CPU = {"GPU": 1}, {"CPU": 1}


def now(bench: Bench) -> dict[str, int]:
    loop = bench.loop
    state = Capacity.of(loop.workers.values(), loop.unplaced.values(), loop.now, loop.stopping)
    assert state.busy + sum(state.idle.values()) == state.known == len(loop.workers)
    return dict(state.idle)


def test_each_reason_for_an_idle_worker():
    bench = Bench(
        [WorkUnit(f"u{i}", f"u{i}", "demo", print, resources=GPU) for i in range(2)],
        slots=2,
        most_memory=8,
    )
    bench.step(Joined("c", "c", resources=CPU))
    assert now(bench) == {"no unit that is ready fits what they offer": 1}
    placed = bench.submitted(*(Joined(name, name, resources=GPU, memory=4) for name in "gh"))
    assert now(bench) == {"no unit is ready": 1}, "both units run, and the source has no more"
    bench.step(*(Started(submit.task) for submit in placed))
    bench.step(
        Left("h", memory=True),
        Joined("i", "i", resources=GPU, memory=4),
        OfferChanged("c", {"CPU": 0}),
        after=40,
    )
    assert now(bench) == {"they get no more work": 1, "no unit is ready": 1}, (
        "it is tried again later"
    )
    bench.step(after=40)
    assert now(bench) == {
        "they get no more work": 1,
        "no unit that is ready fits what they offer": 1,
    }
    bench.step(StopRequested(100.0))
    assert now(bench) == {"the run stops": 2}


def test_the_driver_writes_how_many_workers_are_busy(client, tmp_path):
    seen = []

    class Watched(Sweep):
        def tell(self, record):
            seen.append(Capacity.read(RunFolder(tmp_path)))
            super().tell(record)

    units = [WorkUnit(f"u{i}", f"u{i}", "demo", abs, (i,)) for i in range(4)]
    with Journal(tmp_path / "journal.jsonl", tmp_path / "lock") as journal:
        run(Watched(units), client, journal, Settings())
    assert seen[0] is not None and seen[0].waiting + seen[0].busy > 0
    assert not RunFolder(tmp_path).workers.exists()
