"""The benchmark at its smallest; no time is asserted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_it_runs():
    command = [sys.executable, BENCHMARKS / "execution.py", "--small"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "daskmetrics, units",
        "client.map",
        "joblib, threads",
        "journal MB",
        "first placing",
    ):
        assert words in done.stdout
