"""The benchmark at its smallest, and the example that the documentation shows; no time is asserted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_it_runs():
    command = [sys.executable, BENCHMARKS / "map.py", "--small"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "plain loop",
        "client.map, batch 10",
        "daskmetrics.map, batch  1",
        "overhead per iteration",
    ):
        assert words in done.stdout


def test_the_example_runs_and_is_found_again(tmp_path):
    function = f"{BENCHMARKS / 'iterations.py'}:iteration"
    command = [sys.executable, "-m", "daskmetrics", "map", function]
    run = [
        *command,
        "--iterations",
        "6",
        "--workers",
        "1",
        "--batch-size",
        "3",
        "--output",
        "results.csv",
    ]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(tmp_path / "results.csv")["checksum"].nunique() == 6
    verify = [*command, "--verify", "4", "--ignore", "gflops", "--tolerance", "1e-6"]
    done = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "0 differ" in done.stdout, done.stdout + done.stderr
