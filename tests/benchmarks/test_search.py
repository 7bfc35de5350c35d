"""The benchmark at its smallest: every section runs and prints its results; no time is asserted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "search.py"


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, BENCHMARK, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_policy_is_compared_under_every_cost():
    text = run("--small", "--only", "cost")
    for policy in (
        "race",
        "policies:lucb",
        "policies:halving",
        "random",
        "policies:gp_ei",
        "policies:linucb",
        "rivals:tpe",
        "replaced LinUCB",
    ):
        assert text.count(f"\n{policy} ") >= 3
    compared = text.split("Searches whose arm is within")[1]
    line = next(line for line in compared.splitlines() if line.startswith("race  "))
    # its made-up table is easy; after 10 % an arm with all scores is named before the leader, which
    # lacks some
    assert line.split()[-2] == "2/2"
    _, together = text.split("Within 1 % of the best after a share")
    assert "all 32: 0.3%" in together and "99/100" in together


def test_a_search_is_given_each_budget_in_question():
    text = run("--small", "--only", "budgets")
    assert text.count("; 2 of 2; ") == 9  # its made-up table is easy


def test_workers_are_compared_with_one_arm_at_a_time():
    text = run("--small", "--only", "workers")
    assert (
        "race, 32 workers, 30 s per pull" in text
        and "one arm at a time, policies:gp_ei, 32 workers, 30 s per pull" in text
    )


def test_an_ask_is_timed_at_scale():
    text = run("--small", "--only", "scale")
    assert (
        "72 arms x 4 tasks, 32 decisions at once" in text
        and "slowest" in text
        and "MB at most" in text
    )
