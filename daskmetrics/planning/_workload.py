"""What is to be done, and how long a number of workers of a kind takes for it."""

from __future__ import annotations

from dataclasses import dataclass

from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.planning._devices import speed
from daskmetrics.planning._scaling import divided, makespan

UNKNOWN_DEVICE = Interval.around(1.0, 3.0)
"""Speed that is taken for a device of which nothing is known, beside the one that was measured."""

USUAL_START = Estimate(Interval(5.0, 20.0, 120.0))
"""Seconds that workers are assumed to take to connect and to import their libraries."""

NONE = Interval.exactly(0.0)

MANY = 20_000
"""Units beyond which their order no longer matters, and work is simply divided."""


@dataclass(frozen=True)
class Phase:
    """Units of one kind; phases follow each other.

    Attributes
    ----------
    name : str
    units : int
        Calls of a worker; for ``together``, epochs or other equal parts.
    seconds : Estimate
        Of one unit.
    chains : int or None
        How many units can run side by side at most, such as one per suite that is trained; None without limit.
    together : bool
        Whether all workers do each unit together, as in data-parallel training.
    workers : int
        By how many workers a unit was done when it was measured; more than one only if ``together``.
    serial : Interval
        The share of the time that does not become shorter with more workers.
    """

    name: str
    units: int
    seconds: Estimate
    chains: int | None = None
    together: bool = False
    workers: int = 1
    serial: Interval = NONE

    def on(self, workers: int) -> Interval:
        """Seconds on so many workers like the one that was measured.

        Examples
        --------
        >>> Phase("measure", 10, Estimate(Interval.exactly(60.0))).on(4).value
        180.0
        >>> Phase("epochs", 40, Estimate(Interval.exactly(60.0)), together=True, workers=16).on(8).value
        4800.0
        """
        if self.together:
            shares = [divided(serial, workers) / divided(serial, self.workers) for serial in self._serials()]
            share = Interval(min(shares), shares[1], max(shares))
            return self.seconds.interval * (share * self.units)
        ideal = self._rounds(workers)
        # a serial share keeps its length, whatever the number of workers
        return self.seconds.interval * Interval(*(self.units * s + (1 - s) * ideal for s in self._serials()))

    def _serials(self) -> tuple[float, float, float]:
        return self.serial.low, self.serial.value, self.serial.high

    def _rounds(self, workers: int) -> float:
        """Seconds if a unit took one second."""
        if self.units > MANY:
            return self.units / min(workers, self.chains or workers)
        if self.chains is None:
            return makespan([[1.0]] * self.units, workers)
        lengths = [len(range(i, self.units, self.chains)) for i in range(self.chains)]
        return makespan([[1.0] * length for length in lengths], workers)


@dataclass(frozen=True)
class Workload:
    """Phases, and what each of their workers needs.

    Attributes
    ----------
    phases : tuple of Phase
    device : str
        On which a unit's seconds were measured or assumed: ``cpu``, ``l40s``, ...
    start : Estimate
        Seconds until workers are there once their jobs run.
    vram_gib, host_gib : float
        Assumed memory of one worker.
    disk_bytes : int
    missing : tuple of str
        Models and data that are not on this machine.
    """

    phases: tuple[Phase, ...]
    device: str = "cpu"
    start: Estimate = USUAL_START
    vram_gib: float = 0.0
    host_gib: float = 0.0
    disk_bytes: int = 0
    missing: tuple[str, ...] = ()

    @property
    def units(self) -> int:
        return sum(phase.units for phase in self.phases)

    @property
    def measured(self) -> bool:
        """Whether every phase's seconds were."""
        return all(phase.seconds.measured for phase in self.phases)

    def on(self, workers: int, device: str) -> Estimate:
        """Seconds on so many workers of a device, with where the number comes from; queue and start not counted.

        Examples
        --------
        >>> work = Workload((Phase("epochs", 40, Estimate(Interval.exactly(1320.0), "measured", True), together=True,
        ...     workers=16),), device="a100")
        >>> round(work.on(16, "a100").value / 3600, 1)
        14.7
        """
        seconds = Interval.exactly(0.0)
        for phase in self.phases:
            seconds += phase.on(workers)
        factor = speed(device, self.device)
        ratio = factor or UNKNOWN_DEVICE
        seconds = seconds * Interval(1 / ratio.high, 1 / ratio.value, 1 / ratio.low)
        same = device == self.device
        source = "; ".join(dict.fromkeys(phase.seconds.source for phase in self.phases)) or "nothing to do"
        if not same:
            how = "by datasheet" if factor else "of unknown speed"
            source += f"; {self.device} to {device} assumed {how}"
        ages = [phase.seconds.at for phase in self.phases if phase.seconds.at is not None]
        return Estimate(seconds, source, self.measured and same, min(ages, default=None))
