"""Overhead of a durable map per iteration, compared with a plain loop and with `client.map` of
Dask.

python benchmarks/map.py            500 iterations of 5 ms on two workers, five rounds; takes a minute
python benchmarks/map.py --small    a few iterations, as a test of correctness

Every variant runs once per round, and the median over the rounds is reported. The overhead of an
iteration is (wall time - serial time / workers) / iterations.
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

GOALS = {10: 2.0, 1: 10.0}  # ms of overhead per iteration, by batch size


class Step:
    """The function of all variants; it sleeps, so that only the overhead uses the CPU."""

    def __init__(self, milliseconds: float) -> None:
        self.milliseconds = milliseconds

    def __call__(self, item: int) -> int:
        time.sleep(self.milliseconds / 1e3)
        return item


def serial(step: Step, count: int) -> list[int]:
    return [step(item) for item in range(count)]


def bare(client: Client, step: Step, count: int, batch_size: int) -> list[int]:
    """Dask alone: no journal, and one lost worker ends the run."""
    batches = [
        range(start, min(start + batch_size, count)) for start in range(0, count, batch_size)
    ]
    futures = client.map(lambda batch: [step(item) for item in batch], batches, pure=False)
    return [value for part in client.gather(futures) for value in part]


def durable(client: Client, step: Step, count: int, batch_size: int) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        results = list(
            dm.map(step, range(count), client=client, journal=folder, batch_size=batch_size)
        )
    return [result.value for result in sorted(results, key=lambda result: result.index)]


def seconds(call: Callable[[], list[int]], count: int) -> float:
    started = time.perf_counter()
    values = call()
    taken = time.perf_counter() - started
    if values != list(range(count)):
        sys.exit("The values are wrong.")
    return taken


def compare(client: Client, workers: int, count: int, milliseconds: float, rounds: int) -> None:
    """Print the wall time and overhead of all variants."""
    step = Step(milliseconds)
    variants: dict[tuple[str, int], Callable[[], list[int]]] = {
        ("plain loop", 1): lambda: serial(step, count)
    }
    for size in GOALS:
        variants["client.map", size] = lambda size=size: bare(client, step, count, size)
        variants["daskmetrics.map", size] = lambda size=size: durable(client, step, count, size)
    durable(client, step, 2 * workers, 1)  # lets the workers import their modules
    times: dict[tuple[str, int], list[float]] = {variant: [] for variant in variants}
    for _ in range(rounds):
        for variant, call in variants.items():
            times[variant].append(seconds(call, count))
    medians = {variant: statistics.median(taken) for variant, taken in times.items()}
    ideal = medians["plain loop", 1] / workers
    print(f"{count} iterations of {milliseconds:g} ms on {workers} workers, median of {rounds}")
    for (name, size), taken in medians.items():
        if name == "plain loop":
            print(
                f"  {name:>15}            {taken:6.2f} s; ideal on {workers} workers: {ideal:.2f} s"
            )
            continue
        overhead = (taken - ideal) / count * 1e3
        goal = f" (goal {GOALS[size]:g})" if name == "daskmetrics.map" else ""
        each = f"{overhead:5.2f} ms overhead per iteration{goal}, {taken / ideal:.2f} x the ideal"
        print(f"  {name:>15}, batch {size:>2}: {taken:6.2f} s; {each}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
