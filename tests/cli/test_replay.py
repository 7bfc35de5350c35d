"""The verb `replay` in a process of its own."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.calling import call as call_main
from tests.cli.calling import fails


def call(folder: Path, *words: str) -> Result:
    return call_main(folder, "runs", "replay", *words)


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    with (tmp_path / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "revision", "layer", "task", "score", "seconds", "metric:depth"])
        for step in (1, 8, 64, 512):
            for layer in range(4):
                for task, seconds in (("cheap", 1), ("expensive", 50)):
                    score = (
                        0.4
                        + 0.02 * step.bit_length()
                        - 0.03 * (layer - 2) ** 2
                        + 0.001 * (seconds > 1)
                    )
                    writer.writerow(["m", f"step{step}", layer, task, score, seconds, layer / 3])
    return tmp_path


def test_a_curve_and_a_sentence_say_what_a_policy_finds(scores):
    words = ("scores.csv", "--policy", "random", "--seeds", "3", "--jobs", "1", "--budget", "0.5")
    done = call(scores, *words)
    assert done.exit_code == 0, done.output
    assert "16 candidates x 2 tasks, 32 scores known" in done.stdout
    document = json.loads(call(scores, *words, "--json").stdout)
    shares = [point["share"] for point in document["curve"]]
    assert shares == sorted(shares) and shares[-1] == 0.5
    found = document["curve"][-1]["found"]
    assert f"{found} of 3 searches by random" in document["sentence"]
    assert document["sentence"] in " ".join(done.stdout.split())
    assert document["best"] == "m@step512/2"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none.csv",), "No scores at 'none.csv'"),
        (("scores.csv", "--policy", "rase"), "Unknown policy 'rase'. Did you mean 'race'?"),
        (("scores.csv", "--models", "n"), "Unknown model 'n'"),
        (("scores.csv", "--objective", "chep"), "Unknown objective 'chep'. Did you mean 'cheap'?"),
        (("scores.csv", "--subset", "5"), "Cannot draw 5 tasks: the table has 2"),
        (("scores.csv", "--budget", "2"), "A search needs a budget"),
    ],
)
def test_a_mistake_is_one_message(scores, words, message):
    done = call(scores, *words, "--seeds", "1", "--jobs", "1")
    assert fails(done, message), done.output


def test_a_table_with_holes_is_judged_by_its_complete_arms(scores):
    lines = (scores / "scores.csv").read_text().splitlines()
    kept = [line for i, line in enumerate(lines) if i % 7 != 3]
    (scores / "holes.csv").write_text("\n".join(kept) + "\n")
    words = ("--policy", "random", "--seeds", "2", "--jobs", "1", "--budget", "1")
    done = call(scores, "holes.csv", *words)
    assert done.exit_code == 0, done.output
    assert "16 candidates x 2 tasks, 27 scores known" in done.stdout


def test_some_models_of_a_table_are_searched(scores):
    text = (scores / "scores.csv").read_text()
    (scores / "both.csv").write_text(text + "\n".join(text.replace("\nm,", "\nn,").split("\n")[1:]))
    words = ("both.csv", "--policy", "random", "--seeds", "1", "--jobs", "1")
    assert "32 candidates x 2 tasks" in call(scores, *words).stdout
    assert "16 candidates x 2 tasks" in call(scores, *words, "--models", "n").stdout
    assert "32 candidates x 2 tasks" in call(scores, *words, "--models", "n,m").stdout


def test_neither_torch_nor_a_scheduler_is_imported(scores):
    code = (
        "import sys; from daskmetrics.cli import main\n"
        "try: main(['runs', 'replay', 'scores.csv', '--seeds', '1', '--jobs', '1'])\n"
        "except SystemExit: print(sorted({'torch', 'distributed', 'matplotlib', 'xarray'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=scores, capture_output=True, text=True, check=False
    )
    assert done.stdout.rstrip().endswith("[]"), done.stdout + done.stderr
