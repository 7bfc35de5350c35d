from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_map_with_every_fault_is_resumed_and_verified(tmp_path):
    script = Path("benchmarks/transcript.py").resolve()
    done = subprocess.run(
        [sys.executable, str(script), "--iterations", "60", "--workers", "2", "--port", "8860"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(script.parents[1]),
            "DASKMETRICS_CACHE": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 items: 57 ok, 3 failed." in done.stdout and "(exit code 3)" in done.stdout
    for cause in ("1 x oom", "1 x timeout", "1 x quarantined"):
        assert cause in done.stdout
    assert "Items recorded more than once: none." in done.stdout and "0 differ" in done.stdout
    assert 'daskmetrics_items{status="ok"}' in done.stdout and "telemetry.png" in done.stdout
