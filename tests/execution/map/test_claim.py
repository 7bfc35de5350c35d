"""500 iterations with planted faults of every kind, killed and stopped, and resumed with other
batch sizes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from daskmetrics.core.events import MapStarted, Record
from daskmetrics.execution import map
from daskmetrics.execution.journal import read
from tests.execution.map import planted

ITERATIONS = 500


def start(folder: Path, batch_size: int) -> subprocess.Popen[str]:
    function = f"{Path(__file__).parent / 'planted.py'}:step"
    words = f"--iterations {ITERATIONS} --workers 3 --max-retries 1 --timeout 2s --folder run"
    words += f" --batch-size {batch_size}"
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
    code, _ = stop_at(folder, 60, 10, signal.SIGKILL)
    assert code == -signal.SIGKILL
    with (folder / "run" / "journal.jsonl").open("ab") as file:
        file.write(b'0123abcd {"type":"rec')  # a killed writer can leave half a line
    code, output = stop_at(folder, 200, 7, signal.SIGINT)
    assert code == 130 and "resume" in output
    process = start(folder, 10)
    output = process.communicate(timeout=400)[0]
    assert process.returncode == 3, output
    return folder / "run"


def test_every_iteration_is_recorded_exactly_once(folder):
    results = map.results(folder)
    assert [result.item for result in results] == list(range(ITERATIONS))
    succeeded = Counter(
        outcome.key
        for entry in read(folder / "journal.jsonl")
        if isinstance(entry, Record) and entry.value
        for outcome in entry.value.items
        if outcome.status == "ok"
    )
    assert succeeded == Counter(result.key for result in results if result.ok)


def test_only_the_planted_faults_failed(folder):
    failed = {result.item: result.status for result in map.results(folder) if not result.ok}
    assert failed == planted.STATUS


def test_values_are_those_of_a_function_without_faults(folder):
    succeeded = [result for result in map.results(folder) if result.ok]
    assert all(result.value["loss"] == result.item / 7 for result in succeeded)
    assert len({result.value["seed"] for result in succeeded}) == len(succeeded)


def test_the_run_passes_verification(folder):
    verification = map.verify(folder, sample=30)
    assert verification.ok and verification.sampled == 30, verification.text()


def test_a_finished_map_does_nothing(folder):
    before = (folder / "journal.jsonl").read_bytes()
    process = start(folder.parent, 10)
    output = process.communicate(timeout=100)[0]
    assert process.returncode == 3 and "500 of 500 items are recorded already" in output
    assert (folder / "journal.jsonl").read_bytes() == before
