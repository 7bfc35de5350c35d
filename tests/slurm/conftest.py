"""One Slurm for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.site import site


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a real Slurm with eight nodes of four GPUs."""
    with site(tmp_path_factory.mktemp("slurm")) as place:
        yield place
