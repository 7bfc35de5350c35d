"""What was measured once, and how later predictions are put right by it.

A calibration holds, for each kind of unit and each model, measured seconds beside those that `cost` assumes. Their
ratio corrects the assumption for units of the same kind: exactly for the model that was measured, with a wider interval
for another one.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.core._files import atomic_write, cache_folder, private
from daskmetrics.core.errors import DataError

ASSUMED = 4.0
"""Factor, up and down, by which an assumed time is taken to miss."""

OTHER_MODEL = 1.6
"""Likewise for the measured ratio of another model."""


@dataclass(frozen=True)
class Sample:
    """Measured seconds of units of one kind and model, beside the assumed ones; all of one unit.

    Attributes
    ----------
    kind, group : str
        ``measure``, and the model's name or the map's function.
    seconds : tuple of float
        Measured, one for each unit.
    assumed : float
        What is assumed of such a unit on a CPU core, on average, whatever measured it.
    """

    kind: str
    group: str
    seconds: tuple[float, ...]
    assumed: float

    @property
    def mean(self) -> float:
        return sum(self.seconds) / len(self.seconds)

    @property
    def ratio(self) -> Interval:
        """Measured over assumed: the mean, since sums are what is predicted, with the error of the mean."""
        around = Interval.of([max(second, 1e-6) for second in self.seconds])
        value = max(self.mean, 1e-6)
        return Interval.around(value / self.assumed, max(1.05, (around.high / around.low) ** 0.5))


@dataclass(frozen=True)
class Calibration:
    """What one bench or probe found, with where and when.

    Attributes
    ----------
    device, host : str
    at : float
        Seconds since 1970.
    versions : mapping
    samples : tuple of Sample
    workers : int
        At the most that was tried.
    serial : tuple of float
        The serial share: low, value, high.
    start : float
        Seconds until workers were there.
    overhead : float
        Seconds of a run that belong to no unit: the driver's own beginning and end.
    """

    device: str
    host: str
    at: float
    versions: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    workers: int = 1
    serial: tuple[float, float, float] = (0.0, 0.0, 0.0)
    start: float = 0.0
    overhead: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        """What `as_dict` gave.

        Raises
        ------
        TypeError, KeyError
            If it is something else.
        """
        samples = tuple(Sample(**{**each, "seconds": tuple(each["seconds"])}) for each in data["samples"])
        return cls(**{**data, "samples": samples, "serial": tuple(data["serial"])})


def calibrated(
    kind: str, group: str, assumed: float, known: Sequence[Calibration], device: str, otherwise: float | None = None
) -> Estimate:
    """Seconds of a unit of which ``assumed`` are assumed, put right by the best calibration that there is.

    Without any it is ``otherwise``, if that is given: what is assumed of this device and not of the one that samples
    are compared with. The newest of the same model counts, then the newest of the same kind; none of another device.

    Examples
    --------
    >>> known = [Calibration("cpu", "here", 0.0, samples=(Sample("measure", "tiny", (2.0, 2.0), 1.0),))]
    >>> round(calibrated("measure", "tiny", 1.0, known, "cpu").value, 6)
    2.0
    >>> calibrated("measure", "tiny", 1.0, known, "l40s").source
    'assumed'
    """
    own = [(c, s) for c in known if c.device == device for s in c.samples if s.kind == kind and s.seconds]
    for exact in (True, False):
        found = [(c, s) for c, s in own if (s.group == group) is exact]
        if found:
            calibration, sample = max(found, key=lambda pair: pair[0].at)
            return _corrected(assumed, calibration, sample, exact)
    return Estimate(Interval.around(assumed if otherwise is None else otherwise, ASSUMED))


def _corrected(assumed: float, calibration: Calibration, sample: Sample, exact: bool) -> Estimate:
    ratio = sample.ratio
    if not exact:
        ratio = ratio * Interval.around(1.0, OTHER_MODEL)
    source = f"{len(sample.seconds)} x {sample.kind} {sample.group} measured on {calibration.host}"
    return Estimate(ratio * assumed, source, measured=exact, at=calibration.at)


def folder() -> Path:
    """Where they lie."""
    return cache_folder() / "calibrations"


def save(calibration: Calibration) -> Path:
    """Keep a calibration; the path of its file."""
    path = folder() / f"{calibration.at:.0f}-{calibration.device}-{os.getpid()}.json"
    with private():
        path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(calibration.as_dict(), indent=1))
    return path


def known() -> tuple[Calibration, ...]:
    """All that are kept, oldest first.

    Raises
    ------
    DataError
        If a file is none, with its name.
    """
    return tuple(_read(path) for path in sorted(folder().glob("*.json")))


def _read(path: Path) -> Calibration:
    try:
        return Calibration.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"'{path}' is no calibration ({error}). Delete it, and measure again: daskmetrics bench"
        ) from None


def versions() -> Mapping[str, str]:
    """What a calibration is valid for."""
    return {"python": platform.python_version(), **dict(_installed())}


def _installed() -> Iterator[tuple[str, str]]:
    for name in ("daskmetrics", "distributed", "torch", "transformers"):
        yield name, version(name)
