from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from daskmetrics.core.events import AttemptFailed, Record, WorkerJoined
from daskmetrics.execution.journal import read
from tests.cli.calling import COMMAND, call, fails


def wait_until(condition, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def recorded_by(journal: Path, name: str) -> int:
    records = (entry for entry in read(journal) if isinstance(entry, Record))
    return sum(str(record.worker).startswith(name) for record in records)


def test_a_worker_joins_a_running_map_and_leaves_it_without_losing_a_unit(tmp_path):
    (tmp_path / "bench.py").write_text("import time\ndef step(item): return time.sleep(0.3)\n")
    folder = tmp_path / "runs" / "step"
    line = "map bench.py:step --iterations 2000 --workers 1 --batch-size 1"
    pipes = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    driver = subprocess.Popen([*COMMAND, *line.split()], **pipes)
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
    assert sum(isinstance(entry, WorkerJoined) for entry in entries) == 2, text
    assert not any(isinstance(entry, AttemptFailed) for entry in entries)
    assert not (folder / "scheduler.json").exists()
    elsewhere = {"address": "tls://127.0.0.1:1", "host": "elsewhere"}
    (folder / "scheduler.json").write_text(json.dumps(elsewhere))
    assert fails(call(tmp_path, "runs worker step"), "cluster.interface")
