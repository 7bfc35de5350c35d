"""Numbers with error bounds, and time against number of workers: a table, Amdahl's law, the knee,
and the fastest number of workers.

Amdahl (1967): a share s of the work cannot be divided, T(n) = T(1) (s + (1 - s) / n).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np

WORTH = 0.5  # efficiency at the knee: below it, an added worker counts as wasted
VERDICTS = {0.8: "good", WORTH: "acceptable", -math.inf: "wasteful"}  # by efficiency
# two-sided 90 % points of Student's distribution for 1, 2, ... degrees of freedom; normal
# distribution beyond
STUDENT = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)
NORMAL = 1.645
ONE_SAMPLE = 1.25  #: factor, up and down, by which a single measurement is assumed to err


@dataclass(frozen=True)
class Interval:
    """A value between two bounds.

    Examples
    --------
    >>> Interval(1, 2, 3) + 1.0
    Interval(low=2.0, value=3.0, high=4.0)
    >>> Interval(1, 2, 3).overlaps(Interval(3, 4, 5))
    True
    """

    low: float
    value: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(
                f"An interval needs low <= value <= high, got {self.low}, {self.value},"
                f" {self.high}."
            )

    @classmethod
    def exactly(cls, value: float) -> Interval:
        """A value without error."""
        return cls(value, value, value)

    @classmethod
    def around(cls, value: float, factor: float) -> Interval:
        """From ``value / factor`` to ``value * factor``."""
        return cls(value / factor, value, value * factor)

    @classmethod
    def of(cls, samples: Sequence[float]) -> Interval:
        """The geometric mean of positive samples with its 90 % interval, since durations err by
        factors.

        Examples
        --------
        >>> Interval.of([10.0, 10.0, 10.0])
        Interval(low=10.0, value=10.0, high=10.0)
        >>> Interval.of([10.0]) == Interval.around(10.0, ONE_SAMPLE)
        True
        """
        if not samples or min(samples) <= 0:
            raise ValueError(f"An interval needs positive samples, got {list(samples)}.")
        if len(samples) == 1:
            return cls.around(samples[0], ONE_SAMPLE)
        logs = np.log(samples)
        free = len(samples) - 1
        t = NORMAL
        if free <= len(STUDENT):
            t = STUDENT[free - 1]
        value = float(round(math.exp(logs.mean()), 12))
        return cls.around(value, math.exp(t * logs.std(ddof=1) / math.sqrt(len(samples))))

    @property
    def bounds(self) -> tuple[float, float, float]:
        return self.low, self.value, self.high

    def overlaps(self, other: Interval) -> bool:
        """Whether both could be the same number."""
        return self.low <= other.high and other.low <= self.high

    def __add__(self, other: Interval | float) -> Interval:
        if not isinstance(other, Interval):
            other = Interval.exactly(other)
        return Interval(self.low + other.low, self.value + other.value, self.high + other.high)

    def __mul__(self, other: Interval | float) -> Interval:
        """The product with a positive number or interval."""
        if not isinstance(other, Interval):
            other = Interval.exactly(other)
        return Interval(self.low * other.low, self.value * other.value, self.high * other.high)


@dataclass(frozen=True)
class Estimate:
    """A number with error bounds and its source.

    Attributes
    ----------
    interval : Interval
    source : str
        ``estimated``, or what was measured and where; shown to the user.
    measured : bool
        Whether the number rests on a measurement of the same or a comparable thing.
    at : float or None
        Time of the measurement in seconds since 1970; None for an assumption.
    """

    interval: Interval
    source: str = "estimated"
    measured: bool = False
    at: float | None = None

    @property
    def value(self) -> float:
        return self.interval.value

    def times(self, factor: Interval | float) -> Estimate:
        """The same estimate, scaled."""
        return replace(self, interval=self.interval * factor)


@dataclass(frozen=True)
class BenchTrial:
    """One run of the workload."""

    workers: int
    seconds: float  # from the first unit's submission to the last record, with all workers ready
    units: int  # that were finished
    repeat: int = 0  # number of the round
    start: float = 0.0  # seconds until the workers were ready and had imported their libraries
    samples: float = 0.0  # sequences that a training learned from


@dataclass(frozen=True)
class ScalingRow:
    """The result of one number of workers; intervals are at 90 %."""

    workers: int
    seconds: Interval
    speedup: Interval
    efficiency: Interval
    worker_hours: float
    cost: float | None
    throughput: float
    samples: float = 0.0


@dataclass(frozen=True)
class Amdahl:
    """T(n) = total * (serial + (1 - serial) / n)."""

    total: float  # seconds on one worker
    serial: Interval  # the share that more workers do not shorten, from 0 to 1

    def seconds(self, workers: float) -> float:
        """Expected seconds on a number of workers."""
        return self.total * divided(self.serial.value, workers)

    @property
    def knee(self) -> int | None:
        """The largest number of workers that are at least half used; None if there is no serial
        share.

        >>> Amdahl(100.0, Interval.exactly(0.1)).knee
        11
        """
        serial = self.serial.value
        if serial <= 1e-6:
            return None
        return int((1 / WORTH - 1 + serial) / serial + 1e-9)


def divided(serial: float, workers: float) -> float:
    """The time on a number of workers as a share of the time on one.

    >>> divided(0.0, 4), divided(1.0, 4)
    (0.25, 1.0)
    """
    return serial + (1 - serial) / workers


def fit(trials: Sequence[BenchTrial]) -> Amdahl | None:
    """Amdahl's law fitted by least squares to trials with two or more numbers of workers; None for
    only one.

    The interval of the serial share spans the fits of the single rounds, since a round's trials
    share its conditions.

    >>> law = Amdahl(100.0, Interval.exactly(0.2))
    >>> fit([BenchTrial(n, law.seconds(n), 1) for n in (1, 2, 4)]).serial.value
    0.2
    """
    if len({trial.workers for trial in trials}) < 2:
        return None
    total, serial = _least_squares(trials)
    shares = [serial]
    for repeat in sorted({trial.repeat for trial in trials}):
        of_round = [trial for trial in trials if trial.repeat == repeat]
        if len({trial.workers for trial in of_round}) > 1:
            shares.append(_least_squares(of_round)[1])
    return Amdahl(total, Interval(min(shares), serial, max(shares)))


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


def rows(
    trials: Sequence[BenchTrial], price: float | None = None, simulated: bool = False
) -> tuple[ScalingRow, ...]:
    """One row for each number of workers, fewest first; the price is that of one worker for an
    hour. Simulated times have no error.
    """
    counts = sorted({trial.workers for trial in trials})
    fewest = counts[0]
    table = []
    for n in counts:
        group = [trial for trial in trials if trial.workers == n]
        if simulated:
            time = Interval.exactly(group[0].seconds)
        else:
            time = Interval.of([trial.seconds for trial in group])
        if n == fewest:
            base = time
            speedup = Interval.exactly(float(fewest))
        else:
            ratio = Interval(base.low / time.high, base.value / time.value, base.high / time.low)
            speedup = ratio * float(fewest)
        hours = n * time.value / 3600
        row = ScalingRow(
            workers=n,
            seconds=time,
            speedup=speedup,
            efficiency=speedup * (1 / n),
            worker_hours=hours,
            cost=None if price is None else price * hours,
            throughput=mean(trial.units for trial in group) / time.value,
            samples=mean(trial.samples for trial in group),
        )
        table.append(row)
    return tuple(table)


def fastest(table: Sequence[ScalingRow]) -> tuple[ScalingRow, ...]:
    """The rows whose times cannot be distinguished from the smallest one.

    >>> seconds = {1: (10, 10.2), 2: (5, 5.1), 4: (4.9, 5.2)}
    >>> trials = [BenchTrial(n, t, 1) for n, times in seconds.items() for t in times]
    >>> [row.workers for row in fastest(rows(trials))]
    [2, 4]
    """
    smallest = min(table, key=lambda row: row.seconds.value).seconds
    return tuple(row for row in table if row.seconds.overlaps(smallest))


def interleaved(counts: Sequence[int], repeats: int) -> tuple[tuple[int, int], ...]:
    """(repeat, workers) in an order that treats all counts alike on a machine that becomes slower.

    >>> interleaved([1, 2], 2)
    ((0, 1), (0, 2), (1, 2), (1, 1))
    """
    trials: list[tuple[int, int]] = []
    for repeat in range(repeats):
        trials += [(repeat, n) for n in counts]
        counts = counts[::-1]
    return tuple(trials)


def makespan(chains: Iterable[Sequence[float]], workers: int, dispatch: float = 0.0) -> float:
    """Seconds until all units are finished, if each free worker takes the next unit that may start.

    A chain holds the seconds of units that must follow each other; an independent unit is a chain
    of one. The driver takes ``dispatch`` seconds for each unit and handles one at a time.

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
        ready, chain, unit = heapq.heappop(waiting)
        driver = max(driver, ready) + dispatch
        done = max(driver, heapq.heappop(free)) + lengths[chain][unit]
        heapq.heappush(free, done)
        end = max(end, done)
        if unit + 1 < len(lengths[chain]):
            heapq.heappush(waiting, (done, chain, unit + 1))
    return end


@dataclass(frozen=True)
class WorkerSize:
    """Cores and memory of a simulated worker, and how many units they allow side by side."""

    cores: int
    memory: float | None  # bytes; None without a limit
    units: int  # side by side
    limit: str  # which of the two allows no more

    @classmethod
    def of(
        cls, cores: int, memory: float | None, unit_cores: int, unit_memory: float
    ) -> WorkerSize:
        """The size of a worker whose units take so many cores and bytes each.

        >>> [WorkerSize.of(8, memory, 2, 5.0).units for memory in (None, 12.0, 4.0)]
        [4, 2, 0]
        """
        by_cores = cores // unit_cores
        if memory is not None:
            by_memory = int(memory // max(1.0, unit_memory))
            if by_memory < by_cores:
                return cls(cores, memory, by_memory, "memory")
        return cls(cores, memory, by_cores, "cores")


def doublings(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... and ``most``.

    >>> doublings(10)
    (1, 2, 4, 8, 10)
    """
    return tuple(dict.fromkeys([*(2**i for i in range(most.bit_length())), most]))
