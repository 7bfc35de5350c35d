from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from daskmetrics.core.events import AttemptFailed, Record, WorkerJoined
from daskmetrics.execution.journal import read
from tests.cli.calling import call, fails

SLOW = """
import time

def step(item):
    time.sleep(0.3)
    return item
"""
COMMAND = [sys.executable, "-m", "daskmetrics"]


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "bench.py").write_text(SLOW)
    return tmp_path


def wait_until(condition, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def recorded_by(journal: Path, name: str) -> int:
    return sum(
        isinstance(each, Record) and str(each.worker).startswith(name) for each in read(journal)
    )


def test_a_worker_joins_a_running_map_and_leaves_it_without_losing_a_unit(place):
    folder = place / "runs" / "step"
    items = ("bench.py:step", "--iterations", "2000", "--workers", "1", "--batch-size", "1")
    pipes = {"cwd": place, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    driver = subprocess.Popen([*COMMAND, "map", *items], **pipes)
    try:
        wait_until((folder / "scheduler.json").exists, driver)
        assert (folder / "scheduler.json").stat().st_mode & 0o077 == 0
        joined = subprocess.Popen([*COMMAND, "runs", "worker", "step"], **pipes)
        try:
            wait_until(lambda: recorded_by(folder / "journal.jsonl", os.uname().nodename), joined)
            joined.send_signal(signal.SIGINT)
            output, _ = joined.communicate(timeout=120)
        finally:
            joined.kill()
        assert joined.returncode == 0 and "Leaving" in output and "Left." in output, output
        left = recorded_by(folder / "journal.jsonl", "0")
        wait_until(lambda: recorded_by(folder / "journal.jsonl", "0") > left + 1, driver)
    finally:
        driver.send_signal(signal.SIGTERM)
        text, _ = driver.communicate(timeout=120)
    entries = list(read(folder / "journal.jsonl"))
    assert len([each for each in entries if isinstance(each, WorkerJoined)]) == 2, text
    assert not any(isinstance(each, AttemptFailed) for each in entries)
    assert not (folder / "scheduler.json").exists()
    assert fails(call(place, "runs", "worker", "step"), "No map runs in 'runs/step'")
    (folder / "scheduler.json").write_text(
        json.dumps({"address": "tls://127.0.0.1:1", "host": "elsewhere"})
    )
    assert fails(call(place, "runs", "worker", "step"), "cluster.interface")
