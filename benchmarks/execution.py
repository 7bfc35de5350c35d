"""Cost of a work unit, growth with the number of units, and how many workers one driver keeps busy.

python benchmarks/execution.py units      CPU of a unit beside client.map, concurrent.futures, joblib, and Parsl if installed
python benchmarks/execution.py growth     journal, memory and resumption of 1,000 to 100,000 units; minutes
python benchmarks/execution.py memory     memory of a driver on a real cluster, as 100,000 units end; half an hour
python benchmarks/execution.py workers    simulated clusters of 8 to 10,000 workers; minutes
python benchmarks/execution.py --small    all four with few units, as a test of correctness

`units` runs everything on workers in this process, so that its CPU time holds driver, scheduler and
worker together. `growth` and `workers` run the real loop, with the real journal in `growth`, on
simulated workers: nothing is computed. In `workers` the clock is simulated, and every step advances
it by the CPU time that the step really took and by `--dask` milliseconds for each submission, which
is what Dask adds for a unit according to `units`.
"""

from __future__ import annotations

import argparse
import heapq
import importlib.util
import itertools
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dask import config
from distributed import Client, LocalCluster
from joblib import Parallel, delayed

from daskmetrics.domain.events import Event
from daskmetrics.domain.record import Record
from daskmetrics.execution import Journal, Settings, Sweep, WorkUnit
from daskmetrics.execution import run as run_source
from daskmetrics.execution.loop import (
    Finished,
    Joined,
    Loop,
    Message,
    Release,
    Started,
    Submit,
)
from daskmetrics.execution.map.api import run as map_items
from daskmetrics.execution.map.source import MapOptions, make_spec

WORKERS = 2


def double(x: int) -> int:
    return 2 * x


def units_of(count: int) -> list[WorkUnit]:
    return [WorkUnit(f"{i:032x}", f"unit {i}", "demo", double, (i,)) for i in range(count)]


# units


def durable(client: Client, count: int) -> list[int]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal(Path(folder, "journal.jsonl"), Path(folder, "lock")) as log,
    ):
        run_source(Sweep(units_of(count)), client, log, Settings(ahead=8))
        return [record.value for record in log.records()]


def durable_map(client: Client, count: int, batch_size: int) -> list[int]:
    options = MapOptions(batch_size)
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal(Path(folder, "journal.jsonl"), Path(folder, "lock")) as log,
    ):
        # `daskmetrics.map` refuses workers in this process
        results = map_items(make_spec(double, range(count), options), client, log)
        return [result.value for result in results]


def threads(count: int) -> list[int]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return [future.result() for future in [pool.submit(double, i) for i in range(count)]]


@contextmanager
def parsl_app() -> Iterator[Callable[[int], Any]]:
    """`double` as an app of Parsl with two threads, without its journal of results."""
    parsl = importlib.import_module("parsl")
    executor = parsl.executors.ThreadPoolExecutor(max_threads=WORKERS)
    with tempfile.TemporaryDirectory() as folder:
        settings = parsl.Config(executors=[executor], run_dir=folder, initialize_logging=False)
        with parsl.load(settings):
            yield parsl.python_app(double)
        parsl.clear()


def units(count: int, rounds: int) -> None:
    """Print the CPU and wall time of a unit in all variants, the smallest of some rounds."""
    with ExitStack() as stack:
        stack.enter_context(config.set({"distributed.worker.memory.terminate": False}))
        client = stack.enter_context(cluster())
        variants: dict[str, Callable[[], list[int]]] = {
            "daskmetrics, units": lambda: durable(client, count),
            "daskmetrics.map, single items": lambda: durable_map(client, count, 1),
            "daskmetrics.map, batches of 10": lambda: durable_map(client, count, 10),
            "client.map": lambda: client.gather(client.map(double, range(count), pure=False)),
            "concurrent.futures, threads": lambda: threads(count),
            "joblib, threads": lambda: Parallel(WORKERS, "threading")(
                delayed(double)(i) for i in range(count)
            ),
        }
        if importlib.util.find_spec("parsl"):
            app = stack.enter_context(parsl_app())
            variants["Parsl, threads"] = lambda: [
                future.result() for future in [app(i) for i in range(count)]
            ]
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, call in variants.items():
                wall, cpu = time.perf_counter(), time.process_time()
                values = call()
                times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
                if sorted(values) != [2 * i for i in range(count)]:
                    sys.exit(f"{name}: the values are wrong.")
    print(f"{count} units on {WORKERS} workers in this process, ms per unit, smallest of {rounds}")
    for name, taken in times.items():
        cpu, wall = (min(column) / count * 1e3 for column in zip(*taken, strict=True))
        print(f"  {name:>31}: {cpu:6.2f} CPU, {wall:6.2f} wall")


@contextmanager
def cluster() -> Iterator[Client]:
    with (
        LocalCluster(
            WORKERS, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as workers,
        Client(workers) as client,
    ):
        yield client


# simulated workers


class MemoryLog(list[Event]):
    """A journal that is not on disk."""

    entries = property(lambda self: self)

    def append(self, *entries: Event, wait: bool = True) -> None:  # type: ignore[override]
        self.extend(entries)

    def records(self) -> Iterator[Record]:
        return (entry for entry in self if isinstance(entry, Record))


class SimulatedWorkers:
    """Workers with one thread each, which run what they have one after the other, whatever the
    driver does.
    """

    def __init__(self, count: int, seconds: float) -> None:
        self.seconds, self.chance = seconds, random.Random(0)
        self.busy = 0.0  # seconds of all workers
        self.queues = {f"tcp://{i}": deque[str]() for i in range(count)}
        self.waiting: set[str] = set()  # attempts that have not begun, and were not taken away
        self._running: set[str] = set()  # workers
        self._events: list[tuple[float, int, str, str, float]] = []
        self._numbers = itertools.count()

    @property
    def next(self) -> float:
        """When something happens."""
        return self._events[0][0] if self._events else math.inf

    def submit(self, at: float, task: str, worker: str) -> None:
        self.queues[worker].append(task)
        self.waiting.add(task)
        if worker not in self._running:
            self._begin(at, worker)

    def until(self, now: float) -> list[Message]:
        """What happens until now."""
        messages: list[Message] = []
        while self.next <= now:
            at, _, worker, task, length = heapq.heappop(self._events)
            messages.append(Finished(task, 1.5, length) if length else Started(task))
            if length:
                self._running.remove(worker)
                self._begin(at, worker)
        return messages

    def _begin(self, at: float, worker: str) -> None:
        queue = self.queues[worker]
        while queue and (task := queue.popleft()):
            if task in self.waiting:
                self.waiting.remove(task)
                self._running.add(worker)
                length = self.seconds * self.chance.uniform(0.5, 1.5)
                self.busy += length
                heapq.heappush(self._events, (at, next(self._numbers), worker, task, 0.0))
                heapq.heappush(
                    self._events, (at + length, next(self._numbers), worker, task, length)
                )
                return


def simulate(
    count: int,
    workers: int,
    seconds: float,
    dask: float,
    log: Journal | MemoryLog,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Run units on simulated workers: utilisation of the workers, and CPU seconds of the loop.

    Parameters
    ----------
    count, workers : int
    seconds : float
        Mean length of a unit; they are between half and one and a half of it.
    dask : float
        Seconds that Dask adds for each unit in the driver and the scheduler.
    log : Journal or MemoryLog
    clock : callable
        What a step of the loop takes by it passes for the workers, too; with `time.perf_counter`
        the wait for the disk.
    """
    loop = Loop(Sweep(units_of(count)), log, Settings())  # type: ignore[arg-type]
    world = SimulatedWorkers(workers, seconds)
    messages: list[Message] = [Joined(address, address) for address in world.queues]
    now = spent = first = 0.0
    while True:
        started = clock(), time.process_time()
        actions = loop.step(now, messages)
        taken, cpu = clock() - started[0], time.process_time() - started[1]
        if loop.done:
            break
        spent, first = spent + cpu, first or cpu
        now += taken
        for action in actions:
            if isinstance(action, Submit):
                now += dask
                world.submit(now, action.task, action.worker)
            elif isinstance(action, Release):
                world.waiting.discard(action.task)
        now = max(now, min(loop.wake, world.next))
        messages = world.until(now)
    return {
        "utilisation": world.busy / workers / now if now else 0.0,
        "ms": spent / count * 1e3,
        "first": first,
        "makespan": now,
    }


def workers(sizes: Sequence[int], lengths: Sequence[float], dask: float, most: int) -> None:
    """Print the utilisation of simulated clusters by the length of a unit."""
    print(
        f"simulated, {dask * 1e3:g} ms of Dask per unit: share of their time that the workers compute"
    )
    print(
        "  workers     units  first placing  loop per unit  "
        + "  ".join(f"{length:>6g} s" for length in lengths)
    )
    for size in sizes:
        count = min(most, 100 * size)
        found = [simulate(count, size, length, dask, MemoryLog()) for length in lengths]
        each = "  ".join(f"{result['utilisation']:>7.0%} " for result in found)
        cost = min(result["ms"] for result in found)
        print(
            f"  {size:>7,} {count:>9,}  {min(r['first'] for r in found):>11.2f} s  {cost:>10.3f} ms  {each}",
            flush=True,
        )


# growth


def growth(sizes: Sequence[int]) -> None:
    """Print journal, memory and resumption of runs of some sizes, each in a process of its own."""
    print("on 1,000 simulated workers, units of 1 s")
    print("   units  journal MB  driver MB (before)  CPU of loop and journal  resumed in")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            once, again = (_measured(size, folder) for _ in range(2))
            megabytes = Path(folder, "journal.jsonl").stat().st_size / 1e6
        memory = f"{once['peak']:>9.0f} ({once['base']:.0f})"
        print(
            f"{size:>8,}  {megabytes:>10.1f}  {memory:>18}  {once['ms']:>9.3f} ms/unit  {again['seconds']:>8.2f} s",
            flush=True,
        )


def _measured(size: int, folder: str) -> dict[str, float]:
    command = [sys.executable, __file__, "grow", "--units", str(size), "--folder", folder]
    return dict(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


def grow(size: int, folder: Path) -> dict[str, float]:
    """Run units on simulated workers, or resume them where the journal holds them."""
    base = peak_memory()
    started = time.process_time()
    with Journal(folder / "journal.jsonl", folder / "lock") as log:
        result = simulate(size, 1000, 1.0, 0.0, log, time.perf_counter)
    return {**result, "seconds": time.process_time() - started, "base": base, "peak": peak_memory()}


def peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def memory(sizes: Sequence[int]) -> None:
    """Print the memory of the driver, which holds the scheduler too, after some numbers of units of
    one run.
    """
    print("two workers, units that compute nothing\n   units  driver MB  more KB per unit")
    seen = [(0, 0.0)]
    ended = itertools.count(1)

    def look(record: Record) -> None:
        if (number := next(ended)) in sizes:
            now = (
                int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e3
            )
            print(
                f"{number:>8,}  {now / 1e3:>9.1f}  {(now - seen[-1][1]) / (number - seen[-1][0]):>16.1f}",
                flush=True,
            )
            seen.append((number, now))

    with (
        LocalCluster(WORKERS, threads_per_worker=1, dashboard_address=":0") as workers,
        Client(workers) as client,
        tempfile.TemporaryDirectory() as folder,
        Journal(Path(folder, "journal.jsonl"), Path(folder, "lock")) as log,
    ):
        run_source(Sweep(units_of(sizes[-1])), client, log, Settings(ahead=8), look)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=["units", "growth", "memory", "workers", "grow"])
    parser.add_argument("--small", action="store_true", help="few units")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dask", type=float, default=2.0, help="ms that Dask takes for a unit")
    parser.add_argument(
        "--units", type=int, default=1_000_000, help="the most units of a simulated cluster"
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.part == "grow":
        print(json.dumps(grow(chosen.units, chosen.folder)))
        return
    parts: dict[str, Callable[[], Any]] = {
        "units": lambda: units(50, 1) if chosen.small else units(1000, chosen.rounds),
        "growth": lambda: growth([200] if chosen.small else [1_000, 10_000, 100_000]),
        "memory": lambda: memory([10, 20] if chosen.small else [1, 2_000, 20_000, 100_000]),
        "workers": lambda: workers(
            [8, 64] if chosen.small else [8, 100, 1_000, 10_000],
            [1.0] if chosen.small else [1.0, 10.0, 60.0, 600.0],
            chosen.dask / 1e3,
            500 if chosen.small else chosen.units,
        ),
    }
    for name in [chosen.part] if chosen.part else parts:
        parts[name]()


if __name__ == "__main__":
    main()
