"""What can be said of Slurm clusters where there is no Slurm."""

from __future__ import annotations

import subprocess
import sys

import pytest

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError


def test_without_slurm_it_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="There is no 'sbatch' here"), connect(Cluster(kind="slurm")):
        pass


def test_ctrl_c_stays_what_it_was():
    code = "import signal, daskmetrics.cluster.slurm._cluster; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
