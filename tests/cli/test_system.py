"""Errors of the operating system end a command with one message: path, reason and remedy."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from daskmetrics.cluster.places import FILES, FILES_PER_WORKER, WORKER_MEMORY
from tests.cli.calling import call

LONG = "a" * 300
FUNCTION = "def step(item): return {'big': 10**400 if item % 2 else item, 'text': '=1'}\n"
MAP = "map bench.py:step --iterations 4 --serial --folder"


@pytest.fixture
def a_map(tmp_path) -> Path:
    (tmp_path / "bench.py").write_text(FUNCTION)
    assert call(tmp_path, f"{MAP} m").exit_code == 0
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
        (f"daskmetrics {MAP} {LONG}", "name too long"),
        # a block is 512 bytes in some shells and 1024 in others
        (
            f"ulimit -f 1; daskmetrics {MAP.replace(' 4', ' 400')} small",
            "/small/items.jsonl': File",
        ),
        ("daskmetrics status m > /dev/full", "'standard output': No space left"),
        ("daskmetrics --help > /dev/full", "'standard output': No space left"),
        ("PYTHONUNBUFFERED=1 daskmetrics status m > /dev/full", "'standard output': No space left"),
        ("mkdir gone; cd gone; rmdir ../gone; daskmetrics run --dry-run", "No such file"),
        (
            f"cd m; rm items.jsonl; mkdir items.jsonl; cd ..; daskmetrics {MAP} m",
            "/m/items.jsonl': Is",
        ),
        ("ulimit -n 47; daskmetrics map bench.py:step --iterations 4 --workers 1", "it needs 48"),
    ],
)
def test_an_error_of_the_system_is_one_message(a_map, line, reason):
    done = in_shell(a_map, line)
    assert done.returncode == 1 + ("ulimit -n" in line)  # 2: nothing was started
    assert reason in done.stderr and done.stderr.count("Error:") == 1
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_more_workers_than_the_memory_holds_are_refused(a_map):
    workers = 1 + 2 * psutil.virtual_memory().total // WORKER_MEMORY
    files = FILES + FILES_PER_WORKER * workers
    if files > resource.getrlimit(resource.RLIMIT_NOFILE)[1]:
        pytest.skip("a process may not open as many files here")
    line = f"ulimit -n {files}; daskmetrics map bench.py:step --iterations 4 --workers {workers}"
    done = in_shell(a_map, line)
    assert done.returncode == 2 and "free: at most --workers" in done.stderr


def test_streams_that_the_caller_has_closed_are_no_error(tmp_path):
    line = (
        "daskmetrics list metrics <&- >&- 2>error; echo $?; daskmetrics init <&- 2>>error; echo $?"
    )
    assert in_shell(tmp_path, line).stdout.endswith("1\n")
    assert "Traceback" not in (tmp_path / "error").read_text()


def test_a_reader_that_ends_early_is_no_error(tmp_path):
    done = in_shell(tmp_path, "daskmetrics list metrics | head -1")
    assert done.stderr == "" and done.stdout.count("\n") == 1


@pytest.mark.parametrize("file", ["journal.mark", "journal.jsonl"])
def test_a_pipe_in_place_of_a_file_is_one_message(a_map, file):
    for name in (file, "items.jsonl"):
        (a_map / "m" / name).unlink()
    os.mkfifo(a_map / "m" / file)
    done = call(a_map, "status m")
    assert done.exit_code == 1 and "is a pipe" in done.stderr


@pytest.mark.parametrize("command", ["status", "status --follow", "best", "runs verify"])
def test_a_run_whose_journal_is_gone_is_said_to_miss_it(a_map, command):
    (a_map / "m" / "journal.jsonl").unlink()
    done = call(a_map, f"{command} m")
    assert done.exit_code == 1 and "'m/journal.jsonl' is missing, but" in done.stderr


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_huge_integers_are_reported_and_refused_by_a_table(a_map, suffix):
    done = call(a_map, "status m")
    assert "no statistics of big: integers of more than 64 bits" in done.stdout
    written = call(a_map, f"{MAP} m --output x.{suffix}")
    assert f"x.{suffix}' cannot hold these results (integers of more than 64" in written.stderr
    assert not (a_map / f"x.{suffix}").exists()
    lines = (a_map / f"x.{suffix}.jsonl").read_text().splitlines()
    assert [json.loads(line)["value"]["big"] for line in lines] == [0, 10**400, 2, 10**400]


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
@pytest.mark.parametrize("line", ["list tasks", "list metrics"])
def test_no_text_is_an_error_of_the_terminal(tmp_path, line, encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "daskmetrics", *line.split()]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("revisions", ["[]", "[step1]"])
def test_a_source_that_cannot_be_one_is_named(tmp_path, revisions):
    text = f"name: x\nmodels: [{{name: m, source: '１', revisions: {revisions}}}]"
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    done = call(tmp_path, "run x.yaml --dry-run")
    assert done.exit_code == 2 and ("no folder '１'" in done.output or "got []" in done.output)
