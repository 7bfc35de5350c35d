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
    ("options", "fact"),
    [
        ("holes.csv --budget 1", "16 candidates x 2 tasks, 27 of 32 scores known"),
        ("both.csv --models n", "16 candidates x 2 tasks, 32 of 32 scores known"),
        ("both.csv --models n,m", "32 candidates x 2 tasks, 64 of 64 scores known"),
        ("free.csv --budget 1", "1 of 1 searches"),
        ("holes.csv --budget 0.01", "not known"),  # the loss of a candidate without all scores
        ("scores.csv --subset 1", "the best on the tasks that it drew."),
    ],
)
def test_what_is_searched_is_said(place, options, fact):
    header, *rows = (place / "scores.csv").read_text().splitlines()
    kept = [row for i, row in enumerate(rows) if i % 7 != 3]
    (place / "holes.csv").write_text("\n".join([header, *kept]))
    others = [row.replace("m,", "n,", 1) for row in rows]
    (place / "both.csv").write_text("\n".join([header, *rows, *others]))
    pandas.read_csv(place / "scores.csv").assign(seconds=0).to_csv(place / "free.csv", index=False)
    done = call(place, f"runs replay {options} --policy random --seeds 1 --jobs 1")
    assert done.exit_code == 0 and fact in " ".join(done.stdout.split()), done.output


def test_seconds_that_are_all_0_are_no_costs(place):
    pandas.read_csv(place / "scores.csv").assign(seconds=0).to_csv(place / "free.csv", index=False)
    done = call(place, "runs replay free.csv --costs published --jobs 1")
    assert done.exit_code == 2 and "need seconds above 0" in done.output


def test_neither_torch_nor_a_scheduler_is_imported(place):
    code = (
        "import sys; from daskmetrics.cli import main\n"
        "try: main(['runs', 'replay', 'scores.csv', '--seeds', '1', '--jobs', '1'])\n"
        "except SystemExit: print(sorted({'torch', 'distributed', 'matplotlib', 'xarray'} & sys.modules.keys()))"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True)
    assert done.stdout.rstrip().endswith("[]"), done.stdout + done.stderr
