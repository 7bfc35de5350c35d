from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import Result

from tests.cli.calling import call as call_here
from tests.cli.calling import fails

BENCH = """
import os, random, time

def step(item, *, seed):
    time.sleep(0.002)
    if item == 13 and "REPAIRED" not in os.environ:
        raise ValueError(f"planted in {item}")
    return {"loss": random.Random(seed).random(), "twice": 2 * item}

def of_row(row):
    return float(row["rate"]) * 2
"""


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "bench.py").write_text(BENCH)
    return tmp_path


def call(place: Path, *arguments: str, **variables: str) -> Result:
    return call_here(place, "map", *arguments, **variables)


def start(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A map in a process of its own, with workers."""
    command = [sys.executable, "-m", "daskmetrics", "map", *arguments]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


def test_a_map_runs_writes_its_results_and_resumes(place):
    arguments = (
        "bench.py:step",
        "--iterations",
        "30",
        "--max-retries",
        "1",
        "--output",
        "out/results.parquet",
    )
    done = start(place, *arguments)
    assert done.returncode == 3, done.stderr
    assert "30 items: 29 ok, 1 failed." in done.stdout
    assert "1 x error: ValueError: planted in 13" in done.stdout
    assert "30 of 30" in done.stderr and "1 failed" in done.stderr
    results = pd.read_parquet(place / "out" / "results.parquet")
    assert results["twice"].dropna().tolist() == [2 * i for i in range(30) if i != 13]
    journal = (place / "runs" / "step" / "journal.jsonl").read_bytes()
    again = start(place, *arguments)
    assert again.returncode == 3 and "Starting" not in again.stderr
    assert (place / "runs" / "step" / "journal.jsonl").read_bytes() == journal
    more = call(place, "bench.py:step", "--iterations", "13", "--serial", "--output", "results.csv")
    assert more.exit_code == 0 and "13 of 13 items are recorded already" in more.stderr
    pd.testing.assert_series_equal(pd.read_csv(place / "results.csv")["loss"], results["loss"][:13])
    status = call_here(place, "status", "runs/step")
    # of the last run that had items to compute
    assert "30 items: 29 ok, 1 failed." in status.stdout
    followed = call_here(place, "status", "--follow", "runs/step")
    assert "30 items: 29 ok, 1 failed." in followed.stdout


def test_a_map_continues_from_an_older_state_and_keeps_what_came_later(place):
    arguments = (
        "bench.py:step",
        "--iterations",
        "12",
        "--batch-size",
        "5",
        "--serial",
        "--output",
        "r.csv",
    )
    assert call(place, *arguments).exit_code == 0
    before, first = pd.read_csv(place / "r.csv"), (place / "runs/step/journal.jsonl").read_bytes()
    dry = call(place, *arguments, "--resume-from", "7", "--dry-run")
    assert "12, of which 5 are recorded already" in dry.stdout
    again = call(place, *arguments, "--resume-from", "7")
    assert again.exit_code == 0 and "5 of 12 items are recorded already" in again.stderr, (
        again.stderr
    )
    assert (place / "runs/step/journal-1.jsonl").read_bytes() == first
    assert pd.read_csv(place / "r.csv")["loss"].tolist() == before["loss"].tolist()
    refused = call(place, *arguments, "--resume-from", "12")
    assert refused.exit_code == 2 and "No more than 12 items" in refused.stderr, refused.stderr


def test_items_are_read_from_a_file(place):
    (place / "rates.csv").write_text("rate\n1\n0.5\n")
    done = call(
        place, "bench.py:of_row", "--items", "rates.csv", "--serial", "--output", "results.csv"
    )
    assert done.exit_code == 0, done.stderr
    assert pd.read_csv(place / "results.csv")["value"].tolist() == [2.0, 1.0]


def test_failed_items_run_again_with_retry_failed(place):
    arguments = ("bench.py:step", "--iterations", "14", "--serial", "--max-retries", "0")
    assert call(place, *arguments).exit_code == 3
    assert call(place, *arguments, REPAIRED="1").exit_code == 3
    again = call(place, *arguments, "--retry-failed", REPAIRED="1")
    assert again.exit_code == 0 and "13 of 14 items are recorded already" in again.stderr


def test_a_changed_function_starts_again_and_reports_it(place):
    arguments = ("bench.py:step", "--iterations", "14", "--serial", "--max-retries", "0")
    call(place, *arguments)
    (place / "bench.py").write_text(BENCH.replace("2 * item", "3 * item"))
    changed = call(place, *arguments)
    assert "source has changed" in changed.stderr and "recorded already" not in changed.stderr


def test_a_dry_run_starts_nothing(place):
    done = call(
        place,
        "bench.py:step",
        "--iterations",
        "500",
        "--batch-size",
        "10",
        "--dry-run",
        "--output",
        "r.csv",
    )
    assert done.exit_code == 0, done.stderr
    for text in (
        "500, of which 0 are recorded",
        "50 of up to 10 items",
        "2 (local)",
        "seeded per item",
        "r.csv",
    ):
        assert text in done.stdout
    assert [path.name for path in place.iterdir() if path.name != "__pycache__"] == ["bench.py"]


def test_a_dry_run_for_slurm_shows_its_workers(place):
    (place / "slurm.yaml").write_text("kind: slurm\nworkers: 10\ngpu_type: a100\n")
    words = ("--iterations", "500", "--cluster", "slurm.yaml", "--cpus-per-worker", "3")
    done = call(place, "bench.py:step", *words, "--gpus-per-worker", "1", "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert "10 (slurm)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench.py:stepp", "--iterations", "3"), "Did you mean 'step'?"),
        (("bench.py:step",), "either --iterations N, or --items FILE"),
        (
            ("bench.py:step", "--iterations", "3", "--items", "a.csv"),
            "either --iterations N, or --items FILE",
        ),
        (
            ("bench.py:step", "--iterations", "3", "--timeout", "soon"),
            "'soon' is not a valid duration",
        ),
        (("bench.py:step", "--iterations", "3", "--output", "r.xlsx"), "the suffix must be one of"),
        (
            ("bench.py:step", "--iterations", "3", "--cluster", "nowhere"),
            "Unknown cluster profile 'nowhere'",
        ),
        (
            ("bench.py:step", "--iterations", "3", "--workers", "9999", "--cpus-per-worker", "3"),
            "this machine offers",
        ),
        (
            ("bench.py:step", "--iterations", "3", "--cluster", "wrong.yaml"),
            "Unknown key 'workrs'. Did you mean 'workers'?",
        ),
    ],
)
def test_a_mistake_gives_one_message_and_exit_code_2(place, arguments, message):
    (place / "wrong.yaml").write_text("kind: slurm\nworkrs: 10\n")
    done = call_here(place, "map", *arguments)
    assert fails(done, message), done.output
    assert not (place / "runs").exists()


def test_ctrl_c_in_this_process_explains_how_to_resume(place):
    (place / "bench.py").write_text(BENCH.replace("0.002", "1000 if item == 5 else 0.002"))
    arguments = [
        sys.executable,
        "-m",
        "daskmetrics",
        "map",
        "bench.py:step",
        "--iterations",
        "9",
        "--serial",
    ]
    with subprocess.Popen(
        [*arguments, "--batch-size", "1"], cwd=place, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = ""
        while "1 of 9" not in line:
            line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        message = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "run the same command again to resume" in message
