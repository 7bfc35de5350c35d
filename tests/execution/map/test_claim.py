"""A map with planted faults of every kind, killed and stopped, and resumed with other batch sizes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from daskmetrics.domain.events import MapStarted
from daskmetrics.domain.record import Record
from daskmetrics.execution import map
from daskmetrics.execution.journal import read
from tests.execution.map import planted


def start(folder: Path, batch_size: int) -> subprocess.Popen[str]:
    function = f"{Path(__file__).parent / 'planted.py'}:step"
    words = f"--iterations {planted.ITERATIONS} --workers 2 --max-retries 1 --timeout 2s"
    words += f" --folder run --batch-size {batch_size}"
    command = [sys.executable, "-m", "daskmetrics", "map", function, *words.split()]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finished(folder: Path) -> int:
    journal = folder / "run" / "journal.jsonl"
    if not journal.exists() or not any(isinstance(entry, MapStarted) for entry in read(journal)):
        return 0
    return len(map.results(folder / "run"))


def stop_at(folder: Path, count: int, batch_size: int, sent: signal.Signals) -> tuple[int, str]:
    """Send a signal once this many items are finished; returns the exit code and the output."""
    process = start(folder, batch_size)
    while finished(folder) < count:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    process.send_signal(sent)
    return process.wait(timeout=120), process.communicate()[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("claim")
    code, _ = stop_at(folder, 30, 5, signal.SIGKILL)
    assert code == -signal.SIGKILL
    with (folder / "run" / "journal.jsonl").open("ab") as file:
        file.write(b'0123abcd {"type":"rec')  # a killed writer can leave half a line
    code, output = stop_at(folder, 80, 3, signal.SIGINT)
    assert code == 130 and "resume" in output
    process = start(folder, 5)
    output = process.communicate(timeout=400)[0]
    assert process.returncode == 3, output
    return folder / "run"


def test_every_item_is_recorded_exactly_once(folder):
    results = map.results(folder)
    assert [result.item for result in results] == list(range(planted.ITERATIONS))
    entries = read(folder / "journal.jsonl")
    batches = [entry.value.items for entry in entries if isinstance(entry, Record) and entry.value]
    outcomes = [outcome for batch in batches for outcome in batch]
    succeeded = Counter(outcome.key for outcome in outcomes if outcome.status == "ok")
    assert succeeded == Counter(result.key for result in results if result.ok)


def test_only_planted_faults_failed_and_other_values_are_right(folder):
    results = map.results(folder)
    assert {result.item: result.status for result in results if not result.ok} == planted.STATUS
    succeeded = [result for result in results if result.ok]
    assert all(result.value["loss"] == result.item / 7 for result in succeeded)
    assert len({result.value["seed"] for result in succeeded}) == len(succeeded)
    verification = map.verify(folder, sample=30)
    assert verification.ok and verification.sampled == 30, verification
