"""A real Slurm, and a cache of calibrations of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.experiment.conftest import prepared
from tests.slurm.site import site

__all__ = ["prepared"]  # a fixture of the experiments


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a real Slurm with eight nodes of four GPUs."""
    with site(tmp_path_factory.mktemp("slurm")) as folder:
        yield folder
