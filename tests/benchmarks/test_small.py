"""Each benchmark at its smallest: what it compares agrees, and it says what it measured; no time is
asserted.
"""

from __future__ import annotations

import json

import pandas as pd
import pytest

from benchmarks import train
from daskmetrics.config import Recipe
from tests.benchmarks.conftest import FOLDER, encoder

pytestmark = pytest.mark.benchmark


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
    assert "100 texts x 25 layers" in text and "together" in text
    kinds = ("Classification", "Clustering", "STS", "Reranking")
    assert all(f"mteb:Local{kind}" in text for kind in kinds)


def test_a_map_with_every_fault_is_resumed_and_verified(run):
    text = run(FOLDER / "transcript.py", "--iterations", 60, "--workers", 2, "--port", 8860)
    assert "60 items: 57 ok, 3 failed; " in text and "(exit code 3)" in text
    assert all(cause in text for cause in ("1 x oom", "1 x timeout", "1 x quarantined"))
    assert "Items recorded more than once: none." in text and "0 differ" in text
    assert 'daskmetrics_items{status="ok"}' in text and "telemetry.png" in text


def test_the_example_of_the_documentation_runs_and_is_verified(run, tmp_path):
    command = ("-m", "daskmetrics", "map", f"{FOLDER / 'iterations.py'}:iteration")
    options = ("--iterations", 6, "--workers", 1, "--batch-size", 3, "--output", "results.csv")
    run(*command, *options)
    assert pd.read_csv(tmp_path / "results.csv")["checksum"].nunique() == 6
    verify = ("-m", "daskmetrics", "runs", "verify", "results.csv", "--sample", 4)
    text = run(*verify, "--ignore", "gflops", "--tolerance", 1e-6)
    assert "0 differ" in text


def test_a_suite_beyond_the_disk_is_measured_once_despite_a_kill(run):
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
