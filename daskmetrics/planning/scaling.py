"""Time against number of workers: Amdahl's law, the knee, the fastest number of workers, and their
tables.

Amdahl (1967): a share s of the work cannot be divided, T(n) = T(1) (s + (1 - s) / n).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import fsum
from operator import attrgetter
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, listed, plural, size_text
from daskmetrics.planning.options import Interval, amount, bounded, divided, doublings

if TYPE_CHECKING:
    from daskmetrics.planning.estimate import Sample

WORTH = 0.5  # efficiency at the knee: below it, an added worker counts as wasted
VERDICTS = {0.8: "good", WORTH: "acceptable", -math.inf: "wasteful"}  # by efficiency


@dataclass(frozen=True)
class BenchTrial:
    """One run of the work."""

    workers: int
    seconds: float  # from the first unit's submission to the last record, with all workers ready
    # seconds of each unit on its worker; units that must follow each other are in one chain
    chains: tuple[tuple[float, ...], ...]
    samples: tuple[Sample, ...] = ()
    repeat: int = 0  # number of the round
    start: float = 0.0  # seconds until the workers were ready and had imported their libraries
    sequences: float = 0.0  # that a training by process groups learned from
    memory: int = 0  # greatest peak of a worker in bytes

    @property
    def units(self) -> int:
        """How many were finished."""
        return sum(map(len, self.chains))


@dataclass(frozen=True)
class ScalingRow:
    """The result of one number of workers; intervals are at 90 %."""

    workers: int
    seconds: Interval
    speedup: Interval
    efficiency: Interval
    units: float
    sequences: float

    @property
    def worker_hours(self) -> float:
        return self.workers * self.seconds.value / 3600


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


@dataclass(frozen=True)
class Bench:
    """Trials of the same work with several numbers of workers."""

    name: str  # of the work
    trials: tuple[BenchTrial, ...]
    cores: int = 1  # of a worker, which computed one unit at a time

    @property
    def fewest(self) -> list[BenchTrial]:
        """The trials with the fewest workers, whose units disturb each other least; the quickest
        first.
        """
        workers = min(trial.workers for trial in self.trials)
        fewest = [trial for trial in self.trials if trial.workers == workers]
        return sorted(fewest, key=attrgetter("seconds"))

    @property
    def memory(self) -> int:
        """Bytes; the peak of such a worker."""
        return max(trial.memory for trial in self.fewest)

    @property
    def is_shared(self) -> bool:
        """Whether all workers share each unit, as in a training by process groups."""
        return any(trial.sequences for trial in self.trials)

    @property
    def dispatch(self) -> float:
        """Seconds of the driver per unit: what the fewest workers took beyond their units, divided
        by the units.
        """
        quickest = self.fewest[0]
        busy = fsum(map(fsum, quickest.chains)) / quickest.workers
        return max(0.0, (quickest.seconds - busy) / max(1, quickest.units))

    def seconds(self, slots: int) -> float:
        """Simulated seconds, if so many units are computed side by side."""
        return makespan(self.fewest[0].chains, slots, self.dispatch)

    def simulated(self, most: int) -> list[BenchTrial]:
        """Trials of up to ``most`` simulated workers, from the measured seconds of the units.

        Workers that share each unit follow the measured law; ConfigError if it could not be fitted.
        """
        measured = self.fewest[0]
        law = fit(self.trials)
        if self.is_shared and law is None:
            raise ConfigError("More workers are simulated from two measured numbers: --workers 1,2")
        seconds = law.seconds if self.is_shared and law else self.seconds
        return [replace(measured, workers=n, seconds=seconds(n)) for n in doublings(most)]


def fit(trials: Sequence[BenchTrial]) -> Amdahl | None:
    """Amdahl's law fitted by least squares to trials with two or more numbers of workers; None for
    only one.

    The interval of the serial share spans the fits of the single rounds, since a round's trials
    share its conditions.

    >>> law = Amdahl(100.0, Interval.exactly(0.2))
    >>> fit([BenchTrial(n, law.seconds(n), ()) for n in (1, 2, 4)]).serial.value
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
    from scipy.optimize import nnls

    design = np.array([[1.0, 1.0 / trial.workers] for trial in trials])
    (fixed, shared), _ = nnls(design, [trial.seconds for trial in trials])
    return float(fixed + shared), round(float(fixed / (fixed + shared)), 9)


def rows(trials: Iterable[BenchTrial], simulated: bool = False) -> list[ScalingRow]:
    """One row for each number of workers, fewest first. Simulated times have no error."""
    by_workers: dict[int, list[BenchTrial]] = defaultdict(list)
    for trial in sorted(trials, key=attrgetter("workers")):
        by_workers[trial.workers].append(trial)
    table: list[ScalingRow] = []
    for workers, group in by_workers.items():
        time = Interval.exactly(group[0].seconds)
        if not simulated:
            time = Interval.of([trial.seconds for trial in group])
        ratio = Interval.exactly(1.0)
        if table:
            base = table[0].seconds
            ratio = Interval(base.low / time.high, base.value / time.value, base.high / time.low)
        speedup = ratio * float(min(by_workers))
        row = ScalingRow(
            workers,
            time,
            speedup,
            efficiency=speedup * (1 / workers),
            units=mean(trial.units for trial in group),
            sequences=mean(trial.sequences for trial in group),
        )
        table.append(row)
    return table


def fastest(table: Sequence[ScalingRow]) -> list[ScalingRow]:
    """The rows whose times cannot be distinguished from the smallest one.

    >>> seconds = {1: (10, 10.2), 2: (5, 5.1), 4: (4.9, 5.2)}
    >>> trials = [BenchTrial(n, t, ()) for n, times in seconds.items() for t in times]
    >>> [row.workers for row in fastest(rows(trials))]
    [2, 4]
    """
    smallest = min(table, key=lambda row: row.seconds.value).seconds
    return [row for row in table if row.seconds.overlaps(smallest)]


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


def bench_table(bench: Bench, price: float | None = None) -> Table:
    """What was measured; the price is that of one worker for an hour."""
    repeats = len({trial.repeat for trial in bench.trials})
    units = plural(bench.fewest[0].units, "unit")
    title = f"{bench.name}: {units}, {plural(repeats, 'repeat')}, measured"
    error = "bounds are 90 % intervals of the geometric mean"
    if repeats == 1:
        error = "one repeat does not show the spread: bounds assume a factor of 1.25 either way"
    measured = rows(bench.trials)
    equal = fastest(measured)
    cheapest = min(equal, key=attrgetter("worker_hours")).workers
    names = listed([str(row.workers) for row in equal])
    ranking = f"fastest within the error: {names} workers; of these the cheapest: {cheapest}"
    notes = (ranking, law_text(fit(bench.trials)), error)
    return Table(*_scaling_columns(measured, price), title, notes)


def simulation_table(bench: Bench, most: int, price: float | None = None) -> Table:
    """What a simulation with the measured unit times gives."""
    trials = bench.simulated(most)
    if bench.is_shared:
        law = fit(bench.trials)
        source = "Amdahl's law, fitted to the measured times; the batch of a step stays the same"
    else:
        law = fit(trials)
        fewest = plural(bench.fewest[0].workers)
        dispatch = f"{bench.dispatch * 1e3:.1f} ms of the driver for each unit"
        source = f"unit times as measured on {fewest}, and {dispatch}"
    title = f"{bench.name}: SIMULATED, not measured"
    columns = _scaling_columns(rows(trials, simulated=True), price)
    return Table(*columns, title, (source, law_text(law)))


def size_table(
    bench: Bench,
    cores: Sequence[int],
    memory: Sequence[float | None],
    most: int,
) -> Table:
    """What larger workers would change: how many units fit side by side, each with the cores and
    the peak memory of the measured worker, and the simulated time.
    """
    table = []
    for number, size in product(cores, memory):
        units = number // bench.cores
        limit = "cores"
        if size is not None and size // max(1, bench.memory) < units:
            units = int(size // max(1, bench.memory))
            limit = "memory"
        seconds = ["no unit fits"] * 2
        if units:
            seconds = [duration(bench.seconds(workers * units)) for workers in (1, most)]
        allowed = "any" if size is None else size_text(size)
        table.append((str(number), allowed, str(units), limit, *seconds))
    unit = f"{plural(bench.cores, 'core')} and the peak memory ({size_text(bench.memory)})"
    notes = (
        f"a unit takes the {unit} of the worker that was measured",
        "units side by side also share caches and the bus to the memory, which is not simulated",
    )
    header = ("cores", "memory", "units side by side", "limit")
    times_header = ("time, 1 worker", f"time, {plural(most)}")
    title = f"{bench.name}: larger workers, SIMULATED, not measured"
    return Table((*header, *times_header), tuple(table), title, notes)


def _scaling_columns(
    table: Sequence[ScalingRow], price: float | None
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows; simulated numbers have no bounds."""
    columns: dict[str, list[str]] = defaultdict(list)
    for row in table:
        columns["workers"].append(str(row.workers))
        columns["time"].append(bounded(row.seconds))
        columns["speed-up"].append(bounded(row.speedup, "{:.2f}".format, "-"))
        columns["efficiency"].append(bounded(row.efficiency, "{:.0%}".format, "-"))
        columns["worker hours"].append(amount(row.worker_hours))
        if price is not None:
            columns["cost"].append(amount(price * row.worker_hours))
        if not row.sequences:
            columns["units/s"].append(amount(row.units / row.seconds.value))
            continue
        columns["samples/s"].append(amount(row.sequences / row.seconds.value))
        if price is not None:
            of_samples = price * row.worker_hours / row.sequences
            columns["cost per million samples"].append(amount(of_samples * 1e6))
        used = row.efficiency.value
        columns["verdict"].append(next(word for share, word in VERDICTS.items() if used >= share))
    return tuple(columns), tuple(zip(*columns.values(), strict=True))


def law_text(law: Amdahl | None) -> str:
    """Amdahl's law in words.

    >>> law_text(Amdahl(100.0, Interval(0.08, 0.1, 0.12)))
    'serial share 10 % (8 % to 12 %); beyond 11 workers, less than half of an added worker is used'
    """
    if law is None:
        return "serial share: unknown, since it takes two numbers of workers to fit it"
    low, value, high = (f"{100 * share:.3g} %" for share in law.serial.bounds)
    share = f"serial share {value} ({low} to {high})"
    if law.knee is None:
        return f"{share}; no knee was found"
    return f"{share}; beyond {plural(law.knee)}, less than half of an added worker is used"
