"""The benchmark at its smallest: every section runs and prints its results; no time is asserted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "families.py"


def test_what_transfers_and_what_is_stated_is_compared_with_the_truth():
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--small"], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rules, _, rest = done.stdout.partition("Spearman's rho")
    loss = {
        line[:44].strip(): line[44:].split()[0] for line in rules.splitlines() if "%" in line[44:]
    }
    # its made-up tables are best in the middle
    assert loss["depth fitted on other families"] == "0.0%"
    assert loss["the last layer"] == "18.1%"
    for policy in ("race", "rivals:tpe", "60 % depth"):
        assert rest.count(f"{policy} ") >= 9  # three tables under three costs
    assert rest.count("expected loss") >= 6 and rest.count("true loss") >= 6
