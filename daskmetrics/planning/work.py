"""The work of a run in phases, and its time on workers.

Pure functions of numbers.

Every time is three numbers, low, expected and high (`Bounds`): an array, so that sums and products
of times are those of numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.text import duration

Bounds = NDArray[np.float64]
"""Low, expected and high."""

ONE_SAMPLE = 1.25  # factor, up and down, by which a single measurement is assumed to err
DATASHEET = 1.5  # the same of the ratio of two datasheets, taken for that of two runs
UNKNOWN_DEVICE = 3.0  # the same of the speed of a device without a datasheet


def exactly(value: float) -> Bounds:
    """A number without error."""
    return np.full(3, value)


def around(value: float, factor: float) -> Bounds:
    """From ``value / factor`` to ``value * factor``.

    >>> around(4.0, 2.0)
    array([2., 4., 8.])
    """
    return value * np.array([1 / factor, 1.0, factor])


def mean_of(samples: Sequence[float]) -> Bounds:
    """The geometric mean of positive samples with its 90 % interval.

    Durations err by factors. A single one is assumed to err by `ONE_SAMPLE`.

    >>> mean_of([10.0, 10.0, 10.0]), mean_of([10.0])
    (array([10., 10., 10.]), array([ 8. , 10. , 12.5]))
    """
    from scipy.stats import sem, t

    if len(samples) == 1:
        return around(samples[0], ONE_SAMPLE)
    logs = np.log(samples)
    quantile = t.ppf(0.95, len(samples) - 1)
    return around(round(math.exp(logs.mean()), 12), math.exp(quantile * sem(logs)))


def difference(first: Bounds, second: Bounds, errs_alike: bool = False) -> tuple[float, float]:
    """The least and the greatest difference of two numbers.

    >>> one, two = np.array([1, 2, 4]), np.array([2, 4, 8])
    >>> [tuple(map(int, difference(one, two, alike))) for alike in (True, False)]
    [(-4, -1), (-7, 2)]
    """
    if np.array_equal(first, second):
        return 0.0, 0.0
    if errs_alike:
        return min(first - second), max(first - second)
    return first[0] - second[2], first[2] - second[0]


def bounded(bounds: Bounds, form: Callable[[float], str] = duration, until: str = " to ") -> str:
    """A number, by default a duration, with its bounds if it has any.

    >>> bounded(around(7200.0, 2.0)), bounded(exactly(60.0))
    ('2.0 h (60.0 min to 4.0 h)', '60 s')
    >>> bounded(np.array([60.0, math.inf, math.inf]))
    'an unknown time (60 s or more)'
    """
    low, expected, high = map(form, bounds.tolist())
    if math.isinf(bounds[2]):
        return f"{expected} ({low} or more)"
    if low == high:
        return expected
    return f"{expected} ({low}{until}{high})"


def amount(number: float) -> str:
    """Hours, money or rates, rounded to the digits that matter.

    >>> amount(0.0123), amount(4.56), amount(1234.5)
    ('0.0123', '4.56', '1,234')
    """
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}"


@dataclass(frozen=True, eq=False)
class Estimate:
    """Seconds, and where they come from."""

    seconds: Bounds
    source: str = "estimated"  # or what was measured and where; shown to the user
    at: float | None = None  # time of the measurement, seconds since 1970; None if assumed
    busy: float | None = None  # share of them in which the GPU computed; None where it is not known

    @property
    def expected(self) -> float:
        return float(self.seconds[1])


# assumed, until workers have imported their libraries
USUAL_START = Estimate(np.array([5.0, 20.0, 120.0]))


@dataclass(frozen=True)
class Device:
    """A GPU's datasheet."""

    memory_gib: float
    tflops: float  # of dense bfloat16 operations; only ratios are used
    bandwidth: float  # of its memory in GB/s, which bounds small models


DEVICES: Mapping[str, Device] = {
    "a40": Device(45, 150, 696),
    "a100": Device(80, 312, 2039),
    "a100_40": Device(40, 312, 1555),
    "b200": Device(180, 2250, 8000),
    "h100": Device(80, 989, 3350),
    "h200": Device(141, 989, 4800),
    "l4": Device(22.5, 121, 300),
    "l40": Device(45, 181, 864),
    "l40s": Device(45, 362, 864),
    "rtx6000": Device(24, 130, 672),
    "v100": Device(32, 125, 900),
}
"""Datasheets of NVIDIA; V100 and Quadro RTX 6000 in float16."""


def slowdown(timed_on: str, device: str, busy: float | None = None) -> Bounds:
    """How many times as long work takes on another device.

    ``busy`` is the share of the time in which the device computed: the rest, such as waiting for
    data, takes as long on any. What is computed lies between the ratios of operations and of memory
    bandwidth by the datasheets, since either can bound it; expected is their geometric mean. Data
    may be read before or while it computes: the bounds are those of both. Where the share is not
    known, they are those of any.

    >>> slowdown("l40s", "h200").round(2), slowdown("a100", "a100")
    (array([0.17, 0.26, 1.  ]), array([1., 1., 1.]))
    >>> slowdown("l40s", "h200", busy=0.18).round(2)
    array([0.85, 0.87, 1.  ])
    """
    if device == timed_on:
        return exactly(1.0)
    if device not in DEVICES or timed_on not in DEVICES:
        return around(1.0, UNKNOWN_DEVICE)
    operations = DEVICES[timed_on].tflops / DEVICES[device].tflops
    bandwidth = DEVICES[timed_on].bandwidth / DEVICES[device].bandwidth
    computing = around(math.sqrt(operations * bandwidth), DATASHEET)
    computing[0] = min(computing[0], operations, bandwidth)
    computing[2] = max(computing[2], operations, bandwidth)
    if busy is None:
        return np.array([min(1.0, computing[0]), computing[1], max(1.0, computing[2])])
    if busy == 1:
        return computing
    after = 1 - busy + busy * computing
    beside = np.maximum(1.0, busy * computing)  # the data that it waits for are read all the time
    return np.array([min(after[0], beside[0]), after[1], max(after[2], beside[2])])


def basis_of_slowdown(timed_on: str, device: str, busy: float | None) -> str:
    """What a `slowdown` rests on.

    >>> basis_of_slowdown("l40s", "h200", 0.18)
    'l40s to h200 by datasheet for the 18 % of the time that the GPU computed'
    """
    if device not in DEVICES or timed_on not in DEVICES:
        return f"{timed_on} to {device} estimated of unknown speed"
    if busy is None:
        return f"{timed_on} to {device} estimated by datasheet; how busy the GPU was is not known"
    return (
        f"{timed_on} to {device} by datasheet for the {100 * busy:.0f} % of the time that the GPU"
        " computed"
    )


def divided(serial: Bounds, workers: float) -> Bounds:
    """Amdahl's law: the time on some workers over that on one.

    >>> divided(exactly(0.0), 4), divided(exactly(1.0), 4)
    (array([0.25, 0.25, 0.25]), array([1., 1., 1.]))
    """
    return serial + (1 - serial) / workers


@dataclass(frozen=True, eq=False)
class Phase:
    """Equal units of work of one kind."""

    name: str
    units: int  # calls of a worker; if `together`, epochs or other equal parts
    unit: Estimate  # of one, on ``device``
    device: str = "cpu"
    # units that can run side by side, as one per suite that is trained, or if `together` the
    # workers that can share one; None without limit
    at_once: int | None = None
    together: bool = False  # whether all workers share each unit, as in data-parallel training
    timed_workers: int = 1  # that shared a unit when it was measured
    serial: Bounds = field(default_factory=lambda: exactly(0.0))  # share that cannot be divided
    # of a training, in one unit; 0 where they are not known
    steps: Mapping[int, float] = field(default_factory=dict)  # by the number of ranks
    samples: float = 0.0
    epochs: float = 0.0

    def unit_on(self, device: str) -> Bounds:
        """Seconds of one unit on a device."""
        return self.unit.seconds * slowdown(self.device, device, self.unit.busy)

    def on(self, workers: int, device: str) -> Bounds:
        """Seconds on a number of workers of a device.

        >>> unit = Estimate(exactly(60.0))
        >>> Phase("measure", 10, unit).on(4, "cpu")
        array([180., 180., 180.])
        >>> epochs = Phase("epochs", 40, unit, at_once=32, together=True, timed_workers=16)
        >>> epochs.on(64, "cpu")
        array([1200., 1200., 1200.])
        """
        workers = min(workers, self.at_once or workers)
        if self.together:
            share = divided(self.serial, workers) / divided(self.serial, self.timed_workers)
            return self.unit_on(device) * self.units * np.sort(share)
        rounds = math.ceil(self.units / workers)
        return self.unit_on(device) * (rounds + self.serial * (self.units - rounds))

    def steps_on(self, ranks: int) -> float | None:
        """Steps in one unit; None where they are not known.

        They are as many as on other numbers of ranks, or in inverse proportion to these, whichever
        holds for all that are known.

        >>> part = Phase("train", 1, Estimate(exactly(1.0)), steps={1: 96, 2: 48})
        >>> part.steps_on(2), part.steps_on(8)
        (48, 12.0)
        """
        if ranks in self.steps:
            return self.steps[ranks]
        for power in (0, 1):
            products = [steps * number**power for number, steps in self.steps.items()]
            # the reports of a program may begin some steps late
            if len(products) > 1 and max(products) <= 1.05 * min(products):
                return products[0] / ranks**power
        return None


@dataclass(frozen=True, eq=False)
class Pace:
    """How the ranks of a training advance."""

    ranks: int
    batch: float | None  # samples of a step of all of them; None where it is not known
    seconds: Mapping[str, Bounds]  # of a step, an epoch and a sample, those which are known


@dataclass(frozen=True, eq=False)
class Work:
    """The work of a run, and the memory and disk it needs."""

    # stages follow each other; the phases of one share the workers, as models that are measured
    stages: tuple[tuple[Phase, ...], ...]
    start: Estimate = USUAL_START  # of the workers, once their jobs run
    vram_gib: float = 0.0  # of a worker, assumed
    host_gib: float = 0.0
    disk_bytes: int = 0
    missing: tuple[str, ...] = ()  # models and data that are not on this machine
    download: Estimate | None = None  # which any number of workers share
    texts: str = ""  # how many texts are scored, and how that is known
    least: int = 1  # workers without which it cannot run: a program's ranks

    @property
    def phases(self) -> list[Phase]:
        return [phase for stage in self.stages for phase in stage]

    @property
    def units(self) -> int:
        return sum(phase.units for phase in self.phases)

    def on(self, workers: int, device: str) -> Estimate:
        """Seconds on workers of a device, with their start and without a queue.

        >>> epochs = Phase("epochs", 40, Estimate(exactly(1320.0)), "a100", together=True, timed_workers=16)
        >>> work = Work(((epochs,),), start=Estimate(exactly(0.0)))
        >>> round(work.on(16, "a100").expected / 3600, 1)
        14.7
        """
        seconds = self.start.seconds + sum(
            stage_on(stage, workers, device) for stage in self.stages
        )
        sources = [phase.unit.source for phase in self.phases] or ["nothing to do"]
        sources += [
            basis_of_slowdown(phase.device, device, phase.unit.busy)
            for phase in self.phases
            if phase.device != device
        ]
        if self.download:
            seconds = seconds + self.download.seconds
            sources.append(f"downloads: {self.download.source}")
        measured_at = [phase.unit.at for phase in self.phases if phase.unit.at is not None]
        source = "; ".join(dict.fromkeys(sources))
        return Estimate(seconds, source, min(measured_at, default=None))

    def pace(self, workers: int, device: str) -> Pace | None:
        """That of the longest training; None without one."""
        trainings = [phase for phase in self.phases if phase.steps]
        if not trainings:
            return None
        longest = max(trainings, key=lambda phase: phase.units * phase.unit.expected)
        ranks = min(workers, longest.at_once or workers)
        steps = longest.steps_on(ranks)
        batch = None
        if steps and longest.samples:
            batch = longest.samples / steps
        # one unit, which no other one shares the workers with
        seconds = longest.on(ranks, device) / longest.units
        counts = {"step": steps, "epoch": longest.epochs, "sample": longest.samples}
        return Pace(
            ranks, batch, {name: seconds / count for name, count in counts.items() if count}
        )


def stage_on(stage: Sequence[Phase], workers: int, device: str) -> Bounds:
    """Seconds of phases that share the workers.

    Each free worker takes the next unit of any of them.

    Units are taken to be as long as their mean, but none ends before its own phase would alone.

    >>> models = [Phase(f"measure {i}", 1, Estimate(exactly(60.0))) for i in range(10)]
    >>> stage_on(models, 5, "cpu")
    array([120., 120., 120.])
    """
    alone = [phase.on(workers, device) for phase in stage]
    if len(stage) == 1:
        return alone[0]
    units = sum(phase.units for phase in stage)
    rounds = math.ceil(units / workers)
    shared = np.zeros(3)
    for phase in stage:
        seconds = phase.units * phase.unit_on(device)
        shared += seconds * divided(phase.serial, units / rounds)
    seconds_of_stage: Bounds = np.max([shared, *alone], axis=0)
    return seconds_of_stage
