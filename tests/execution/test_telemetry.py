"""What workers used over time; the GPU is a stand-in that replays a trace, and is named so."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

import daskmetrics as dm
from daskmetrics.cli import main
from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core.telemetry import TelemetryFile, read_samples
from daskmetrics.execution import runner as runner

STANDIN = Path(__file__).parent / "standin"


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pytest.mark.slow  # real workers; the file is tested below
def test_what_workers_and_gpus_used_is_kept_published_and_drawn(tmp_path, monkeypatch):
    folder, metrics = tmp_path / "watched", ""
    monkeypatch.syspath_prepend(STANDIN)
    monkeypatch.setenv("PYTHONPATH", str(STANDIN), prepend=":")
    monkeypatch.setattr(runner, "LOOK_EVERY", 0.5)
    monkeypatch.setattr("daskmetrics.core.telemetry.EVERY", 0.5)
    with connect(Cluster(workers=1)) as client:
        page = client.dashboard_link.replace("/status", "/metrics")
        for _ in dm.map(wait, [0.5 + 0.001 * i for i in range(6)], client=client, journal=folder):
            metrics = urllib.request.urlopen(page).read().decode()

    telemetry = folder / "telemetry.jsonl"
    busy = [sample for sample in read_samples(telemetry) if sample.doing == {"0": "batch"}]
    last = busy[-1].readings["0"]
    assert last.keys() >= {"cpu", "received", "sent"} and last["memory"] > 10**7
    assert last["gpu"] in (2, 3, 4) and last["gpu_memory"] in (512 * 2**20, 640 * 2**20)
    assert last["power"] in (67, 68, 69) and last["temperature"] in (31, 32)

    lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if "worker_" in line)
    assert float(lines['daskmetrics_worker_memory_bytes{worker="0"}']) > 10**7
    assert 30 < float(lines['daskmetrics_worker_gpu_temperature_celsius{worker="0"}']) < 33

    done = CliRunner().invoke(main, ["report", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0 and (folder / "report" / "telemetry.png").stat().st_size > 20_000


def test_a_file_stays_within_its_bound_and_spans_the_whole_run(tmp_path):
    file = TelemetryFile(tmp_path / "t.jsonl", most=100)
    for second in range(0, 50_000, 50):
        file.add(float(second), {"a": {"cpu": 1.0}, "b": {"cpu": 2.0}}, {})
    times = [sample.at for sample in read_samples(file.path)]
    assert len(times) <= 51 and times[0] == 0 and times[-1] > 45_000
    with file.path.open("a") as half:
        half.write("[50000,{")
    assert len(read_samples(file.path)) == len(times)


def test_a_clock_that_was_set_back_stops_no_samples(tmp_path):
    file = TelemetryFile(tmp_path / "telemetry.jsonl")
    for now in (300_000.0, 300_001.0, 40_800.0):
        file.add(now, {"w": {"cpu": 90.0}}, {})
    assert [sample.at for sample in read_samples(file.path)] == [300_000.0, 40_800.0]
