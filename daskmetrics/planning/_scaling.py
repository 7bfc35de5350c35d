"""Time against number of workers: a table, Amdahl's law, the knee, and a verdict that does not overstate.

Amdahl (1967): a share s of the work cannot be divided, T(n) = T(1) (s + (1 - s) / n).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from daskmetrics.core._estimate import Interval
from daskmetrics.core._text import listed, plural

WORTH = 0.5
"""Efficiency below which a further worker is taken to be wasted: the knee."""


@dataclass(frozen=True)
class BenchTrial:
    """One run of the workload.

    Attributes
    ----------
    workers : int
    seconds : float
        From the first unit's submission to the last record, all workers being there.
    units : int
        Work units that were done.
    repeat : int
        Which round of the interleaved ones.
    start : float
        Seconds until the workers were there and had imported their libraries.
    """

    workers: int
    seconds: float
    units: int
    repeat: int = 0
    start: float = 0.0


@dataclass(frozen=True)
class ScalingRow:
    """What a number of workers comes to; intervals are at 90 %."""

    workers: int
    seconds: Interval
    speedup: Interval
    efficiency: Interval
    worker_hours: float
    cost: float | None
    throughput: float


@dataclass(frozen=True)
class Amdahl:
    """T(n) = total * (serial + (1 - serial) / n).

    Attributes
    ----------
    total : float
        Seconds on one worker.
    serial : Interval
        The share that does not become shorter, from 0 to 1.
    """

    total: float
    serial: Interval

    def seconds(self, workers: int) -> float:
        """Expected on so many workers."""
        return self.total * divided(self.serial.value, workers)

    @property
    def knee(self) -> int | None:
        """The largest number of workers that is at least half used; None if the work divides without end.

        Examples
        --------
        >>> Amdahl(100.0, Interval.exactly(0.1)).knee
        11
        """
        serial = self.serial.value
        return int((1 / WORTH - 1 + serial) / serial + 1e-9) if serial > 1e-6 else None


def divided(serial: float, workers: float) -> float:
    """The share of one worker's time that so many need.

    Examples
    --------
    >>> divided(0.0, 4), divided(1.0, 4)
    (0.25, 1.0)
    """
    return serial + (1 - serial) / workers


def fit(trials: Sequence[BenchTrial]) -> Amdahl | None:
    """Amdahl's law through trials at two or more numbers of workers, by least squares; None if there is but one.

    The interval of the serial share is that of the single rounds, since neighbours of a round had equal conditions.

    Examples
    --------
    >>> law = Amdahl(100.0, Interval.exactly(0.2))
    >>> fit([BenchTrial(n, law.seconds(n), 1) for n in (1, 2, 4)]).serial.value
    0.2
    """
    if len({trial.workers for trial in trials}) < 2:
        return None
    total, serial = _least_squares(trials)
    rounds = [[trial for trial in trials if trial.repeat == r] for r in sorted({trial.repeat for trial in trials})]
    shares = [_least_squares(own)[1] for own in rounds if len({trial.workers for trial in own}) > 1]
    low, high = min([serial, *shares]), max([serial, *shares])
    return Amdahl(total, Interval(low, serial, high))


def _least_squares(trials: Sequence[BenchTrial]) -> tuple[float, float]:
    """Seconds on one worker and serial share, from T = a + b / n with neither below zero."""
    design = np.array([[1.0, 1.0 / trial.workers] for trial in trials])
    seconds = np.array([trial.seconds for trial in trials])
    (fixed, shared), *_ = np.linalg.lstsq(design, seconds, rcond=None)
    if fixed < 0:
        fixed, shared = 0.0, float(seconds @ design[:, 1] / (design[:, 1] @ design[:, 1]))
    elif shared < 0:
        fixed, shared = float(seconds.mean()), 0.0
    return float(fixed + shared), round(float(fixed / (fixed + shared)), 9)


def rows(trials: Sequence[BenchTrial], price: float | None = None) -> tuple[ScalingRow, ...]:
    """One row for each number of workers, fewest first.

    Parameters
    ----------
    trials : sequence of BenchTrial
    price : float, optional
        Of one worker (one GPU) for an hour.
    """
    groups = {n: [trial for trial in trials if trial.workers == n] for n in sorted({t.workers for t in trials})}
    times = {n: Interval.of([trial.seconds for trial in own]) for n, own in groups.items()}
    fewest = min(times)
    return tuple(
        _row(n, times[n], times[fewest], fewest, float(np.mean([t.units for t in own])), price)
        for n, own in groups.items()
    )


def _row(n: int, seconds: Interval, base: Interval, fewest: int, units: float, price: float | None) -> ScalingRow:
    ratio = Interval(base.low / seconds.high, base.value / seconds.value, base.high / seconds.low)
    speedup = Interval.exactly(float(fewest)) if n == fewest else ratio * float(fewest)
    hours = n * seconds.value / 3600
    cost = None if price is None else price * hours
    return ScalingRow(n, seconds, speedup, speedup * (1 / n), hours, cost, units / seconds.value)


def verdict(table: Sequence[ScalingRow]) -> str:
    """Which number of workers is fastest, as far as the intervals tell them apart.

    Examples
    --------
    >>> seconds = {1: (10, 10.2), 2: (5, 5.1), 4: (4.9, 5.2)}
    >>> trials = [BenchTrial(n, t, 1) for n, times in seconds.items() for t in times]
    >>> print(verdict(rows(trials)))
    2 and 4 workers cannot be told apart: their intervals overlap. Of these, 2 cost least. Slower for sure: 1.
    """
    ranked = sorted(table, key=lambda row: row.seconds.value)
    first = ranked[0]
    level = [row for row in ranked if row.seconds.overlaps(first.seconds)]
    slower = sorted(row.workers for row in ranked if row not in level)
    tail = f" Slower for sure: {', '.join(map(str, slower))}." if slower else ""
    if len(level) == 1:
        return f"{plural(first.workers)} {'is' if first.workers == 1 else 'are'} fastest.{tail}"
    names = listed([str(n) for n in sorted(row.workers for row in level)])
    least = min(level, key=lambda row: row.worker_hours).workers
    return f"{names} workers cannot be told apart: their intervals overlap. Of these, {least} cost least.{tail}"


def interleaved(counts: Sequence[int], repeats: int) -> tuple[tuple[int, int], ...]:
    """(repeat, workers) in an order in which a machine that becomes slower hurts all counts alike.

    Examples
    --------
    >>> interleaved([1, 2], 2)
    ((0, 1), (0, 2), (1, 2), (1, 1))
    """
    return tuple((r, n) for r in range(repeats) for n in (counts if r % 2 == 0 else counts[::-1]))


def makespan(chains: Iterable[Sequence[float]], workers: int, dispatch: float = 0.0) -> float:
    """Seconds until all units are done, each free worker taking the next one that may begin.

    Parameters
    ----------
    chains : iterable of sequence of float
        Seconds of units that can only follow each other; a unit that waits for none is a chain of one.
    workers : int
    dispatch : float
        Seconds of the driver for each unit; the driver does one thing at a time.

    Examples
    --------
    >>> makespan([[1.0]] * 5, workers=2)
    3.0
    >>> makespan([[1.0, 1.0, 1.0], [1.0]], workers=2)
    3.0
    """
    lengths = [list(chain) for chain in chains]
    waiting = [(0.0, i, 0) for i, chain in enumerate(lengths) if chain]
    free = [0.0] * min(workers, max(1, len(waiting)))
    driver = end = 0.0
    while waiting:
        ready, chain, place = heapq.heappop(waiting)
        driver = max(driver, ready) + dispatch
        done = max(driver, heapq.heappop(free)) + lengths[chain][place]
        heapq.heappush(free, done)
        end = max(end, done)
        if place + 1 < len(lengths[chain]):
            heapq.heappush(waiting, (done, chain, place + 1))
    return end


def simulated(
    chains: Sequence[Sequence[float]], counts: Sequence[int], dispatch: float = 0.0
) -> tuple[Mapping[int, float], Amdahl | None]:
    """Seconds by number of workers, and the law through them; of workers that never were, from times that were.

    Examples
    --------
    >>> simulated([[1.0]] * 8, [1, 2, 4])[0]
    {1: 8.0, 2: 4.0, 4: 2.0}
    """
    seconds = {n: makespan(chains, n, dispatch) for n in counts}
    return seconds, fit([BenchTrial(n, time, len(chains)) for n, time in seconds.items()])


def doublings(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... and ``most``.

    Examples
    --------
    >>> doublings(10)
    (1, 2, 4, 8, 10)
    """
    powers = [2**i for i in range(most.bit_length()) if 2**i <= most]
    return tuple(dict.fromkeys([*powers, most]))


def increasing(counts: Sequence[int]) -> bool:
    """Whether numbers of workers are positive and each is larger than the one before."""
    return bool(counts) and counts[0] > 0 and all(a < b for a, b in pairwise(counts))
