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

from daskmetrics.cli import main
from daskmetrics.core.files import RunFolder
from daskmetrics.core.holder import Holder
from daskmetrics.core.serialization import as_json, plain
from daskmetrics.core.telemetry import TelemetryFile
from daskmetrics.domain.training import TrainingStatus
from daskmetrics.execution import Journal
from tests.cli.calling import call
from tests.faults.test_files import make
from tests.report.conftest import Story, make_run

DOCS = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")


def documented(section: str) -> set[str]:
    """The keys in the first column of a section's table."""
    text = DOCS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, some of whose units failed, one that was killed, and a store."""
    folder = tmp_path_factory.mktemp("here")
    failing = ("tiny@step0", "small@step8/0:stdlib:package")
    make_run(folder / "runs" / "demo", Story(failing=failing, budget=1.0))
    make_run(folder / "runs" / "killed", Story(decisions=5))
    make(RunFolder(folder / "runs" / "stored"))
    trained = folder / "runs" / "trained"
    trained.mkdir()
    TrainingStatus("mine", 2, 0.0, Holder.this_process(), left=math.inf).write(trained)
    return folder


def reject(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


def document(here: Path, line: str, code: int = 0) -> Any:
    done = call(here, f"{line} --json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout, parse_constant=reject)


COMMANDS = {
    "best": "best demo",
    "best --pareto": "best demo --pareto",
    "best --within": "best demo --within 5%",
    "status": "status demo",
    "status of a training": "status trained",
    "compare": "compare demo killed",
    "compare --arms": "compare demo --arms tiny@step8/2 tiny@step8/1",
    "tasks": "list tasks",
    "metrics": "list metrics",
    "plan": "plan --workers 1,2",
    "verify": "runs verify stored",
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
    assert named - {"journal"} == sections | {"doctor", "layers"}


@pytest.mark.parametrize("section", COMMANDS)
def test_one_document_with_the_documented_keys_is_printed(section, here):
    assert document(here, COMMANDS[section]).keys() == documented(section)


def test_a_check_has_its_severity(here):
    checks = document(here, "doctor local", code=call(here, "doctor local").exit_code)
    assert {row["severity"] for row in checks.values()} <= {"ok", "warning", "failure", "skipped"}
    assert {key for row in checks.values() for key in row} == {"severity", "message", "remedy"}


def test_status_shows_a_dead_driver_and_a_living_drivers_workers(here):
    folder = RunFolder(here / "runs" / "killed")
    doing = {"a": "score", "b": ""}
    TelemetryFile(folder.telemetry).add(time.time() - 120, {name: {} for name in doing}, doing)
    assert document(here, "status killed")["workers"] is None
    lines = (
        "import os; from pathlib import Path; from daskmetrics.execution import Journal",
        f"journal = Journal(Path({str(folder.journal)!r}), Path({str(folder.lock)!r})); os._exit(9)",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=False)
    assert "has died; run the same command again" in call(here, "status killed").stdout
    with Journal(folder.journal, folder.lock):
        workers = document(here, "status killed")["workers"]
        shown = call(here, "status killed").stdout
    folder.telemetry.unlink()
    assert (workers["known"], workers["busy"]) == (2, 1)
    assert "workers     2 known: 1 busy, 2." in shown


def test_what_is_not_a_number_is_null():
    assert plain({"nan": math.nan, "inf": [-math.inf]}) == {"nan": None, "inf": [None]}
    with pytest.raises(TypeError, match="Cannot write object as JSON"):
        as_json(object())
