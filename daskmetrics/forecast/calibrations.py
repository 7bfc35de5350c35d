"""Where calibrations are kept: one small JSON file each, in the folder that all runs of a user share."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from daskmetrics.errors import DataError
from daskmetrics.layout import cache_folder, private, replace
from daskmetrics.planning import Calibration


def folder() -> Path:
    """Where they lie."""
    return cache_folder() / "calibrations"


def save(calibration: Calibration) -> Path:
    """Keep a calibration; the path of its file."""
    path = folder() / f"{calibration.at:.0f}-{calibration.device}-{os.getpid()}.json"
    with private():
        path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, json.dumps(calibration.as_dict(), indent=1))
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
