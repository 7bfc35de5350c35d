"""Errors of the operating system end a command with one message: path, reason and remedy."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from daskmetrics.core.telemetry import TelemetryFile
from tests.cli.calling import call

LONG = "a" * 300
FUNCTION = "def step(item): return {'big': 10**400 if item % 2 else item, 'text': '=1'}\n"


@pytest.fixture
def a_map(tmp_path) -> Path:
    (tmp_path / "bench.py").write_text(FUNCTION)
    words = ("map", "bench.py:step", "--iterations", "4", "--serial", "--folder", "m")
    assert call(tmp_path, *words).exit_code == 0
    return tmp_path


def in_shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    command = line.replace("daskmetrics", f"{sys.executable} -m daskmetrics")
    variables = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    variables["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.run(
        command, cwd=folder, env=variables, shell=True, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"daskmetrics status {LONG}", f"'{LONG}"),
        (f"daskmetrics map bench.py:step --iterations 4 --serial --folder {LONG}", "name too long"),
        ("daskmetrics status m > /dev/full", "'standard output': No space left"),
        ("daskmetrics --help > /dev/full", "'standard output': No space left"),
        ("PYTHONUNBUFFERED=1 daskmetrics status m > /dev/full", "'standard output': No space left"),
        ("mkdir gone; cd gone; rmdir ../gone; daskmetrics run --dry-run", "No such file"),
        ("rm m/journal.mark; mkfifo m/journal.mark; daskmetrics status m", "is a pipe"),
        ("rm m/journal.jsonl; mkfifo m/journal.jsonl; daskmetrics status m", "is a pipe"),
        ("mkfifo p.yaml; daskmetrics run p.yaml", "is a pipe"),
        (
            "ulimit -n 47; daskmetrics map bench.py:step --iterations 4 --workers 1 --folder w",
            "with 1 worker it needs 48",
        ),
    ],
)
def test_an_error_of_the_system_is_one_message(a_map, line, reason):
    done = in_shell(a_map, line)
    assert done.returncode == 1 + ("ulimit" in line)  # 2: nothing was started
    assert reason in done.stderr and done.stderr.count("Error:") == 1
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_reader_that_ends_early_is_no_error(a_map):
    done = in_shell(a_map, "daskmetrics list metrics | head -1")
    assert done.stderr == "" and done.stdout.count("\n") == 1


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_integers_of_any_size_are_reported_and_a_table_refuses_their_column(a_map, suffix):
    done = call(a_map, "status", "m")
    assert (
        done.exit_code == 0 and "no statistics of big: integers of more than 64 bits" in done.stdout
    )
    words = ("map", "bench.py:step", "--iterations", "4", "--serial", "--folder", "m", "--output")
    with pytest.warns(UserWarning, match="integers of more than 64 bits in big"):
        call(a_map, *words, f"x.{suffix}")
    assert not (a_map / f"x.{suffix}").exists()
    lines = (a_map / f"x.{suffix}.jsonl").read_text().splitlines()
    assert [json.loads(line)["value"]["big"] for line in lines] == [0, 10**400, 2, 10**400]


def test_what_workers_use_is_private(tmp_path):
    before = os.umask(0)
    try:
        TelemetryFile(tmp_path / "telemetry.jsonl").add(0.0, {"w": {"cpu": 1.0}}, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "telemetry.jsonl").stat().st_mode) == 0o600
