"""The benchmark at its smallest: real workers, real scores, and a search with the whole budget finds the best arm."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from daskmetrics.bandit.replay import ScoreRow, score_table
from daskmetrics.core.names import Arm

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "demo_search.py"


def test_live_searches_are_compared_with_the_exhaustive_sweep(tmp_path):
    command = [sys.executable, SCRIPT, "--small", "--folder", tmp_path / "runs"]
    environment = {"DASKMETRICS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "within 1%: 1 of 1" in done.stdout
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["measured", "search-0", "truth"]


def test_the_truth_uses_the_baseline_of_the_searches():
    spec = importlib.util.spec_from_file_location("demo_search", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    rows = [ScoreRow(Arm(model, f"step{s}", layer), "t", 0.1 * s) for model in "ba" for s in (1, 2) for layer in (0, 1)]
    best = SimpleNamespace(default=Arm("b", "step2", 1))
    run = SimpleNamespace(result=SimpleNamespace(reward="zscore"), best=lambda: best)
    assert str(script.scenario(run).build_problem(score_table(rows)).baseline) == "b@step2"
