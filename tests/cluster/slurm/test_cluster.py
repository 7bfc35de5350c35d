"""Slurm clusters on a machine without Slurm."""

from __future__ import annotations

import pytest

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError


def test_without_slurm_the_error_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with (
        pytest.raises(ConfigError, match="'sbatch' is not on PATH"),
        connect(Cluster(kind="slurm")),
    ):
        pass
