from __future__ import annotations

import re
import signal
import subprocess
import sys

import pandas as pd
import pytest

from tests.cli.calling import call, process, start
from tests.cli.conftest import MODULE


def test_a_map_runs_writes_its_results_and_resumes(place):
    line = "map bench.py:step --iterations 30 --max-retries 1 --output out/results.parquet"
    done = start(place, line)
    assert done.returncode == 3, done.stderr
    assert "30 items: 29 ok, 1 failed; 1 attempt repeated." in done.stdout
    assert "1 x error: ValueError: planted in 13" in done.stdout
    assert "30 of 30" in done.stderr and "1 failed" in done.stderr
    results = pd.read_parquet(place / "out" / "results.parquet")
    assert results["twice"].dropna().tolist() == [2 * i for i in range(30) if i != 13]
    journal = (place / "runs" / "step" / "journal.jsonl").read_bytes()
    again = call(place, line)
    assert again.exit_code == 3 and "Starting" not in again.stderr
    assert (place / "runs" / "step" / "journal.jsonl").read_bytes() == journal
    more = call(place, "map bench.py:step --iterations 13 --serial --output results.csv")
    assert more.exit_code == 0 and "13 of 13 items are recorded already" in more.stderr
    pd.testing.assert_series_equal(pd.read_csv(place / "results.csv")["loss"], results["loss"][:13])
    for status in ("status runs/step", "status --follow runs/step"):
        # of the last run that had items to compute
        assert "30 items: 29 ok, 1 failed; 1 attempt repeated." in call(place, status).stdout


def test_options_of_a_serial_map_reach_it(place):
    line = (
        "map bench.py:step --iterations 14 --batch-size 5 --serial --max-retries 0 --output r.csv"
    )
    assert call(place, line).exit_code == 3
    assert call(place, line, REPAIRED="1").exit_code == 3
    again = call(place, f"{line} --retry-failed", REPAIRED="1")
    assert again.exit_code == 0 and "13 of 14 items are recorded already" in again.stderr
    losses = pd.read_csv(place / "r.csv")["loss"].tolist()
    first = (place / "runs/step/journal.jsonl").read_bytes()

    dry = call(place, f"{line} --resume-from 7 --dry-run")
    assert "14, of which 5 are recorded already" in dry.stdout
    older = call(place, f"{line} --resume-from 7", REPAIRED="1")
    assert older.exit_code == 0 and "5 of 14 items are recorded already" in older.stderr
    assert (place / "runs/step/journal-1.jsonl").read_bytes() == first
    assert pd.read_csv(place / "r.csv")["loss"].tolist() == losses
    refused = call(place, f"{line} --resume-from 14", REPAIRED="1")
    assert refused.exit_code == 2 and "No more than 14 items" in refused.stderr, refused.stderr

    (place / "bench.py").write_text(MODULE.replace("2 * item", "3 * item"))
    changed = call(place, line)
    assert "recorded already" not in changed.stderr
    [count, version] = re.findall(r"code has changed. (\d+) .* --version (\w+) ", changed.stderr)[0]
    kept = call(place, f"{line} --version {version}", REPAIRED="1")
    assert count == "14" and "14 of 14 items are recorded already" in kept.stderr
    other = call(place, "map bench.py:step --iterations 1 --serial --version 1")
    assert "Another version is given. 1 recorded result" in other.stderr
    other = call(place, "map bench.py:of_row --items rates.csv --serial --folder runs/step")
    assert "Results of bench:step are kept" in other.stderr


def test_a_file_may_have_dots_in_its_name(place):
    (place / "bench.v2.py").write_text("def step(item): return item\n")
    assert call(place, "map bench.v2.py:step --iterations 2 --serial").exit_code == 0


@pytest.mark.parametrize("place_to_run", ["--serial", "--workers 1"])
def test_standard_input_is_left_to_the_loop_around_a_map(place, place_to_run):
    text = "import subprocess\ndef reads(item): return subprocess.check_output('cat').decode()\n"
    (place / "reads.py").write_text(text)
    line = f"map reads.py:reads --iterations 1 {place_to_run} --folder runs/$name > /dev/null"
    loop = f"while read -r name; do {sys.executable} -m daskmetrics {line}; done"
    words = ["bash", "-c", loop]
    subprocess.run(words, cwd=place, input="one\ntwo\n", text=True, capture_output=True, check=True)
    assert sorted(path.name for path in (place / "runs").iterdir()) == ["one", "two"]


def test_items_are_read_from_a_file(place):
    done = call(place, "map bench.py:of_row --items rates.csv --serial --output results.csv")
    assert done.exit_code == 0, done.stderr
    assert pd.read_csv(place / "results.csv")["value"].tolist() == [2.0, 1.0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_this_process_explains_how_to_resume(place, number):
    line = "map bench.py:step --iterations 9 --serial --batch-size 1"
    with process(place, "-m", "daskmetrics", *line.split(), SLOW="5") as child:
        while "1 of 9" not in child.stderr.readline():
            pass
        child.send_signal(number)
        message = child.communicate(timeout=60)[1]
    assert child.returncode == 130 and "run the same command again to resume" in message
