"""What a durable map costs beside a plain loop and beside Dask's own `client.map`, per iteration of some milliseconds.

python benchmarks/map.py            500 iterations of 5 ms on two workers, five rounds; a minute
python benchmarks/map.py --small    a few iterations, as a test of correctness

All ways run in turn in each round, and of the rounds the median counts. Overhead is what an iteration takes longer
than its share of a serial run on so many workers: (wall time - serial time / workers) / iterations.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from distributed import Client

import daskmetrics as dm
from daskmetrics.cluster import connect
from daskmetrics.config import Cluster

GOALS = {10: 2.0, 1: 10.0}  # ms of overhead by batch size


def sleeping(item: int, milliseconds: float) -> int:
    """An iteration that leaves the CPU to whoever is measured."""
    time.sleep(milliseconds / 1e3)
    return item


class Step:
    """The function of all ways."""

    def __init__(self, milliseconds: float) -> None:
        self.milliseconds = milliseconds

    def __call__(self, item: int) -> int:
        return sleeping(item, self.milliseconds)


def serial(step: Step, count: int) -> list[int]:
    return [step(item) for item in range(count)]


def bare(client: Client, step: Step, count: int, batch_size: int) -> list[int]:
    """Dask alone: nothing is written down, one death ends it."""
    batches = [range(start, min(start + batch_size, count)) for start in range(0, count, batch_size)]
    futures = client.map(lambda batch: [step(item) for item in batch], batches, pure=False)
    return [value for part in client.gather(futures) for value in part]


def durable(client: Client, step: Step, count: int, batch_size: int) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        results = list(dm.map(step, range(count), client=client, journal=folder, batch_size=batch_size))
    return [result.value for result in sorted(results, key=lambda result: result.index)]


def seconds(call: Callable[[], list[int]], count: int) -> float:
    started = time.perf_counter()
    values = call()
    taken = time.perf_counter() - started
    if values != list(range(count)):
        sys.exit("The values are wrong.")
    return taken


def compare(client: Client, workers: int, count: int, milliseconds: float, rounds: int) -> None:
    """Print the figures of all ways."""
    step = Step(milliseconds)
    ways: dict[tuple[str, int], Callable[[], list[int]]] = {("plain loop", 1): lambda: serial(step, count)}
    for size in GOALS:
        ways["client.map", size] = lambda size=size: bare(client, step, count, size)
        ways["daskmetrics.map", size] = lambda size=size: durable(client, step, count, size)
    durable(client, step, 2 * workers, 1)  # workers import what they need
    times: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, call in ways.items():
            times[way].append(seconds(call, count))
    medians = {way: statistics.median(taken) for way, taken in times.items()}
    share = medians["plain loop", 1] / workers
    print(f"{count} iterations of {milliseconds:g} ms on {workers} workers, median of {rounds}")
    for (name, size), taken in medians.items():
        if name == "plain loop":
            print(f"  {name:>15}            {taken:6.2f} s; {workers} workers could do it in {share:.2f} s")
            continue
        overhead = (taken - share) / count * 1e3
        goal = f" (goal {GOALS[size]:g})" if name == "daskmetrics.map" else ""
        each = f"{overhead:5.2f} ms overhead per iteration{goal}, {taken / share:.2f} x the share"
        print(f"  {name:>15}, batch {size:>2}: {taken:6.2f} s; {each}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few iterations")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(arguments)
    count, rounds = (30, 1) if chosen.small else (500, chosen.rounds)
    with connect(Cluster(workers=chosen.workers)) as client:
        compare(client, chosen.workers, count, chosen.milliseconds, rounds)


if __name__ == "__main__":
    main()
