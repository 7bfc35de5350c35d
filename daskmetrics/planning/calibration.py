"""Measured times of units, and how they correct assumed times.

A calibration holds, for each kind of unit and each model, measured seconds beside those that the
cost model assumes. Their ratio corrects the assumption for other units of the same kind and model;
for another model the interval is wider.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from daskmetrics.core.errors import DataError
from daskmetrics.core.files import atomic_write, cache_folder, private
from daskmetrics.core.machine import environment
from daskmetrics.planning.scaling import Estimate, Interval

# factors, up and down
ASSUMED = 4.0  # by which an assumed time may be wrong
OTHER_MODEL = 1.6  # by which the ratio of one model may be wrong for another

versions = partial(environment, "daskmetrics", "distributed", "torch", "transformers")
"""What a calibration is measured with."""


@dataclass(frozen=True)
class Sample:
    """Measured seconds of units of one kind and model, and the assumed seconds of one unit."""

    kind: str  # such as ``measure`` or ``map``
    group: str  # the model's or the function's name
    seconds: tuple[float, ...]  # one for each unit
    assumed: float  # average of such units on a CPU core, whatever device measured them
    ranks: int = 1  # workers that shared each unit

    @property
    def ratio(self) -> Interval:
        """Measured over assumed seconds: the mean, since a plan predicts sums, with the error of
        the mean.
        """
        error = Interval.of([max(seconds, 1e-6) for seconds in self.seconds])
        mean = max(sum(self.seconds) / len(self.seconds), 1e-6)
        return Interval.around(mean / self.assumed, max(1.05, (error.high / error.low) ** 0.5))


@dataclass(frozen=True)
class Calibration:
    """The result of one bench or probe, with its time and place."""

    device: str
    host: str
    at: float  # seconds since 1970
    versions: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    workers: int = 1  # the largest number that was tried
    serial: tuple[float, float, float] = (0.0, 0.0, 0.0)  # the serial share: low, value, high
    start: float = 0.0  # seconds until workers were ready
    overhead: float = 0.0  # time of a run beyond its units, as a share of the units' time


_JSON = TypeAdapter(Calibration)


def best_sample(
    kind: str, group: str, calibrations: Sequence[Calibration], device: str
) -> tuple[Calibration, Sample] | None:
    """The newest measurement on a device of the same model, or else of the same kind; None without
    any.
    """
    same_kind: list[tuple[Calibration, Sample]] = []
    for measured in calibrations:
        if measured.device == device:
            same_kind += [
                (measured, sample)
                for sample in measured.samples
                if sample.kind == kind and sample.seconds
            ]
    return max(same_kind, key=lambda pair: (pair[1].group == group, pair[0].at), default=None)


def calibrated(
    kind: str,
    group: str,
    assumed: float,
    calibrations: Sequence[Calibration],
    device: str,
    otherwise: float | None = None,
) -> Estimate:
    """Seconds of a unit, from the assumed seconds and the best calibration of the device.

    The newest calibration of the same model is used, or else the newest of the same kind. Without
    any, the result is ``otherwise`` if given: the assumption for this device, where ``assumed`` is
    the one that samples are compared with.

    >>> known = [Calibration("cpu", "here", 0.0, samples=(Sample("measure", "tiny", (2.0, 2.0), 1.0),))]
    >>> round(calibrated("measure", "tiny", 1.0, known, "cpu").value, 6)
    2.0
    >>> calibrated("measure", "tiny", 1.0, known, "l40s").source
    'estimated'
    """
    best = best_sample(kind, group, calibrations, device)
    if best is None:
        if otherwise is not None:
            assumed = otherwise
        return Estimate(Interval.around(assumed, ASSUMED))
    calibration, sample = best
    same_model = sample.group == group
    ratio = sample.ratio
    if not same_model:
        ratio *= Interval.around(1.0, OTHER_MODEL)
    source = f"{len(sample.seconds)} x {kind} {sample.group} measured on {calibration.host}"
    return Estimate(ratio * assumed, source, measured=same_model, at=calibration.at)


def folder() -> Path:
    """Where calibrations are kept."""
    return cache_folder() / "calibrations"


def save(calibration: Calibration) -> Path:
    """Keep a calibration; returns the path of its file."""
    path = folder() / f"{calibration.at:.0f}-{calibration.device}-{os.getpid()}.json"
    with private():
        path.parent.mkdir(parents=True, exist_ok=True)
    return atomic_write(path, _JSON.dump_json(calibration, indent=1).decode())


def known() -> tuple[Calibration, ...]:
    """All kept calibrations, oldest first; DataError for a file that is not a calibration."""
    calibrations = []
    for path in sorted(folder().glob("*.json")):
        try:
            calibrations.append(_JSON.validate_json(path.read_bytes()))
        except ValueError as error:
            raise DataError(
                f"'{path}' is not a calibration ({error}). "
                "Delete it and measure again with: daskmetrics bench"
            ) from None
    return tuple(calibrations)
