"""Every command with --json prints one document with the keys of docs/json.md, and nothing else on
standard output.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from daskmetrics.cli import main
from daskmetrics.core.files import RunFolder
from daskmetrics.core.serialization import as_json, plain
from daskmetrics.core.telemetry import TelemetryFile
from daskmetrics.execution import Journal
from tests.faults.test_files import make
from tests.report.conftest import Story, make_run

DOCS = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
ARMS = "tiny@step8/2", "tiny@step8/1"


def documented(section: str) -> set[str]:
    """The keys in the first column of a section's table."""
    text = DOCS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, some of whose units failed, and one that was killed."""
    folder = tmp_path_factory.mktemp("here")
    make_run(
        folder / "runs" / "demo",
        Story(failing=("tiny@step0", "small@step8/0:stdlib:package"), budget=1.0),
    )
    make_run(folder / "runs" / "killed", Story(decisions=5))
    return folder


def invoke(here: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    monkeypatch.chdir(here)
    return CliRunner().invoke(main, words)


def reject(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


COMMANDS = {
    "best": ("best", "demo"),
    "best --pareto": ("best", "demo", "--pareto"),
    "best --within": ("best", "demo", "--within", "5%"),
    "status": ("status", "demo"),
    "compare": ("compare", "demo", "killed"),
    "compare --arms": ("compare", "demo", "--arms", *ARMS),
    "tasks": ("list", "tasks"),
    "metrics": ("list", "metrics"),
    "replay": ("runs", "replay", "demo", "--seeds", "2", "--budget", "0.5", "--jobs", "1"),
    "plan": ("plan", "--workers", "1,2"),
}


def test_every_command_with_json_is_documented():
    groups = (main, main.commands["list"], main.commands["runs"])
    named = {
        name
        for group in groups
        for name, command in group.commands.items()
        if any(parameter.name == "as_json" for parameter in command.params)
    }
    sections = {name.split()[0] for name in COMMANDS}
    assert named - {"journal"} == sections | {"doctor", "layers", "verify"}


def test_verify_prints_the_documented_keys_and_the_exit_code(tmp_path, monkeypatch):
    folder = make(RunFolder(tmp_path / "runs" / "demo"))
    done = invoke(tmp_path, monkeypatch, "runs", "verify", "demo", "--json")
    document = json.loads(done.stdout, parse_constant=reject)
    assert done.exit_code == 0 and document["ok"] and document["damages"] == []
    assert document.keys() == documented("verify")
    chunk = next(path for path in sorted(folder.store.rglob("c/*")) if path.is_file())
    chunk.write_bytes(b"")
    done = invoke(tmp_path, monkeypatch, "runs", "verify", "demo", "--json")
    document = json.loads(done.stdout, parse_constant=reject)
    assert (
        done.exit_code == 1
        and not document["ok"]
        and {each["kind"] for each in document["damages"]} == {"metadata"}
    )


@pytest.mark.parametrize("section", [name for name in COMMANDS if name != "plan"])
def test_one_document_with_the_documented_keys_is_printed(section, here, monkeypatch):
    done = invoke(here, monkeypatch, *COMMANDS[section], "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout, parse_constant=reject)
    assert document.keys() == documented(section)


def test_a_plan_and_a_check_print_their_keys(here, monkeypatch):
    done = invoke(here, monkeypatch, "plan", "--workers", "1,2", "--json")
    document = json.loads(done.stdout, parse_constant=reject)
    assert document.keys() == documented("plan")
    assert [option["workers"] for option in document["options"]] == [1, 2]
    assert all(option["run"]["interval"]["value"] > 0 for option in document["options"])
    done = invoke(here, monkeypatch, "plan", "--json", "--submit", "1")
    assert done.exit_code == 2 and done.stdout == "" and "omit one of them" in done.stderr
    checks = json.loads(invoke(here, monkeypatch, "doctor", "local", "--json").stdout)
    assert {row["severity"] for row in checks.values()} <= {"ok", "warning", "failure", "skipped"}
    assert {frozenset(row) for row in checks.values()} == {
        frozenset({"severity"}),
        frozenset({"severity", "message", "remedy"}),
    }


def test_the_document_holds_what_the_text_says(here, monkeypatch):
    best = json.loads(invoke(here, monkeypatch, "best", "demo", "--json").stdout)
    text = invoke(here, monkeypatch, "best", "demo").stdout
    assert best["best"]["arm"] in text and best["sureness"] in text
    assert f"{best['best']['score']:.3f}" in text
    status = json.loads(invoke(here, monkeypatch, "status", "demo", "--json").stdout)
    assert status["finished"] and status["best"] == best["best"]["arm"]
    assert {failure["kind"] for failure in status["failures"]} >= {"measure", "score"}


def test_a_run_without_an_answer_has_null(here, monkeypatch):
    status = json.loads(invoke(here, monkeypatch, "status", "killed", "--json").stdout)
    assert not status["finished"] and status["best"] is None and status["cost"]["share"] is None


def test_status_shows_a_driver_that_died_and_the_workers_of_one_that_lives(here, monkeypatch):
    folder = RunFolder(here / "runs" / "killed")
    doing = {"a": "score", "b": ""}
    TelemetryFile(folder.telemetry).add(time.time() - 120, {name: {} for name in doing}, doing)
    assert (
        json.loads(invoke(here, monkeypatch, "status", "killed", "--json").stdout)["workers"]
        is None
    )
    lines = (
        "import os; from pathlib import Path; from daskmetrics.execution import Journal",
        f"journal = Journal(Path({str(folder.journal)!r}), Path({str(folder.lock)!r})); os._exit(9)",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=False)
    assert (
        "has died; run the same command again"
        in invoke(here, monkeypatch, "status", "killed").stdout
    )
    with Journal(folder.journal, folder.lock):
        workers = json.loads(invoke(here, monkeypatch, "status", "killed", "--json").stdout)[
            "workers"
        ]
        shown = invoke(here, monkeypatch, "status", "killed").stdout
    folder.telemetry.unlink()
    assert (workers["known"], workers["busy"]) == (2, 1)
    assert "workers     2 known: 1 busy, 2.0 min ago" in shown


@pytest.mark.parametrize(
    "words", [("best", "killed"), ("status", "nothing"), ("list", "tasks", "stdlib:ordr")]
)
def test_an_error_leaves_standard_output_empty(here, monkeypatch, words):
    done = invoke(here, monkeypatch, *words, "--json")
    assert done.exit_code in (1, 2) and done.stdout == ""
    assert done.stderr.startswith("Error: ")


def test_what_is_not_a_number_is_null():
    assert plain({"nan": math.nan, "inf": [-math.inf]}) == {"nan": None, "inf": [None]}
    with pytest.raises(TypeError, match="Cannot write object as JSON"):
        as_json(object())
