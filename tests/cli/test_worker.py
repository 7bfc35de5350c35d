from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daskmetrics.domain.events import AttemptFailed, WorkerJoined
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read
from tests.cli.calling import call, fails, process, wait_until

WORKER = ("-m", "daskmetrics", "runs", "worker", "step")


@contextmanager
def running_map(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The driver of a long map, which workers may join."""
    (folder / "bench.py").write_text("import time\ndef step(item): return time.sleep(0.3)\n")
    line = "map bench.py:step --iterations 2000 --workers 1 --batch-size 1"
    with process(folder, "-m", "daskmetrics", *line.split()) as driver:
        wait_until((folder / "runs" / "step" / "scheduler.json").exists, driver)
        yield driver


def recorded_by(journal: Path, name: str) -> int:
    records = (entry for entry in read(journal) if isinstance(entry, Record))
    return sum(str(record.worker).startswith(name) for record in records)


def test_a_worker_joins_and_leaves_a_map_without_losing_a_unit(tmp_path):
    folder = tmp_path / "runs" / "step"
    with running_map(tmp_path) as driver:
        assert (folder / "scheduler.json").stat().st_mode & 0o077 == 0
        with process(tmp_path, *WORKER) as joined:
            wait_until(lambda: recorded_by(folder / "journal.jsonl", os.uname().nodename), joined)
            joined.send_signal(signal.SIGINT)
            _, output = joined.communicate(timeout=120)
        assert joined.returncode == 0 and "Leaving" in output and "Left." in output, output
        left = recorded_by(folder / "journal.jsonl", "0")
        wait_until(lambda: recorded_by(folder / "journal.jsonl", "0") > left + 1, driver)
        driver.send_signal(signal.SIGTERM)
        _, text = driver.communicate(timeout=120)
    entries = list(read(folder / "journal.jsonl"))
    assert sum(isinstance(entry, WorkerJoined) for entry in entries) == 2, text
    assert not any(isinstance(entry, AttemptFailed) for entry in entries)
    assert not (folder / "scheduler.json").exists()
    elsewhere = {"address": "tls://127.0.0.1:1", "host": "elsewhere"}
    (folder / "scheduler.json").write_text(json.dumps(elsewhere))
    assert fails(call(tmp_path, "runs worker step"), "cluster.interface")


def test_a_starting_worker_ends_at_once_without_a_traceback(tmp_path):
    with running_map(tmp_path) as driver:
        with process(tmp_path, *WORKER) as leaving:
            assert "joined" in leaving.stderr.readline()
            leaving.send_signal(signal.SIGINT)
            _, output = leaving.communicate(timeout=30)
        assert leaving.returncode == 0
        assert [line.partition(":")[0] for line in output.splitlines()] == ["Leaving", "Left."]
        with process(tmp_path, *WORKER) as joined:
            assert "joined" in joined.stderr.readline()
            driver.kill()
            _, output = joined.communicate(timeout=30)
        assert joined.returncode == 1
        assert output.startswith("Error: The workers ended before") and output.count("\n") == 1
    entries = read(tmp_path / "runs" / "step" / "journal.jsonl")
    assert not any(isinstance(entry, AttemptFailed) for entry in entries)
