"""Measured seconds of units, which correct what is assumed.

A calibration holds, for each kind of unit and each model, measured seconds beside those that the
cost model assumes of the same device. Their ratio corrects the assumption for other units of the
same kind and model; for another model the bounds are wider.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import gethostname

from pydantic import TypeAdapter

from daskmetrics.core.errors import DataError
from daskmetrics.core.files import atomic_write, cache_folder, private
from daskmetrics.core.machine import environment
from daskmetrics.domain.names import Cell, Checkpoint
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Scored
from daskmetrics.planning.work import Bounds, Estimate, around, mean_of

# factors, up and down
ASSUMED = 4.0  # by which an assumed time may be wrong
OTHER_MODEL = 1.6  # by which the ratio of one model may be wrong for another
SURE = 1.05  # by which the mean of any number of measurements may be wrong


@dataclass(frozen=True)
class Sample:
    """Measured and assumed seconds of units of one kind and model."""

    kind: str  # such as ``measure`` or ``map``
    group: str  # the model's or the function's name; empty for scores
    seconds: tuple[float, ...]  # one for each unit
    assumed: float  # average of such units on the device that measured them
    ranks: int = 1  # workers that shared each unit
    # of a training program in a unit; 0 where it does not report them
    steps: float = 0.0
    samples: float = 0.0
    epochs: float = 0.0

    @property
    def ratio(self) -> Bounds:
        """Measured over assumed seconds: the mean with its error.

        The mean, since a plan predicts sums.

        >>> unlike = (8.0, 0.1)
        >>> Sample("score", "", unlike, 1.0).ratio
        array([ 1.0125,  4.05  , 16.2   ])
        >>> Sample("score", "", 50 * unlike, 1.0).ratio.round(1)
        array([2.8, 4.1, 5.8])
        """
        low, _, high = mean_of([max(seconds, 1e-6) for seconds in self.seconds])
        mean = max(sum(self.seconds) / len(self.seconds), 1e-6)
        # a few very different ones say no less than an assumption
        factor = min(ASSUMED, (high / low) ** 0.5)
        return around(mean / self.assumed, max(SURE, factor))


@dataclass(frozen=True)
class Calibration:
    """The result of one bench, with its time and place."""

    device: str
    host: str = field(default_factory=gethostname)
    at: float = field(default_factory=time.time)  # seconds since 1970
    # of what it was measured with
    versions: Mapping[str, str] = field(
        default_factory=partial(environment, "daskmetrics", "distributed", "torch", "transformers")
    )
    samples: tuple[Sample, ...] = ()
    workers: int = 1  # the largest number that was tried
    serial: tuple[float, float, float] = (0.0, 0.0, 0.0)  # share that cannot be divided: bounds
    start: float = 0.0  # seconds until workers were ready
    # time of a run beyond that of its units on as many workers, as a share of it
    overhead: float = 0.0
    busy: float | None = None  # share of the time in which the GPUs computed, by telemetry

    @property
    def is_of_experiment(self) -> bool:
        """Whether its workers started those of an experiment.

        Those of a map import less.
        """
        return {"map", "program"}.isdisjoint(sample.kind for sample in self.samples)


_JSON = TypeAdapter(Calibration)


def best_sample(
    kind: str, group: str, calibrations: Sequence[Calibration]
) -> tuple[Calibration, Sample] | None:
    """The newest measurement of the same model, or else kind."""
    same_kind: list[tuple[Calibration, Sample]] = []
    for measured in calibrations:
        same_kind += [(measured, sample) for sample in measured.samples if sample.kind == kind]
    return max(same_kind, key=lambda pair: (pair[1].group == group, pair[0].at), default=None)


def calibrated(
    kind: str,
    group: str,
    assumed: float,
    calibrations: Sequence[Calibration],
) -> Estimate:
    """Seconds of a unit, corrected by the best calibration.

    >>> known = [
    ...     Calibration("cpu", "here", at, samples=(Sample("measure", "tiny", (at, at), 1.0),))
    ...     for at in (3.0, 2.0)
    ... ]
    >>> calibrated("measure", "tiny", 10.0, known).seconds.round(1)
    array([28.6, 30. , 31.5])
    >>> calibrated("measure", "small", 10.0, known).seconds.round(1)
    array([17.9, 30. , 50.4])
    >>> calibrated("score", "", 10.0, known).source
    'estimated'
    """
    best = best_sample(kind, group, calibrations)
    if best is None:
        return Estimate(around(assumed, ASSUMED))
    calibration, sample = best
    seconds = sample.ratio * assumed
    busy = calibration.busy
    if sample.group != group:
        seconds *= around(1.0, OTHER_MODEL)
        busy = None
    units = f"{len(sample.seconds)} x {kind} {sample.group}".rstrip()
    return Estimate(seconds, f"{units} measured on {calibration.host}", calibration.at, busy)


def unit_seconds(units: Iterable[Record]) -> list[float]:
    """Seconds of each unit on its worker.

    An encoding counts with the first score that used it.
    """
    seconds = []
    encodings: set[tuple[Checkpoint, str, float]] = set()
    for record in units:
        of_unit = record.seconds
        if record.kind == "score" and isinstance(record.value, Scored):
            cell = Cell.parse(record.name)
            encoding = cell.arm.checkpoint, cell.task, record.value.encode_seconds
            if encoding not in encodings:
                of_unit += record.value.encode_seconds
            encodings.add(encoding)
        seconds.append(of_unit)
    return seconds


def folder() -> Path:
    """Where calibrations are kept."""
    return cache_folder() / "calibrations"


def keep(calibration: Calibration) -> Path:
    """Write a calibration; returns the path of its file."""
    path = folder() / f"{calibration.at:.0f}-{calibration.device}-{os.getpid()}.json"
    with private():
        path.parent.mkdir(parents=True, exist_ok=True)
    return atomic_write(path, _JSON.dump_json(calibration, indent=1).decode())


def kept() -> tuple[Calibration, ...]:
    """All kept calibrations, oldest first.

    Raises DataError for a file that is not a calibration.
    """
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
