"""What workers used over time; the GPU is a stand-in that replays a trace, and is named so."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

import daskmetrics as dm
from daskmetrics.answer.status import idle_gpus
from daskmetrics.cli import main
from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core.telemetry import TelemetryFile, TelemetrySample, read_samples
from daskmetrics.execution import runner as runner

STANDIN = Path(__file__).parent / "standin"


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> tuple[Path, str]:
    """The folder of a map whose workers have the stand-in for a GPU, and /metrics while it ran."""
    folder, metrics = tmp_path_factory.mktemp("watched"), ""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(STANDIN)
        patch.setenv("PYTHONPATH", str(STANDIN), prepend=":")
        patch.setattr(runner, "LOOK_EVERY", 0.5)
        patch.setattr("daskmetrics.core.telemetry.EVERY", 0.5)
        with connect(Cluster(workers=1)) as client:
            for _ in dm.map(
                wait, [0.5 + 0.001 * i for i in range(10)], client=client, journal=folder
            ):
                metrics = (
                    urllib.request.urlopen(client.dashboard_link.replace("/status", "/metrics"))
                    .read()
                    .decode()
                )
    return folder, metrics


@pytest.mark.slow  # real workers; the file and the idle GPUs are tested below
def test_a_run_keeps_what_its_workers_and_their_gpus_used(watched):
    samples = read_samples(watched[0] / "telemetry.jsonl")
    busy = [sample for sample in samples if sample.doing == {"0": "batch"}]
    assert len(busy) > 2
    last = busy[-1].readings["0"]
    assert set(last) >= {
        "cpu",
        "memory",
        "received",
        "sent",
        "gpu",
        "gpu_memory",
        "power",
        "temperature",
    }
    assert (
        last["gpu"] in (2, 3, 4)
        and last["power"] in (67, 68, 69)
        and last["temperature"] in (31, 32)
    )
    assert last["gpu_memory"] in (512 * 2**20, 640 * 2**20) and last["memory"] > 10**7


@pytest.mark.slow  # real workers; the file and the idle GPUs are tested below
def test_prometheus_gets_the_same_of_each_worker(watched):
    lines = dict(
        line.rsplit(" ", 1)
        for line in watched[1].splitlines()
        if line.startswith("daskmetrics_worker_")
    )
    assert float(lines['daskmetrics_worker_memory_bytes{worker="0"}']) > 10**7
    assert 30 < float(lines['daskmetrics_worker_gpu_temperature_celsius{worker="0"}']) < 33


@pytest.mark.slow  # real workers; the file and the idle GPUs are tested below
def test_the_figure_of_a_map_is_written_and_status_names_the_idle_gpu(watched, monkeypatch):
    folder = watched[0]
    done = CliRunner().invoke(main, ["report", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0 and (folder / "report" / "telemetry.png").stat().st_size > 20_000
    monkeypatch.setattr("daskmetrics.answer.status.FRESH", 1e9)  # the test may run late
    telemetry = folder / "telemetry.jsonl"
    # while it ran
    *_, last = (line for line in telemetry.read_text().splitlines() if '"batch"' in line)
    telemetry.write_text(f"{last}\n")
    said = CliRunner().invoke(main, ["status", str(folder)], catch_exceptions=False).output
    assert re.search(r"Worker 0: GPU at [234] %: its unit \(batch\) computes on the CPU\.", said)


def test_a_worker_without_work_waits_for_the_driver_and_a_busy_gpu_is_not_named():
    sample = TelemetrySample(
        10.0, {"a": {"gpu": 0.0}, "b": {"gpu": 99.0}}, {"a": "", "b": "measure"}
    )
    assert idle_gpus([sample] * 3, 11.0) == {"a": "GPU at 0 %: it waits for work from the driver"}
    assert idle_gpus([sample], 10_000.0) == {} and idle_gpus([], 0.0) == {}


def test_a_file_stays_within_its_bound_and_spans_the_whole_run(tmp_path):
    file = TelemetryFile(tmp_path / "t.jsonl", most=100)
    for second in range(0, 50_000, 5):
        file.add(float(second), {"a": {"cpu": 1.0}, "b": {"cpu": 2.0}}, {})
    times = [sample.at for sample in read_samples(file.path)]
    assert len(times) <= 51 and times[0] == 0 and times[-1] > 45_000
    with file.path.open("a") as half:
        half.write("[50000,{")
    assert len(read_samples(file.path)) == len(times)
