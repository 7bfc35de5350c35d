"""Times with their errors; the work of a run in phases, and the offers of workers for it compared:
when each would finish, at what cost, and which to choose, with tables. Pure functions of numbers.
"""

from __future__ import annotations

import heapq
import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, listed, size_text, walltime_text
from daskmetrics.report.templates import rows_of, table_of, text_of

if TYPE_CHECKING:
    from daskmetrics.config import Cluster

ONE_SAMPLE = 1.25  #: factor, up and down, by which a single measurement is assumed to err


@dataclass(frozen=True)
class Interval:
    """A value between two bounds.

    Examples
    --------
    >>> Interval(1, 2, 3) * 2 + Interval.exactly(1)
    Interval(low=3, value=5, high=7)
    >>> Interval(1, 2, 3) * Interval(2, 2, 4)
    Interval(low=2, value=4, high=12)
    >>> Interval(2, 4, 6) / Interval(1, 2, 2)
    Interval(low=1.0, value=2.0, high=6.0)
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
        from scipy.stats import sem, t

        if len(samples) == 1:
            return cls.around(samples[0], ONE_SAMPLE)
        logs = np.log(samples)
        value = float(round(math.exp(logs.mean()), 12))
        quantile = t.ppf(0.95, len(samples) - 1)
        return cls.around(value, math.exp(quantile * sem(logs)))

    @property
    def bounds(self) -> tuple[float, float, float]:
        return self.low, self.value, self.high

    def overlaps(self, other: Interval) -> bool:
        """Whether both could be the same number."""
        return self.low <= other.high and other.low <= self.high

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.value + other.value, self.high + other.high)

    def __mul__(self, other: Interval | float) -> Interval:
        """The product with a positive number or interval."""
        if not isinstance(other, Interval):
            other = Interval.exactly(other)
        return Interval(self.low * other.low, self.value * other.value, self.high * other.high)

    def __truediv__(self, other: Interval) -> Interval:
        """The ratio to a positive interval."""
        return Interval(self.low / other.high, self.value / other.value, self.high / other.low)


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


def divided(serial: float, workers: float) -> float:
    """The time on a number of workers as a share of the time on one.

    >>> divided(0.0, 4), divided(1.0, 4)
    (0.25, 1.0)
    """
    return serial + (1 - serial) / workers


# up and down, by which the ratio of two datasheets may miss the ratio of two runs
SPEED_FACTOR = 1.5
# assumed speed of an unknown device relative to the measured one
UNKNOWN_DEVICE = Interval.around(1.0, 3.0)
# assumed seconds until workers have imported their libraries
USUAL_START = Estimate(Interval(5.0, 20.0, 120.0))
NOTHING_SERIAL = Interval.exactly(0.0)


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


def speed(device: str, reference: str) -> Interval | None:
    """Assumed speed of a GPU relative to another one; None if either is unknown.

    The geometric mean of the ratios of operations and of memory bandwidth, since either can bound
    small models.

    >>> round(speed("h200", "l40s").value, 1)
    3.9
    >>> speed("a100", "a100").low
    1.0
    """
    if device == reference:
        return Interval.exactly(1.0)
    if device not in DEVICES or reference not in DEVICES:
        return None
    operations = DEVICES[device].tflops / DEVICES[reference].tflops
    bandwidth = DEVICES[device].bandwidth / DEVICES[reference].bandwidth
    return Interval.around((operations * bandwidth) ** 0.5, SPEED_FACTOR)


@dataclass(frozen=True)
class Phase:
    """Units of one kind; a workload's phases follow each other, unless one is ``beside`` another.

    Attributes
    ----------
    name : str
    units : int
        Calls of a worker; if ``together``, epochs or other equal parts.
    seconds : Estimate
        Of one unit.
    device : str
        Device that the seconds hold for: ``cpu``, ``l40s``, ...
    chains : int or None
        How many units can run side by side, such as one per suite that is trained, or if
        ``together`` how many workers can share one; None without limit.
    together : bool
        Whether all workers share each unit, as in data-parallel training.
    workers : int
        Workers that shared a unit when it was measured; more than one only if ``together``.
    serial : Interval
        The share of the time that more workers do not shorten.
    steps : mapping of int to float
        Of a training in one unit, by the numbers of workers for which they are known.
    samples, epochs : float
        What a training learns from in one unit, on average; 0 where it is not known.
    beside : bool
        Whether its units share the workers with those of the phase before, as of models that are
        measured; neither phase is ``together``.
    """

    name: str
    units: int
    seconds: Estimate
    device: str = "cpu"
    chains: int | None = None
    together: bool = False
    workers: int = 1
    serial: Interval = NOTHING_SERIAL
    steps: Mapping[int, float] = field(default_factory=dict, hash=False)
    samples: float = 0.0
    epochs: float = 0.0
    beside: bool = False

    def steps_on(self, workers: int) -> float | None:
        """Steps in one unit: if they are not known, as many as on other numbers of workers, or in
        inverse proportion to them, whichever holds for all that are known; else None.

        >>> part = Phase("train", 1, Estimate(Interval.exactly(1.0)), steps={1: 96, 2: 48})
        >>> part.steps_on(2), part.steps_on(8)
        (48, 12.0)
        """
        if workers in self.steps:
            return self.steps[workers]
        for power in (0, 1):
            products = [steps * number**power for number, steps in self.steps.items()]
            # the reports of a program may begin some steps late
            if len(products) > 1 and max(products) <= 1.05 * min(products):
                return products[0] / workers**power
        return None

    def unit_on(self, device: str) -> Interval:
        """Seconds of one unit on a device."""
        return self.seconds.interval / (speed(device, self.device) or UNKNOWN_DEVICE)

    def on(self, workers: int, device: str | None = None) -> Interval:
        """Seconds on a number of workers of a device, by default the one that was measured.

        Examples
        --------
        >>> Phase("measure", 10, Estimate(Interval.exactly(60.0))).on(4).value
        180.0
        >>> epochs = Phase("epochs", 40, Estimate(Interval.exactly(60.0)), chains=32, together=True, workers=16)
        >>> epochs.on(8).value, epochs.on(64).value
        (4800.0, 1200.0)
        >>> second = Estimate(Interval.exactly(1.0))
        >>> Phase("train", 10, second, chains=2).on(8).value
        5.0
        >>> Phase("measure", 10, second, serial=Interval.exactly(0.5)).on(10).value
        5.5
        """
        seconds = self.unit_on(device or self.device)
        workers = min(workers, self.chains or workers)
        if self.together:
            shares = [
                divided(serial, workers) / divided(serial, self.workers)
                for serial in self.serial.bounds
            ]
            return seconds * (Interval(min(shares), shares[1], max(shares)) * self.units)
        # free workers take the next unit of any chain: equal units end in so many rounds
        rounds = math.ceil(self.units / workers)
        # the serial share keeps its length, whatever the number of workers; in this form rounding
        # keeps the order of the bounds
        units = [rounds + share * (self.units - rounds) for share in self.serial.bounds]
        return seconds * Interval(*units)


def makespan(chains: Iterable[Sequence[float]], workers: int, dispatch: float = 0.0) -> float:
    """Seconds until all units are finished, if each free worker takes the next unit that may start.

    A chain holds the seconds of units that must follow each other; an independent unit is a chain
    of one. Before each unit a free worker waits ``dispatch`` seconds for the driver, which handles
    one at a time.

    >>> makespan([[1.0]] * 5, workers=2)
    3.0
    >>> makespan([[1.0, 1.0, 1.0], [1.0]], workers=4)
    3.0
    >>> makespan([[0.5]] * 100, workers=100, dispatch=1.0)
    100.5
    """
    lengths = [list(chain) for chain in chains]
    waiting = [(0.0, i, 0) for i, chain in enumerate(lengths) if chain]
    free = [0.0] * min(workers, max(1, len(waiting)))
    driver = 0.0
    while waiting:
        ready, chain, unit = heapq.heappop(waiting)
        driver = max(driver, ready, heapq.heappop(free)) + dispatch
        done = driver + lengths[chain][unit]
        heapq.heappush(free, done)
        if unit + 1 < len(lengths[chain]):
            heapq.heappush(waiting, (done, chain, unit + 1))
    return max(free)


def side_by_side(phases: Sequence[Phase], workers: int, device: str) -> Interval:
    """Seconds of phases whose units share the workers: each free one takes the next unit.

    >>> minute = Estimate(Interval.exactly(60.0))
    >>> models = [Phase(f"measure {i}", 1, minute) for i in range(10)]
    >>> side_by_side(models, 5, "cpu").value
    120.0
    """
    if len(phases) == 1:
        return phases[0].on(workers, device)
    spans = []
    for i in range(3):  # the bounds
        chains: list[list[float]] = []
        serial_seconds = 0.0
        for phase in phases:
            seconds = phase.unit_on(device).bounds[i]
            serial = phase.serial.bounds[i]
            serial_seconds += serial * seconds * phase.units
            count = min(phase.units, phase.chains or phase.units)
            units = [(1 - serial) * seconds] * phase.units
            chains += [units[chain::count] for chain in range(count)]
        spans.append(serial_seconds + makespan(chains, workers))
    # shorter units may end later if they meet less well
    return Interval(*sorted(spans))


@dataclass(frozen=True)
class Workload:
    """Phases, and the memory and disk that they need.

    Attributes
    ----------
    phases : tuple of Phase
    start : Estimate
        Seconds until workers are ready once their jobs run.
    vram_gib, host_gib : float
        Assumed memory of one worker.
    disk_bytes : int
    missing : tuple of str
        Models and data that are not on this machine.
    texts : mapping
        How many texts are scored, and how that is known (`estimate.text_counts`).
    download : Estimate or None
        Seconds of downloads, which workers of any number share.
    least : int
        Workers without which it cannot run: a program's ranks.
    """

    phases: tuple[Phase, ...]
    start: Estimate = USUAL_START
    vram_gib: float = 0.0
    host_gib: float = 0.0
    disk_bytes: int = 0
    missing: tuple[str, ...] = ()
    texts: Mapping[str, int] = field(default_factory=dict, hash=False)
    download: Estimate | None = None
    least: int = 1

    @property
    def units(self) -> int:
        return sum(phase.units for phase in self.phases)

    @property
    def stages(self) -> list[list[Phase]]:
        """The phases; those that share the workers are together, and stages follow each other."""
        stages: list[list[Phase]] = []
        for phase in self.phases:
            if phase.beside and stages:
                stages[-1].append(phase)
            else:
                stages.append([phase])
        return stages

    def on(self, workers: int, device: str) -> Estimate:
        """Seconds on a number of workers of a device, without queue and start; the source says how
        they are known.

        Examples
        --------
        >>> epoch = Estimate(Interval.exactly(1320.0), "measured", True)
        >>> epochs = Phase("epochs", 40, epoch, "a100", together=True, workers=16)
        >>> round(Workload((epochs,)).on(16, "a100").value / 3600, 1)
        14.7
        """
        seconds = [side_by_side(stage, workers, device) for stage in self.stages]
        sources = [phase.seconds.source for phase in self.phases] or ["nothing to do"]
        measured = all(phase.seconds.measured for phase in self.phases)
        for timed_on in {phase.device: None for phase in self.phases if phase.device != device}:
            basis = "by datasheet" if speed(device, timed_on) else "of unknown speed"
            sources.append(f"{timed_on} to {device} estimated {basis}")
            measured = False
        if self.download:
            seconds.append(self.download.interval)
            sources.append(f"downloads: {self.download.source}")
            measured = False
        ages = [phase.seconds.at for phase in self.phases if phase.seconds.at is not None]
        source = "; ".join(dict.fromkeys(sources))
        total = sum(seconds, Interval.exactly(0.0))
        return Estimate(total, source, measured, min(ages, default=None))

    def run(self, workers: int, device: str) -> Estimate:
        """The same with the start of the workers."""
        work = self.on(workers, device)
        return replace(work, interval=work.interval + self.start.interval)


# between the upper bound of the run time and the requested walltime, so that no job is cut off
MARGIN = 1.2
QUARTER = 15 * 60
UNKNOWN_WAIT = Estimate(Interval(0.0, 3600.0, 86_400.0), "estimated: the queue was not asked")
NO_WAIT = Estimate(Interval.exactly(0.0), "free now", measured=True)


@dataclass(frozen=True)
class TrackRecord:
    """How many of some earlier jobs ended well: the evidence for a chance of success."""

    well: int
    ended: int
    what: str  # were counted
    lost: Mapping[str, int] = field(default_factory=dict, hash=False)  # by Slurm's state

    @property
    def chance(self) -> Interval:
        """The share that ends well, with the 90 % interval of a binomial proportion (Jeffreys).

        >>> chance = TrackRecord(9, 10, "jobs").chance
        >>> chance.value, round(chance.low, 2), round(chance.high, 2)
        (0.9, 0.67, 0.98)
        """
        from scipy.stats import beta

        badly = self.ended - self.well
        low, high = beta.ppf([0.05, 0.95], self.well + 0.5, badly + 0.5).tolist()
        share = self.well / self.ended
        return Interval(min(low, share), share, max(high, share))

    def __str__(self) -> str:
        low, value, high = (f"{100 * share:.0f} %" for share in self.chance.bounds)
        states = ", ".join(f"{count} {state.lower()}" for state, count in self.lost.items())
        counts = f"{self.well} of {self.ended} {self.what} ended well"
        if states:
            counts += f" ({states})"
        return f"{counts}: {value} ({low} to {high})"


@dataclass(frozen=True)
class Offer:
    """A number of workers of one kind; a worker is a GPU, or a CPU process where there are no GPUs.

    Attributes
    ----------
    profile : str
        Name or file of the cluster profile; empty for that of the configuration.
    device : str
        ``cpu``, ``l40s``, ``a100``, ...
    nodes, workers : int
    wait : Estimate
        Seconds until the workers' jobs start.
    free : int or None
        Workers that could start now; None if unknown.
    limit : float or None
        Longest time of a job in seconds.
    vram_gib, host_gib : float or None
        Memory of a worker; None if unknown or unlimited.
    price : float or None
        Of one worker for an hour.
    partition : str or None
    problem : str or None
        Why the workers are not available at all.
    success : TrackRecord or None
        How earlier jobs or runs on the partition ended; None without evidence.
    """

    profile: str
    device: str
    nodes: int
    workers: int
    wait: Estimate = UNKNOWN_WAIT
    free: int | None = None
    limit: float | None = None
    vram_gib: float | None = None
    host_gib: float | None = None
    price: float | None = None
    partition: str | None = None
    problem: str | None = None
    success: TrackRecord | None = None


@dataclass(frozen=True)
class TrainingPace:
    """How an option trains: its ranks, the samples of a step of all of them where they are known,
    and the seconds of a step, an epoch and a sample, those which are known.
    """

    ranks: int
    batch: float | None
    seconds: Mapping[str, Interval]


@dataclass(frozen=True)
class Option:
    """An offer for one workload, with its times and costs.

    Attributes
    ----------
    number : int
        From 1; ``plan --submit`` takes it.
    offer : Offer
    workload : Workload
        In seconds of the offer's device, or of devices that were measured.
    deadline : float or None
        Seconds from now in which the last result is needed.

    Examples
    --------
    >>> unit = Estimate(Interval.exactly(60.0), "measured", True)
    >>> work = Workload((Phase("measure", 120, unit, "l40s"),), Estimate(Interval.exactly(0.0)))
    >>> option = Option(1, Offer("l40s", "l40s", nodes=1, workers=2, wait=NO_WAIT), work)
    >>> option.total.value, option.efficiency
    (3600.0, 1.0)
    """

    number: int
    offer: Offer
    workload: Workload
    deadline: float | None = None

    @cached_property
    def run(self) -> Estimate:
        """Seconds from the start of the jobs to the last result, waiting not included; each job
        starts its workers.
        """
        restarts = Interval(*(jobs - 1 for jobs in self._jobs.bounds))
        seconds = self._unlimited.interval + self.workload.start.interval * restarts
        return replace(self._unlimited, interval=seconds)

    @property
    def total(self) -> Interval:
        """Seconds from now to the last result; each job waits."""
        return self.run.interval + self.offer.wait.interval * self._jobs

    @cached_property
    def _unlimited(self) -> Estimate:
        """Seconds of a single job that has no time limit."""
        return self.workload.run(self.offer.workers, self.offer.device)

    @property
    def _jobs(self) -> Interval:
        """Numbers of jobs, one after the other, for the bounds of the work."""
        limit = self.offer.limit or math.inf
        seconds = self._unlimited.interval.bounds
        return Interval(*(max(1, math.ceil(bound / limit)) for bound in seconds))

    @property
    def worker_hours(self) -> Interval:
        """GPU-hours where workers are GPUs."""
        return self.run.interval * (self.offer.workers / 3600)

    @property
    def cost(self) -> Interval | None:
        """Money; None without a price."""
        if self.offer.price is None:
            return None
        return self.worker_hours * self.offer.price

    @cached_property
    def pace(self) -> TrainingPace | None:
        """That of its longest training."""
        trainings = [phase for phase in self.workload.phases if phase.steps]
        if not trainings:
            return None
        phase = max(trainings, key=lambda phase: phase.units * phase.seconds.value)
        workers = self.offer.workers
        ranks = min(workers, phase.chains or workers)
        steps = phase.steps_on(ranks)
        counts = {"step": steps, "epoch": phase.epochs, "sample": phase.samples}
        unit = replace(phase, units=1).on(workers, self.offer.device)
        seconds = {name: unit * (1 / count) for name, count in counts.items() if count}
        batch = None
        if steps and phase.samples:
            batch = phase.samples / steps
        return TrainingPace(ranks, batch, seconds)

    @property
    def efficiency(self) -> float:
        """Share of the workers' time that is work, compared with a single worker without its start,
        so that starting workers lowers it.
        """
        if not self.run.value:
            return 1.0
        alone = self.workload.on(1, self.offer.device).value
        return min(1.0, alone / (self.offer.workers * self.run.value))

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """Why the option cannot be used: what the offer itself says, and which bounds it exceeds."""
        work = self.workload
        offer = self.offer
        late = f"takes longer than {duration(self.deadline or 0)}"
        # datasheets relate GPUs alone
        is_cpu = offer.device == "cpu"
        untimed = any((phase.device == "cpu") != is_cpu for phase in work.phases)
        # only a training goes on where a job ended
        units = [
            phase.unit_on(offer.device).value
            for phase in work.phases
            if not (phase.steps or phase.together)
        ]
        longest = max(units, default=0.0)
        cut = f"a unit takes {duration(longest)}, a job at most {duration(offer.limit or 0)}"
        bounds = (
            (untimed, False, f"the program was not timed on {offer.device}"),
            (work.least, offer.workers, "the program has {} ranks, one for each worker"),
            (work.vram_gib, offer.vram_gib, "needs {:.0f} GiB of GPU memory, has {:.0f}"),
            (work.host_gib, offer.host_gib, "needs {:.0f} GiB of memory per worker, has {:.0f}"),
            (longest, offer.limit, cut),
            (self.total.value, self.deadline, late),
        )
        exceeded = [
            problem.format(needed, bound)
            for needed, bound, problem in bounds
            if bound is not None and needed > bound
        ]
        return tuple(filter(None, (offer.problem, *exceeded)))

    @property
    def possible(self) -> bool:
        """Whether nothing speaks against the option."""
        return not self.problems

    @property
    def walltime(self) -> str:
        """Time to request from Slurm: the upper bound and a margin in quarters of an hour, within
        the offer's limit.
        """
        quarters = math.ceil(MARGIN * self.run.interval.high / QUARTER)
        seconds = max(60, min(quarters * QUARTER, self.offer.limit or math.inf))
        return walltime_text(60 * math.ceil(seconds / 60))  # Slurm counts whole minutes

    @property
    def jobs(self) -> int:
        """Number of jobs, one after the other, if each resumes where the time limit ended the one
        before.
        """
        return int(self._jobs.high)


@dataclass(frozen=True)
class Suggestion:
    """An option that is best in one respect, and those whose difference from it is within the
    error.
    """

    label: str
    option: Option
    ties: tuple[Option, ...]
    choice: Option  # of these: the cheapest, or the fastest if all are as cheap


def total_time(option: Option) -> Interval:
    """Seconds from now to the last result."""
    return option.total


Measure = Callable[[Option], Interval]  # such as the cost


def is_within_error(option: Option, other: Option, measure: Measure) -> bool:
    """Whether either of two options may have the smaller number.

    Times on one device follow from the same measurement, so that both err by the same factor: one
    is smaller if all of its bounds are. Waits err by themselves; they cost nothing.
    """
    interval = measure(option)
    of_other = measure(other)
    is_shared = option.offer.device == other.offer.device
    if measure is total_time:
        is_shared &= option.offer.wait.interval == other.offer.wait.interval
    if not is_shared:
        return interval.overlaps(of_other)
    bounds = zip(interval.bounds, of_other.bounds, strict=True)
    orders = {bound < of_same_side for bound, of_same_side in bounds}
    return interval == of_other or len(orders) > 1


OFFER_KEYS = ("profile", "device", "nodes", "workers", "partition", "free", "price", "wait")
OPTION_KEYS = (
    "number",
    "run",
    "total",
    "worker_hours",
    "cost",
    "efficiency",
    "walltime",
    "jobs",
    "possible",
    "problems",
)


@dataclass(frozen=True)
class PlanRequest:
    """The file of a configuration or of a training program, and the options of ``plan``."""

    config: Path
    args: tuple[str, ...] = ()  # of a program
    times: int = 0  # how many times programs do what was measured; 0 without programs
    profiles: tuple[str, ...] = ()  # by name or file; by default that of the configuration
    counts: tuple[int, ...] = ()  # of workers for each profile; by default that of the profile
    deadline: float | None = None  # seconds from now
    is_program: bool = False  # whether the file is the training program itself
    # of a worker-hour by device; the empty name stands for all
    prices: Mapping[str, float] = field(default_factory=dict)
    folder: Path | None = None  # of the run
    settings: tuple[str, ...] = ()
    purpose: str | None = None  # the label of the suggestion to choose

    def counts_of(self, profile: Cluster) -> tuple[int, ...]:
        """The numbers of workers to compare: for a purpose 1, 2, 4, ... up to the profile's."""
        if self.counts:
            return self.counts
        if self.purpose is None:
            return (profile.workers,)
        return doublings(profile.workers)


@dataclass(frozen=True)
class Proposal:
    """The options for a request."""

    name: str  # of the experiment
    request: PlanRequest
    options: tuple[Option, ...]  # numbered from 1
    at: float  # when the proposal was made, in seconds since 1970
    is_finished: bool = False  # whether the run has nothing left to do

    def spent(self, option: Option) -> Interval:
        """Money if every price is known, else worker hours: the two cannot be compared."""
        if option.cost is None or any(other.cost is None for other in self.options):
            return option.worker_hours
        return option.cost

    @cached_property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """The fastest, the cheapest and the balanced option.

        Balanced is the option with the smallest product of time and cost: a faster option is then
        more expensive by a larger factor, and a cheaper one slower by a larger factor.
        """
        possible = [option for option in self.options if option.possible]
        if not possible:
            return ()

        def suggestion(label: str, number: Measure, other: Measure, power: int) -> Suggestion:
            def rank(option: Option) -> tuple[float, float]:
                tie_break = other(option).value
                return number(option).value * tie_break**power, tie_break

            best = min(possible, key=rank)
            others = [option for option in possible if option is not best]
            ties = [option for option in others if is_within_error(option, best, number)]
            choice = min([best, *ties], key=lambda option: other(option).value)
            return Suggestion(label, best, tuple(ties), choice)

        return (
            suggestion("fastest", total_time, self.spent, 0),
            suggestion("cheapest", self.spent, total_time, 0),
            suggestion("balanced", total_time, self.spent, 1),
        )

    @property
    def recommended(self) -> Suggestion | None:
        """That for the purpose, by default the balanced one; None if no option can be used."""
        by_label = {suggestion.label: suggestion for suggestion in self.suggestions}
        return by_label.get(self.request.purpose or "balanced")

    @cached_property
    def labels(self) -> dict[Option, list[str]]:
        """What each suggested option is best in; empty where fewer than two can be used."""
        labels: dict[Option, list[str]] = defaultdict(list)
        if sum(option.possible for option in self.options) > 1:
            for suggestion in self.suggestions:
                labels[suggestion.option].append(suggestion.label)
        return dict(labels)

    @property
    def reason(self) -> str:
        """Why the recommended option is recommended, in a sentence."""
        return text_of("recommended", proposal=self, numbers=numbers_of)

    def option(self, number: int) -> Option:
        """The option with a number; ConfigError if it does not exist or cannot be used."""
        if not 1 <= number <= len(self.options):
            raise ConfigError(
                f"There is no option {number}. Choose one of 1 to {len(self.options)}."
            )
        option = self.options[number - 1]
        if not option.possible:
            problems = "; ".join(option.problems)
            raise ConfigError(f"Option {number} cannot be used: {problems}. Choose another option.")
        return option

    def settings_of(self, option: Option) -> tuple[str, ...]:
        """The settings with which a run uses an option."""
        offer = option.offer
        settings = [*self.request.settings, f"cluster.workers={offer.workers}"]
        if offer.profile:
            settings.insert(0, f"cluster={offer.profile}")
        if offer.partition:
            settings.append(f'cluster.walltime="{option.walltime}"')
        return tuple(settings)

    def command(self, option: Option) -> str:
        """The shell command that runs an option."""
        words = ["daskmetrics", "run", str(self.request.config)]
        if self.request.is_program:
            ranks = str(option.offer.workers)
            words = ["daskmetrics", "train", str(self.request.config), "--ranks", ranks]
        for setting in self.settings_of(option):
            words += ["--set", setting]
        if self.request.args:
            words += ["--", *self.request.args]
        return shlex.join(words)


def numbers_of(options: Iterable[Option]) -> str:
    """The numbers of options, joined."""
    return listed(list(map(str, sorted(option.number for option in options))))


def proposal_tables(proposal: Proposal, now: float) -> Iterator[Table]:
    """The options of a plan, where their numbers come from, what the run needs, and the
    commands.
    """
    title = f"Plan of {proposal.name} (nothing is submitted)"
    if proposal.is_finished:
        yield Table((), (("state", "finished: nothing is left to do"),), title)
        return
    options = proposal.options
    table = table_of(
        "plan",
        title,
        proposal=proposal,
        amount=amount,
        bounded=bounded,
        numbers=numbers_of,
        step=lambda seconds: f"{amount(seconds)} s",
    )
    yield without_empty_columns(table)
    # where the numbers come from, and when they were measured
    sources: dict[tuple[str, str, str], list[Option]] = defaultdict(list)
    for option in options:
        estimates = {"run": option.run, "wait": option.offer.wait}
        for name, estimate in estimates.items():
            age = ""
            if estimate.at is not None:
                age = f"{duration(max(0.0, now - estimate.at))} ago"
            sources[name, estimate.source, age].append(option)
        if option.offer.success:
            sources["chance of success", str(option.offer.success), ""].append(option)
    origins = [
        (name, numbers_of(of_source), source, age)
        for (name, source, age), of_source in sources.items()
    ]
    yield Table(("number", "options", "from", "age"), sorted(origins))
    needs = {"work": options[0].workload, "request": proposal.request, "size_text": size_text}
    yield Table(("needs", ""), rows_of("plan_needs", **needs))
    suggested = set()
    for suggestion in proposal.suggestions:
        suggested |= {suggestion.option, suggestion.choice}
    commands = [
        (str(option.number), proposal.command(option)) for option in options if option in suggested
    ]
    note = "Add --submit NUMBER to run an option."
    if proposal.request.is_program:
        note = "The ranks of a program start with these commands."
    if commands:
        yield Table(("#", "command"), commands, notes=(note,))


def proposal_document(proposal: Proposal) -> dict[str, object]:
    """A plan for other programs; see docs/json.md."""
    suggestions = []
    for suggestion in proposal.suggestions:
        ties = [option.number for option in suggestion.ties]
        number = suggestion.option.number
        suggestions.append({"label": suggestion.label, "option": number, "ties": ties})
    options = []
    for option in proposal.options:
        record = option.offer.success
        document = {name: getattr(option.offer, name) for name in OFFER_KEYS}
        document |= {name: getattr(option, name) for name in OPTION_KEYS}
        document["training"] = option.pace
        document["success"] = record and {**vars(record), "chance": record.chance}
        document["command"] = proposal.command(option) if option.possible else None
        options.append(document)
    return {
        "name": proposal.name,
        "at": proposal.at,
        "options": options,
        "suggestions": suggestions,
        "purpose": proposal.request.purpose,
        "chosen": proposal.recommended and proposal.recommended.choice.number,
        "reason": proposal.reason,
    }


def without_empty_columns(table: Table) -> Table:
    """The table without the columns of which no row has a cell."""
    columns = zip(table.header, *table.rows, strict=True)
    filled = [column for column in columns if any(column[1:])]
    header, *rows = zip(*filled, strict=True)
    return replace(table, header=header, rows=rows)


def bounded(
    interval: Interval, form: Callable[[float], str] = duration, until: str = " to "
) -> str:
    """A number, by default a duration, with its bounds.

    >>> bounded(Interval(3600.0, 7200.0, 14400.0)), bounded(Interval.exactly(60.0))
    ('2.0 h (60.0 min to 4.0 h)', '60 s')
    """
    low, value, high = map(form, interval.bounds)
    if low == high:
        return value
    return f"{value} ({low}{until}{high})"


def amount(number: float) -> str:
    """Hours, money or rates, rounded to the digits that matter.

    >>> amount(0.0123), amount(4.56), amount(1234.5)
    ('0.0123', '4.56', '1,234')
    """
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def doublings(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... and ``most``.

    >>> doublings(10)
    (1, 2, 4, 8, 10)
    """
    powers = [2**i for i in range(most.bit_length())]
    return tuple(dict.fromkeys([*powers, most]))
