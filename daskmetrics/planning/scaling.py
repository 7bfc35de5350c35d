"""Time against number of workers: Amdahl's law, the knee, the fastest number of workers, and their
tables.

Amdahl (1967): a share s of the work cannot be divided, T(n) = T(1) (s + (1 - s) / n).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from operator import attrgetter
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, plural, size_text
from daskmetrics.planning.options import (
    Estimate,
    Interval,
    Phase,
    amount,
    bounded,
    doublings,
    makespan,
    without_empty_columns,
)
from daskmetrics.report.templates import table_of

if TYPE_CHECKING:
    from daskmetrics.planning.estimate import Sample

WORTH = 0.5  # efficiency at the knee
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


def knee(serial: float) -> int | None:
    """The largest number of workers that are at least half used, at a share of the work that more
    workers do not shorten; None without such a share.

    >>> knee(0.1), knee(0.0)
    (11, None)
    """
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

    @cached_property
    def dispatch(self) -> float:
        """Seconds of the driver per unit, with which the simulation of the fewest workers takes as
        long as they did: for one worker, what it waited between units.
        """
        from scipy.optimize import brentq

        quickest = self.fewest[0]

        def too_long(dispatch: float) -> float:
            simulated = makespan(quickest.chains, quickest.workers, dispatch)
            return simulated - quickest.seconds

        if too_long(0.0) >= 0:
            return 0.0
        # with more the driver alone takes longer
        most = quickest.seconds / max(1, quickest.units)
        if too_long(most) <= 0:
            return most
        return float(brentq(too_long, 0.0, most))

    def seconds(self, slots: int) -> float:
        """Simulated seconds, if so many units are computed side by side."""
        return makespan(self.fewest[0].chains, slots, self.dispatch)

    def simulated(self, most: int) -> dict[int, float]:
        """Seconds with up to ``most`` simulated workers, from the measured seconds of the units.

        Workers that share each unit follow the measured law; ConfigError if it could not be fitted.
        """
        if not self.is_shared:
            return {workers: self.seconds(workers) for workers in doublings(most)}
        law = fit(self.trials)
        if law is None:
            raise ConfigError("More workers are simulated from two measured numbers: --workers 1,2")
        return {workers: law.on(workers).value for workers in doublings(most)}


def fit(trials: Sequence[BenchTrial]) -> Phase | None:
    """Amdahl's law, as work that all workers share, fitted by least squares to trials with two or
    more numbers of workers; None for only one.

    The interval of the serial share spans the fits of the single rounds, since a round's trials
    share its conditions.

    >>> from daskmetrics.planning.options import divided
    >>> fit([BenchTrial(n, 100.0 * divided(0.2, n), ()) for n in (1, 2, 4)]).serial.value
    0.2
    >>> fit([BenchTrial(1, 10.0, ()), BenchTrial(2, 12.0, ())]).serial.value
    1.0
    >>> fit([BenchTrial(2, 1.0, ()), BenchTrial(2, 1.1, ())])
    """
    if len({trial.workers for trial in trials}) < 2:
        return None
    total, serial = _least_squares(trials)
    shares = [serial]
    for repeat in sorted({trial.repeat for trial in trials}):
        of_round = [trial for trial in trials if trial.repeat == repeat]
        if len({trial.workers for trial in of_round}) > 1:
            shares.append(_least_squares(of_round)[1])
    bounds = Interval(min(shares), serial, max(shares))
    seconds = Estimate(Interval.exactly(total), "measured", True)
    return Phase("bench", 1, seconds, together=True, serial=bounds)


def _least_squares(trials: Sequence[BenchTrial]) -> tuple[float, float]:
    """Seconds on one worker and serial share, from T = a + b / n with neither below zero."""
    from scipy.optimize import nnls

    design = [[1.0, 1.0 / trial.workers] for trial in trials]
    seconds = [trial.seconds for trial in trials]
    (fixed, shared), _ = nnls(np.array(design), seconds)
    total = fixed + shared
    return float(total), round(float(fixed / total), 9)


def times(trials: Iterable[BenchTrial]) -> dict[int, Interval]:
    """Seconds by number of workers, fewest first, with their 90 % intervals."""
    by_workers: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        by_workers[trial.workers].append(trial.seconds)
    return {workers: Interval.of(by_workers[workers]) for workers in sorted(by_workers)}


def fastest(seconds: Mapping[int, Interval]) -> list[int]:
    """The numbers of workers whose times cannot be distinguished from the smallest one.

    >>> fastest({1: Interval(9, 10, 11), 2: Interval(4, 5, 6), 4: Interval(4, 4.5, 5)})
    [2, 4]
    """
    smallest = min(seconds.values(), key=attrgetter("value"))
    return [workers for workers, time in seconds.items() if time.overlaps(smallest)]


def bench_table(bench: Bench, price: float | None) -> Table:
    """What was measured; the price is that of one worker for an hour."""
    repeats = len({trial.repeat for trial in bench.trials})
    units = plural(bench.fewest[0].units, "unit")
    title = f"{units}, {plural(repeats, 'repeat')}, measured"
    return _scaling_table(bench, price, title, times(bench.trials), fit(bench.trials), repeats)


def simulation_table(bench: Bench, most: int, price: float | None) -> Table:
    """What a simulation with the measured unit times gives; its times have no error."""
    simulated = bench.simulated(most)
    trials: Sequence[BenchTrial] = bench.trials
    if not bench.is_shared:
        trials = [BenchTrial(workers, seconds, ()) for workers, seconds in simulated.items()]
    seconds = {workers: Interval.exactly(value) for workers, value in simulated.items()}
    return _scaling_table(bench, price, "SIMULATED, not measured", seconds, fit(trials), 0)


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
        allowed = "any"
        if size is not None:
            allowed = size_text(size)
            fitting = int(size // max(1, bench.memory))
            if fitting < units:
                units = fitting
                limit = "memory"
        shown = ["no unit fits"] * 2
        if units:
            shown = [duration(bench.seconds(workers * units)) for workers in (1, most)]
        table.append((str(number), allowed, str(units), limit, *shown))
    unit = f"{plural(bench.cores, 'core')} and the peak memory ({size_text(bench.memory)})"
    notes = (
        f"a unit takes the {unit} of the worker that was measured",
        "units side by side also share caches and the bus to the memory, which is not simulated",
    )
    header = (
        "cores",
        "memory",
        "units side by side",
        "limit",
        "time, 1 worker",
        f"time, {plural(most)}",
    )
    title = f"{bench.name}: larger workers, SIMULATED, not measured"
    return Table(header, tuple(table), title, notes)


def _scaling_table(
    bench: Bench,
    price: float | None,
    title: str,
    seconds: Mapping[int, Interval],
    law: Phase | None,
    repeats: int,
) -> Table:
    """A row for each number of workers; their units are those of the trials with as many workers, or
    of the quickest with the fewest.
    """
    fewest = min(seconds)
    rows = []
    for workers, time in seconds.items():
        measured = bench.fewest[:1]
        if repeats:
            measured = [trial for trial in bench.trials if trial.workers == workers]
        # of the fewest workers itself, no error
        ratio = Interval.exactly(1.0)
        if workers != fewest:
            ratio = seconds[fewest] / time
        efficiency = ratio * (fewest / workers)
        used = efficiency.value
        row = {
            "workers": workers,
            "time": time,
            "speed_up": ratio * fewest,
            "efficiency": efficiency,
            "hours": workers * time.value / 3600,
            "units": mean(trial.units for trial in measured),
            "sequences": mean(trial.sequences for trial in measured),
            "verdict": next(word for share, word in VERDICTS.items() if used >= share),
        }
        rows.append(row)
    table = table_of(
        "scaling",
        f"{bench.name}: {title}",
        rows=rows,
        price=price,
        fastest=fastest(seconds),
        amount=amount,
        bounded=bounded,
        knee=knee,
        bench=bench,
        law=law,
        repeats=repeats,
    )
    return without_empty_columns(table)
