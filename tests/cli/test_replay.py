"""The command `runs replay`."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas
import pytest

from tests.cli.calling import call


def test_a_curve_and_a_sentence_say_what_a_policy_finds(place):
    line = "runs replay scores.csv --policy random --seeds 3 --jobs 1 --budget 0.5"
    done = call(place, line)
    assert done.exit_code == 0, done.output
    assert "16 candidates x 2 tasks, 32 of 32 scores known" in done.stdout
    document = json.loads(call(place, f"{line} --json").stdout)
    shares = [point["share"] for point in document["curve"]]
    assert shares == sorted(shares) and shares[-1] == 0.5
    found = document["curve"][-1]["found"]
    assert f"{found} of 3 searches by random" in document["sentence"]
    assert document["sentence"] in " ".join(done.stdout.split())
    assert document["best"] == "m@step512/2"


@pytest.mark.parametrize(
    ("options", "grid"),
    [
        ("holes.csv --budget 1", "16 candidates x 2 tasks, 27 of 32 scores known"),
        ("both.csv", "32 candidates x 2 tasks, 64 of 64 scores known"),
        ("both.csv --models n", "16 candidates x 2 tasks, 32 of 32 scores known"),
        ("both.csv --models n,m", "32 candidates x 2 tasks, 64 of 64 scores known"),
    ],
)
def test_what_is_searched_is_said(place, options, grid):
    header, *rows = (place / "scores.csv").read_text().splitlines()
    kept = [row for i, row in enumerate(rows) if i % 7 != 3]
    (place / "holes.csv").write_text("\n".join([header, *kept]))
    others = [row.replace("m,", "n,", 1) for row in rows]
    (place / "both.csv").write_text("\n".join([header, *rows, *others]))
    done = call(place, f"runs replay {options} --policy random --seeds 1 --jobs 1")
    assert done.exit_code == 0 and grid in done.stdout, done.output


def test_seconds_that_are_all_0_say_nothing_about_costs(place):
    frame = pandas.read_csv(place / "scores.csv").assign(seconds=0)
    frame.to_csv(place / "free.csv", index=False)
    done = call(place, "runs replay free.csv --seeds 1 --jobs 1 --budget 1")
    assert done.exit_code == 0 and "1 of 1 searches" in done.stdout, done.output
    done = call(place, "runs replay free.csv --costs published --jobs 1")
    assert done.exit_code == 2 and "need seconds above 0" in done.output


def test_a_candidate_without_all_scores_has_no_known_loss(place):
    frame = pandas.read_csv(place / "scores.csv")
    best = frame["score"].idxmax()
    frame.drop(best).to_csv(place / "without.csv", index=False)
    done = call(place, "runs replay without.csv --policy sweep --seeds 1 --jobs 1 --budget 0.01")
    assert "no answer" not in done.stdout and "not known" in done.stdout, done.output


def test_the_best_of_drawn_tasks_is_not_named(place):
    done = call(place, "runs replay scores.csv --subset 1 --seeds 2 --jobs 1")
    assert "the best on the tasks that it drew." in " ".join(done.stdout.split()), done.output


def test_neither_torch_nor_a_scheduler_is_imported(place):
    code = (
        "import sys; from daskmetrics.cli import main\n"
        "try: main(['runs', 'replay', 'scores.csv', '--seeds', '1', '--jobs', '1'])\n"
        "except SystemExit: print(sorted({'torch', 'distributed', 'matplotlib', 'xarray'} & sys.modules.keys()))"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True)
    assert done.stdout.rstrip().endswith("[]"), done.stdout + done.stderr
