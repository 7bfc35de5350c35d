"""Slurm clusters on a machine without Slurm."""

from __future__ import annotations

import subprocess
import sys

import pytest

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError


def test_without_slurm_the_error_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="'sbatch' is not on PATH"), connect(Cluster(kind="slurm")):
        pass


def test_the_handler_of_ctrl_c_stays_as_it_was():
    code = "import signal, daskmetrics.cluster.slurm._cluster; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
