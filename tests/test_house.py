"""Rules of the code base that a tool can check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

CHECKS = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "import contracts": ["lint-imports"],
}


@pytest.mark.parametrize("command", CHECKS.values(), ids=CHECKS.keys())
def test_check(command):
    done = subprocess.run(
        [BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "import daskmetrics",
        "import daskmetrics.cli",
        "import daskmetrics.config, daskmetrics.metrics, daskmetrics.tasks, daskmetrics.bandit, daskmetrics.planning",
        "import daskmetrics.execution, daskmetrics.cluster, daskmetrics.store, daskmetrics.report",
        "import daskmetrics.experiment",
    ],
)
def test_the_driver_never_imports_torch(command):
    heavy = "{'torch', 'transformers', 'sklearn', 'mteb', 'matplotlib'}"
    code = f"{command}; import sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_imports_no_heavy_library():
    """No time is asserted: what costs time is importing libraries, and that is counted."""
    heavy = "{'numpy', 'dask', 'rich', 'pydantic', 'yaml'}"
    code = f"import sys; import daskmetrics.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_readme_commands_exist():
    """Every verb that README shows is one that the command line has."""
    from daskmetrics.cli import main

    shown = set()
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        for prefix in ("daskmetrics ", "python -m daskmetrics ", ".venv/bin/daskmetrics "):
            if line.strip().startswith(prefix):
                shown.add(line.strip().removeprefix(prefix).split()[0])
    assert shown and shown <= {*main.commands, "--help"}
