"""Rules of the code base that a tool can check."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

SLOW = pytest.mark.slow  # reads the whole package; `make lint` has it, too


@pytest.mark.parametrize(
    "command",
    [
        "ruff check .",
        "ruff format --check .",
        pytest.param("mypy", marks=SLOW),
        pytest.param("lint-imports", marks=SLOW),
    ],
)
def test_check(command):
    program, *words = command.split()
    done = subprocess.run([BIN / program, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_driver_never_imports_torch():
    rooms = "cli config metrics tasks bandit planning execution cluster store report experiment"
    modules = ", ".join(f"daskmetrics.{room}" for room in rooms.split())
    heavy = "{'torch', 'transformers', 'sklearn', 'mteb', 'matplotlib'}"
    code = f"import {modules}; import sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_imports_no_heavy_library():
    """No time is asserted: what costs time is importing libraries, and that is counted."""
    heavy = "{'numpy', 'dask', 'rich', 'pydantic', 'yaml'}"
    code = f"import sys; import daskmetrics.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_of_tests_are_at_most_60_characters():
    files = (ROOT / "tests").rglob("test_*.py")
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    names = re.findall(r"def (test_\w+)", text)
    assert len(names) > 100
    assert [name for name in names if len(name) > 60] == []
