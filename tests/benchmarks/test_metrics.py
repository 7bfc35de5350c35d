"""The benchmark at its smallest: that the two ways agree and that it says what it measured; no time
is asserted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "metrics.py"


def test_it_runs_on_a_gpu_with_the_same_code(tmp_path):
    out = tmp_path / "results.jsonl"
    command = [sys.executable, BENCHMARK, "--small", "--device", "cuda", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "288 arms" in done.stdout and json.loads(out.read_text())["engine / bare forward"] > 0


def test_it_runs():
    command = [sys.executable, BENCHMARK, "--small"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("engine / bare forward", "differing by", "peak memory"):
        assert words in done.stdout
