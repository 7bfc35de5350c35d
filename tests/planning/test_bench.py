"""Benches on real workers, and plans that use their calibrations."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from daskmetrics.answer.status import worker_use
from daskmetrics.planning import estimate as calibration
from daskmetrics.report import Run
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
    [kept] = calibration.known()
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
    assert done.exit_code == 2 and "as planned" in done.stderr and calibration.known() == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "--workers", "2,1"), "list of increasing numbers"),
        (("bench", "small.yaml", "--function", "a:b"), "not both"),
        (("bench", "--workload", "loader", "--function", "a:b"), "not both"),
        (("bench", "small.yaml", "--cores", "2"), "add --simulate N"),
        (("bench", "small.yaml", "--simulate", "4", "--memory", "much"), "not a list of sizes"),
        (("plan", "small.yaml", "--deadline", "1 5h"), "'1 5h' is not a valid duration"),
        (("plan", "small.yaml", "--submit", "9"), "There is no option 9"),
        (("plan", "small.yaml", "--profiles", "nowhere"), "Unknown cluster profile"),
    ],
)
def test_invalid_options_are_refused(small, words, message):
    done = invoke(*words)
    assert done.exit_code == 2 and message in done.stderr


def sources(text):
    """Of each number of a plan: for which options, and from what."""
    return {row[0]: row[1:] for row in rows(text)}


def test_a_plan_is_assumed_then_measured_then_run(small, tmp_path, monkeypatch):
    """Plan, bench, plan again, run the option: on this machine."""
    before = invoke("plan", small)
    assert before.exit_code == 0 and sources(before.stdout)["run"] == ["1", "estimated"]
    assert {"batch", "time per step", "a worker hour buys"} <= set(rows(before.stdout)[2])
    benched = invoke("bench", small, "--workers", "1", "--repeats", 1)
    assert benched.exit_code == 0, benched.output
    planned = invoke("plan", small, "--submit", 1)
    assert planned.exit_code == 0, planned.output
    assert "measured on" in planned.stdout and sources(planned.stdout)["wait"][1] == "free now"
    assert "daskmetrics run small.yaml --set cluster.workers=1" in planned.stdout
    run = Run("runs/small")
    assert run.finished
    (share,) = worker_use(run.entries, run.records).itertuples()
    assert share.units == sum(run.counts.values()) and 0 < share.busy <= 1 and share.memory > 2**20
    assert "<summary>Workers</summary>" in (run.folder.report / "index.html").read_text()
    again = invoke("plan", small)
    assert rows(again.stdout)[2] == ["state", "finished: nothing is left to do"]
    # without a bench, what the run has measured counts
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "new"))
    train = "models.0.train"
    more = ("--set", f"{train}.steps=4", "--set", f"{train}.checkpoints=[0,2,4]")
    planned = invoke("plan", small, *more)
    assert planned.exit_code == 0, planned.output
    assert "x measure a measured on the workers of runs/small" in planned.stdout


def test_a_purpose_chooses_an_option(small):
    words = ("--purpose", "cheapest", "--set", "cluster.workers=2")
    document = json.loads(invoke("plan", small, *words, "--json").stdout)
    assert [option["workers"] for option in document["options"]] == [1, 2]
    assert document["chosen"] == 1
    command = document["options"][0]["command"]
    assert command.endswith("--set cluster.workers=2 --set cluster.workers=1")
