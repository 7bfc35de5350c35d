"""The work of a run in phases, and how long a number of workers of one kind takes for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskmetrics.core.costs import Estimate, Interval
from daskmetrics.planning.scaling import divided, makespan

# up and down, by which the ratio of two datasheets may miss the ratio of two runs
SPEED_FACTOR = 1.5
# assumed speed of an unknown device relative to the measured one
UNKNOWN_DEVICE = Interval.around(1.0, 3.0)
# assumed seconds until workers have imported their libraries
USUAL_START = Estimate(Interval(5.0, 20.0, 120.0))
NOTHING_SERIAL = Interval.exactly(0.0)
MANY = 20_000  # units beyond which their order no longer matters, so that work is simply divided


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
    """Units of one kind; a workload's phases follow each other.

    Attributes
    ----------
    name : str
    units : int
        Calls of a worker; if ``together``, epochs or other equal parts.
    seconds : Estimate
        Of one unit.
    chains : int or None
        How many units can run side by side, such as one per suite that is trained, or if
        ``together`` how many workers can share one; None without limit.
    together : bool
        Whether all workers share each unit, as in data-parallel training.
    workers : int
        Workers that shared a unit when it was measured; more than one only if ``together``.
    serial : Interval
        The share of the time that more workers do not shorten.
    samples : float
        Sequences that a training learns from in one unit, on average.
    epoch : float or None
        Sequences of its corpus; None where they have not been counted.
    """

    name: str
    units: int
    seconds: Estimate
    chains: int | None = None
    together: bool = False
    workers: int = 1
    serial: Interval = NOTHING_SERIAL
    samples: float = 0.0
    epoch: float | None = None

    def on(self, workers: int) -> Interval:
        """Seconds on a number of workers of the measured kind.

        Examples
        --------
        >>> Phase("measure", 10, Estimate(Interval.exactly(60.0))).on(4).value
        180.0
        >>> epochs = Phase("epochs", 40, Estimate(Interval.exactly(60.0)), chains=32, together=True, workers=16)
        >>> epochs.on(8).value, epochs.on(64).value
        (4800.0, 1200.0)
        """
        if self.together:
            workers = min(workers, self.chains or workers)
            shares = [
                divided(serial, workers) / divided(serial, self.workers)
                for serial in self.serial.bounds
            ]
            share = Interval(min(shares), shares[1], max(shares))
            return self.seconds.interval * (share * self.units)
        if self.units > MANY:
            rounds = self.units / min(workers, self.chains or workers)  # if a unit took one second
        else:
            chains = self.chains or self.units
            rounds = makespan(
                [[1.0] * len(range(i, self.units, chains)) for i in range(chains)], workers
            )
        # the serial share keeps its length, whatever the number of workers
        return self.seconds.interval * Interval(
            *(self.units * s + (1 - s) * rounds for s in self.serial.bounds)
        )


@dataclass(frozen=True)
class Workload:
    """Phases, and the memory and disk that they need.

    Attributes
    ----------
    phases : tuple of Phase
    device : str
        Device that the units' seconds hold for: ``cpu``, ``l40s``, ...
    start : Estimate
        Seconds until workers are ready once their jobs run.
    vram_gib, host_gib : float
        Assumed memory of one worker.
    disk_bytes : int
    missing : tuple of str
        Models and data that are not on this machine.
    texts : str
        How many texts are scored, and how that is known.
    download : Estimate or None
        Seconds of downloads, which workers of any number share.
    """

    phases: tuple[Phase, ...]
    device: str = "cpu"
    start: Estimate = USUAL_START
    vram_gib: float = 0.0
    host_gib: float = 0.0
    disk_bytes: int = 0
    missing: tuple[str, ...] = ()
    texts: str = ""
    download: Estimate | None = None

    @property
    def units(self) -> int:
        return sum(phase.units for phase in self.phases)

    def on(self, workers: int, device: str) -> Estimate:
        """Seconds on a number of workers of a device, without queue and start; the source says how
        they are known.

        Examples
        --------
        >>> epoch = Estimate(Interval.exactly(1320.0), "measured", True)
        >>> epochs = Phase("epochs", 40, epoch, together=True, workers=16)
        >>> round(Workload((epochs,), device="a100").on(16, "a100").value / 3600, 1)
        14.7
        """
        seconds = sum((phase.on(workers) for phase in self.phases), start=Interval.exactly(0.0))
        datasheet = speed(device, self.device)
        ratio = datasheet or UNKNOWN_DEVICE
        seconds = seconds * Interval(1 / ratio.high, 1 / ratio.value, 1 / ratio.low)
        source = (
            "; ".join(dict.fromkeys(phase.seconds.source for phase in self.phases))
            or "nothing to do"
        )
        if device != self.device:
            basis = "by datasheet" if datasheet else "of unknown speed"
            source += f"; {self.device} to {device} assumed {basis}"
        measured = device == self.device and all(phase.seconds.measured for phase in self.phases)
        if self.download:
            seconds, measured = seconds + self.download.interval, False
            source += f"; downloads: {self.download.source}"
        ages = [phase.seconds.at for phase in self.phases if phase.seconds.at is not None]
        return Estimate(seconds, source, measured, min(ages, default=None))
