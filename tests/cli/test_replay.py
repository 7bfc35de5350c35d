"""The verb `replay` in a process of its own."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daskmetrics", "replay", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    with (tmp_path / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "revision", "layer", "task", "score", "seconds", "metric:depth"])
        for step in (1, 8, 64, 512):
            for layer in range(4):
                for task, seconds in (("cheap", 1), ("expensive", 50)):
                    score = 0.4 + 0.02 * step.bit_length() - 0.03 * (layer - 2) ** 2 + 0.001 * (seconds > 1)
                    writer.writerow(["m", f"step{step}", layer, task, score, seconds, layer / 3])
    return tmp_path


def test_policies_are_compared_and_files_written(scores):
    words = ("--policy", "race", "--policy", "random", "--seeds", "3", "--workers", "1,4", "--jobs", "1")
    done = call(scores, "scores.csv", *words, "--budget", "0.5", "--ablate", "metrics", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "16 arms x 2 tasks; 32 of 32 cells are known; all cost 13.6 min (published)" in done.stdout
    for title in ("after a share of the exhaustive cost", "Spent until within", "Confidence that", "Do metrics help?"):
        assert title in done.stdout
    for name in ("trials.csv", "curves.csv"):
        assert (scores / "out" / name).is_file() and name in done.stdout
    with (scores / "out" / "trials.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2 * 2 * 2 * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none.csv",), "No scores at 'none.csv'"),
        (("scores.csv", "--policy", "rase"), "Unknown policy 'rase'. Did you mean 'race'?"),
        (("scores.csv", "--workers", "1,many"), "'--workers 1,many' is not a list"),
        (("scores.csv", "--model", "n"), "Unknown model 'n'"),
        (("scores.csv", "--objective", "chep"), "Unknown objective 'chep'. Did you mean 'cheap'?"),
        (("scores.csv", "--subset", "5"), "Cannot draw 5 tasks: the table has 2"),
        (("scores.csv", "--prior", "scores.csv"), "The prior has scores of m, which this replay is to search"),
        (("scores.csv", "--budget", "2"), "A search needs a budget"),
    ],
)
def test_a_mistake_is_one_message(scores, words, message):
    done = call(scores, *words, "--seeds", "1", "--jobs", "1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr


def test_missing_metrics_cannot_be_left_out(scores):
    (scores / "bare.csv").write_text("layer,task,score\n0,t,0.5\n1,t,0.6\n")
    done = call(scores, "bare.csv", "--ablate", "metrics")
    assert done.returncode == 2 and "has no metrics to leave out" in done.stderr


def test_a_table_with_holes_is_judged_by_its_complete_arms(scores):
    lines = (scores / "scores.csv").read_text().splitlines()
    (scores / "holes.csv").write_text("\n".join(line for i, line in enumerate(lines) if i % 7 != 3) + "\n")
    words = ("holes.csv", "--policy", "random", "--seeds", "2", "--jobs", "1", "--budget", "1")
    done, complete = call(scores, *words), call(scores, *words, "--complete")
    assert done.returncode == complete.returncode == 0, done.stderr + complete.stderr
    assert "16 arms x 2 tasks; 27 of 32 cells are known" in done.stdout
    assert "5 of 16 arms are incomplete" in done.stdout and "--complete leaves" in done.stdout
    assert "11 arms x 2 tasks; 22 of 22 cells are known" in complete.stdout
    assert "incomplete" not in complete.stdout


def test_several_tables_are_searched_as_one(scores):
    (scores / "other.csv").write_text((scores / "scores.csv").read_text().replace("\nm,", "\nn,"))
    words = ("scores.csv", "other.csv", "--policy", "random", "--seeds", "1", "--jobs", "1")
    assert "32 arms x 2 tasks" in call(scores, *words).stdout
    assert "16 arms x 2 tasks" in call(scores, *words, "--models", "n").stdout
    assert "32 arms x 2 tasks" in call(scores, *words, "--models", "n,m").stdout


def test_neither_torch_nor_a_scheduler_is_imported(scores):
    code = (
        "import sys; from daskmetrics.cli import main\n"
        "try: main(['replay', 'scores.csv', '--seeds', '1', '--jobs', '1'])\n"
        "except SystemExit: print(sorted({'torch', 'distributed', 'matplotlib', 'xarray'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=scores, capture_output=True, text=True, check=False)
    assert done.stdout.rstrip().endswith("[]"), done.stdout + done.stderr
