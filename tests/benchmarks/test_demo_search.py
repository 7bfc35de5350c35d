"""The benchmark at its smallest: real workers, real scores, and a search with the whole budget
finds the best arm.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "demo_search.py"


def test_live_searches_are_compared_with_the_exhaustive_sweep(tmp_path):
    command = [sys.executable, SCRIPT, "--small", "--folder", tmp_path / "runs"]
    environment = {"DASKMETRICS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "within 1%: 1 of 1" in done.stdout
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["seed-0", "truth"]
