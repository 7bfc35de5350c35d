"""Benches on real workers, and plans that use their calibrations."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.answer.status import worker_use
from daskmetrics.planning import calibration
from daskmetrics.planning.bench import (
    Bench,
    BenchTrial,
    bench_table,
    fit,
    makespan,
    simulation_table,
    size_table,
)
from daskmetrics.planning.work import divided
from daskmetrics.report import Run
from daskmetrics.training import data
from tests.report.conftest import invoke

NAPS = Path(__file__).parent / "naps.py"
SMALL = {
    "name": "small",
    "models": [
        {"name": "a", "train": {"width": 16, "depth": 1, "heads": 2, "steps": 2, "vocabulary": 300}}
    ],
    "corpus": {"prompts": 16},
    "metrics": ["effective_rank"],
    "tasks": ["stdlib:order"],
    "search": {"budget": 1.0},
    "cluster": {"kind": "local", "workers": 1},
}


def rows(text):
    """The cells of all lines of printed tables."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def table(name):
    """A table that a bench has written, in ``out``."""
    return list(csv.DictReader(Path("out", f"{name}.csv").read_text().splitlines()))


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(yaml.safe_dump(SMALL))
    return Path("small.yaml")


def test_a_map_is_benched_and_simulated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--function", f"{NAPS}:nap", "--iterations", 12, "--workers", "1,2", "--repeats", 1)
    sizes = ("--simulate", 256, "--cores", "1,4", "--memory", "1MiB,1TiB", "--price", 2)
    done = invoke("bench", *words, *sizes, "--output", "out")
    assert done.exit_code == 0, done.output
    assert "SIMULATED, not measured" in done.stdout and done.stdout.count("serial share") == 2
    measured, simulated, larger = map(table, ("bench", "simulated", "sizes"))
    assert [row["limit"] for row in larger] == ["memory", "cores", "memory", "cores"]
    assert [row["workers"] for row in measured] == ["1", "2"] and simulated[-1]["workers"] == "256"
    assert float(measured[0]["cost"]) > 0
    [kept] = calibration.kept()
    assert (kept.device, kept.workers, kept.samples[0].kind) == ("cpu", 2, "map")
    assert kept.versions["distributed"] and not list(tmp_path.glob("daskmetrics-bench-*"))


def test_the_first_unit_of_a_bench_imports_no_library():
    code = """
import sys
from daskmetrics.planning.bench import warm
warm()
before = len(sys.modules)
from sklearn.model_selection import KFold
from transformers import AutoModel, GPTNeoXForCausalLM
print(len(sys.modules) - before)
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100  # 2,000 otherwise


def test_a_failing_function_is_not_benched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--function", f"{NAPS}:fail", "--iterations", 2, "--workers", "1", "--repeats", 1)
    done = invoke("bench", *words)
    assert done.exit_code == 2 and "as planned" in done.stderr and calibration.kept() == ()


NO_RECIPE = ("--set", "models=[{source: x, name: x}]")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "--workers", "2,1"), "list of increasing numbers"),
        (("bench", "small.yaml", "--function", "a:b"), "not both"),
        (("bench", "--workload", "train", "--function", "a:b"), "not both"),
        (("bench", "small.yaml", "--workload", "train", *NO_RECIPE), "'train' recipe"),
        (("bench", "small.yaml", "--cores", "2"), "add --simulate N"),
        (("bench", "small.yaml", "--simulate", "4", "--memory", "much"), "not a list of sizes"),
        (("plan", "small.yaml", "--deadline", "1 5h"), "'1 5h' is not a valid duration"),
        (("plan", "small.yaml", "--submit", "9"), "There is no option 9"),
    ],
)
def test_invalid_options_are_refused(small, words, message):
    done = invoke(*words)
    assert done.exit_code == 2 and message in done.stderr


def test_a_profile_that_does_not_exist_does_not_end_a_plan(small):
    done = invoke("plan", "small.yaml", "--profiles", "nowhere,local")
    assert done.exit_code == 0 and "\nNot possible  1: nowhere: Unknown cluster" in done.stdout
    none = invoke("plan", "small.yaml", "--profiles", "nowhere")
    assert none.exit_code == 1 and "No option can be used." in none.stdout


def test_a_plan_is_assumed_then_measured_then_run(small, tmp_path, monkeypatch):
    """Plan, bench, plan again, run the option: on this machine."""
    before = invoke("plan", small)
    assert before.exit_code == 0 and ["Run", "1: estimated"] in rows(before.stdout)
    assert ["#", "batch", "time per step", "a worker hour buys"] in rows(before.stdout)
    benched = invoke("bench", small, "--workers", "1", "--repeats", 1)
    assert benched.exit_code == 0, benched.output
    planned = invoke("plan", small, "--submit", 1)
    assert planned.exit_code == 0, planned.output
    assert "measured on" in planned.stdout and ["Wait", "1: free now"] in rows(planned.stdout)
    assert "daskmetrics run small.yaml --set cluster.workers=1" in planned.stdout
    run = Run("runs/small")
    assert run.finished
    (share,) = worker_use(run.entries, run.records).itertuples()
    on_workers = {unit: n for unit, n in run.counts.items() if unit[0] != "train"}
    assert share.units == sum(on_workers.values()) and 0 < share.busy <= 1 and share.memory > 2**20
    assert "<summary>Workers</summary>" in (run.folder.report / "index.html").read_text()
    again = invoke("plan", small)
    assert rows(again.stdout)[2] == ["state", "finished: nothing is left to do"]
    # without a bench, what the run has measured counts
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "new"))
    train = "models.0.train"
    more = ("--set", f"{train}.steps=4", "--set", f"{train}.checkpoints=[0,2,4]")
    planned = invoke("plan", small, *more)
    assert planned.exit_code == 0, planned.output
    assert "x measure a measured on the workers of runs/small" in " ".join(planned.stdout.split())


def test_a_purpose_chooses_an_option(small):
    words = ("--purpose", "cheapest", "--set", "cluster.workers=2")
    document = json.loads(invoke("plan", small, *words, "--json").stdout)
    assert [option["offer"]["workers"] for option in document["options"]] == [1, 2]
    assert document["chosen"] == 1
    command = document["options"][0]["command"]
    assert command.endswith("--set cluster.workers=2 --set cluster.workers=1")


RECIPE = {"width": 32, "depth": 2, "heads": 2, "context": 32, "batch": 4, "ranks": 2}


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    """A configuration that trains a small model on a text of its own."""
    monkeypatch.chdir(tmp_path)
    text = "\n".join(f"{n} times seven is {7 * n}, as everyone knows." for n in range(400))
    (tmp_path / "corpus.txt").write_text(text)
    config = {
        "name": "small",
        "models": [{"name": "a", "train": {**RECIPE, "checkpoints": 20, "corpus": "corpus.txt"}}],
        "corpus": {"prompts": 16},
        "metrics": ["effective_rank"],
        "cluster": {"kind": "local", "workers": 2},
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(config))
    return "small.yaml"


@pytest.mark.slow
def test_a_training_is_benched_and_simulated_beyond(ranks, monkeypatch):
    """The table has the cost per million samples; the plan has the time of an epoch; all trials
    share the tokens.
    """
    written, save = [], data.save_tokenizer
    monkeypatch.setattr(
        data,
        "save_tokenizer",
        lambda fitted, folder, *args: written.append(folder) or save(fitted, folder, *args),
    )
    settings = ("--set", "models.0.train.epochs=2", "--set", "models.0.train.context=64")
    words = ("--workload", "train", "--workers", "1,2", "--repeats", 1, "--price", 2)
    done = invoke("bench", ranks, *words, "--simulate", 8, *settings, "--output", "out")
    assert done.exit_code == 0, done.output
    measured, simulated = map(table, ("bench", "simulated"))
    assert [row["workers"] for row in measured] == ["1", "2"] and simulated[-1]["workers"] == "8"
    for row in (*measured, *simulated):
        assert float(row["cost per million samples"]) > 0
        assert row["verdict"] in ("good", "acceptable", "wasteful")
    assert "SIMULATED, not measured" in done.stdout
    assert len([folder for folder in written if "suites" in folder.parts]) == 1
    [kept] = calibration.kept()
    assert [(sample.kind, sample.ranks) for sample in kept.samples] == [("train", 1)]
    planned = invoke("plan", ranks, "--workers", "1,2", *settings)
    assert ["#", "batch", "time per epoch", "a worker hour buys"] in rows(planned.stdout)
    assert (
        "x train a measured on" in " ".join(planned.stdout.split())
        and "exchange" not in planned.stdout
    )


@pytest.mark.parametrize("serial", [0.0, 0.05, 0.5, 1.0])
def test_the_serial_share_is_recovered_from_noisy_times(serial):
    rng = np.random.default_rng(1)
    noisy = [
        BenchTrial(n, 100 * divided(serial, n) * rng.lognormal(0, 0.01), (), repeat=r)
        for r in range(5)
        for n in (1, 2, 4, 8)
    ]
    law = fit(noisy)
    assert law.serial[1] == pytest.approx(serial, abs=0.03)
    assert (np.diff(law.serial) >= 0).all()
    assert law.on(1) == pytest.approx(100, rel=0.05)


def trials(times):
    return [
        BenchTrial(n, t, ((0.0,),) * 10, repeat=r)
        for n, seconds in times.items()
        for r, t in enumerate(seconds)
    ]


def test_rows_count_from_the_fewest_workers():
    measured = trials({2: [10.0, 10.0], 4: [5.0, 5.0]})
    table = bench_table(Bench("x", tuple(measured)), price=360.0)
    two, four = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert (two["time"], four["time"]) == ("10 s", "5.0 s")
    assert (two["speed-up"], four["speed-up"], four["efficiency"]) == ("2.00", "4.00", "100%")
    assert two["worker hours"] == four["worker hours"] == "0.00556"
    assert (four["cost"], four["units/s"]) == ("2", "2")


def test_a_simulated_training_has_the_bounds_of_its_bench():
    measured = trials({1: [10.0, 10.0], 2: [6.0, 8.0]})
    bench = Bench("x", tuple(replace(trial, sequences=100.0) for trial in measured))
    notes = [table.notes for table in (bench_table(bench, None), simulation_table(bench, 8, None))]
    shares = [[note for note in of_table if "serial share" in note] for of_table in notes]
    assert shares[0] == shares[1] and "(20 % to 60 %)" in shares[1][0]


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40), st.integers(1, 9))
def test_a_schedule_is_between_its_bounds(seconds, workers):
    """Graham (1969): no list schedule is longer than sum / m + (1 - 1 / m) longest."""
    least = max(sum(seconds) / workers, max(seconds))
    most = sum(seconds) / workers + (1 - 1 / workers) * max(seconds)
    assert least * (1 - 1e-9) <= makespan([[s] for s in seconds], workers) <= most * (1 + 1e-9)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_measured_workers_take_as_long_when_simulated(workers):
    units = tuple((0.1 + 0.3 * (i % 4 == 0),) for i in range(40))
    seconds = 8.8 / workers  # for units of 7 s
    bench = Bench("x", (BenchTrial(workers, seconds, units),))
    assert bench.seconds(workers) == pytest.approx(seconds, rel=0.05)
    assert bench.seconds(64) >= 40 * bench.dispatch
    if workers == 1:
        assert bench.dispatch == pytest.approx((8.8 - 7) / 40)


def test_a_larger_worker_has_room_for_more_units_side_by_side():
    trial = BenchTrial(1, 8.0, ((1.0,),) * 8, memory=3 * 2**30)
    table = size_table(Bench("map", (trial,), cores=2), (2, 8), (2.0**31, 2.0**33, None), most=2)
    assert [row[2:] for row in table.rows] == [
        ("0", "memory", "no unit fits", "no unit fits"),
        ("1", "cores", "8.0 s", "4.0 s"),
        ("1", "cores", "8.0 s", "4.0 s"),
        ("0", "memory", "no unit fits", "no unit fits"),
        ("2", "memory", "4.0 s", "2.0 s"),
        ("4", "cores", "2.0 s", "1.0 s"),
    ]
    assert "SIMULATED" in table.title
