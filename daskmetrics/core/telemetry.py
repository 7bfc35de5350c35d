"""What workers use over time: samples of their CPU, memory, network, disk and GPU, in a file of
bounded size.

Dask's workers measure themselves and report to the scheduler with each heartbeat; nothing is
measured twice here. Only the power and the temperature of a GPU are added to what they report, and
the CPU and memory of the rank of a process group, which is a process of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from daskmetrics.core.files import atomic_write, open_own

# our own metrics of a worker; the others are Dask's
GPU, RANK = (
    "daskmetrics_gpu",
    "daskmetrics_rank",
)
PLACES: Mapping[str, tuple[str, ...]] = {
    "cpu": ("cpu",),  # per cent of one CPU
    "memory": ("memory",),  # bytes, as all that follow, or bytes per second
    "received": ("host_net_io", "read_bps"),  # by the whole machine, as the next three
    "sent": ("host_net_io", "write_bps"),
    "read": ("host_disk_io", "read_bps"),
    "written": ("host_disk_io", "write_bps"),
    "gpu": ("gpu_utilization",),  # per cent
    "gpu_memory": ("gpu_memory_used",),
    "power": (GPU, "power"),  # watts
    "temperature": (GPU, "temperature"),  # degrees Celsius
}
"""Where Dask's metrics of a worker hold a quantity."""

EVERY = 5.0  # seconds between samples of a new run
PROCESS_GROUP = "process group"  # what a worker does while its rank trains
# samples of workers that a file holds, about 1.5 MB; beyond it every other one is dropped
MOST = 20_000


@dataclass(frozen=True)
class TelemetrySample:
    """The workers' readings at one time, and what each runs."""

    at: float  # seconds since 1970
    readings: Mapping[str, Mapping[str, float]]
    doing: Mapping[str, str]  # empty for a worker that waits


def readings(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What a worker reports, by quantity, together with its rank.

    >>> readings({"cpu": 12.5, "host_net_io": {"read_bps": 100.0}, "executing": 1, RANK: {"cpu": 80.0}})
    {'cpu': 92.5, 'received': 100.0}
    """
    numbers = {}
    for name, (metric, *keys) in PLACES.items():
        value = metrics.get(metric)
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, int | float):
            numbers[name] = float(value) + metrics.get(RANK, {}).get(name, 0.0)
    return numbers


class TelemetryFile:
    """The samples of a run, thinned out as they grow.

    A full disk loses samples, never the run.

    >>> import tempfile
    >>> file = TelemetryFile(Path(tempfile.mkdtemp()) / "telemetry.jsonl", most=4)
    >>> for second in range(0, 50, 5):
    ...     file.add(float(second), {"w": {"cpu": 90.0}}, {"w": "score"})
    >>> [sample.at for sample in read_samples(file.path)]
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """

    def __init__(self, path: Path, most: int = MOST) -> None:
        self.path = path
        self._most = most
        self._every = EVERY
        self._latest = -math.inf  # time of the last sample
        self._count = sum(len(sample.readings) for sample in read_samples(path))

    def add(
        self, now: float, workers: Mapping[str, Mapping[str, Any]], doing: Mapping[str, str]
    ) -> None:
        """Append a sample of the metrics of workers, unless the last one is too recent.

        ``doing`` is the kind of unit that a worker runs; one with a rank trains.
        """
        # a clock that was set back is no reason to wait
        if 0 <= now - self._latest < 0.9 * self._every or not workers:
            return
        row = {}
        for name, metrics in workers.items():
            numbers = readings(metrics)
            rounded = (round(numbers[q]) if q in numbers else None for q in PLACES)
            kind = doing.get(name, "")
            if RANK in metrics:
                kind = PROCESS_GROUP
            row[name] = [kind, *rounded]
        with suppress(OSError):
            with open_own(self.path, "ab") as file:
                line = json.dumps([round(now, 1), row], separators=(",", ":"))
                file.write(f"{line}\n".encode())
            self._count += len(row)
            if self._count > self._most:
                lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
                atomic_write(self.path, "".join(lines[::2]))
                self._count = self._count // 2
                self._every = 2 * self._every
        self._latest = now


def read_samples(path: Path) -> list[TelemetrySample]:
    """The samples in a file, oldest first; none without a file.

    A line that a killed run left half is ignored.
    """
    if not path.is_file():
        return []
    samples = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, TypeError, AttributeError):
            at, row = json.loads(line)
            doing = {}
            values = {}
            for name, (kind, *numbers) in row.items():
                named = zip(PLACES, numbers, strict=False)
                doing[name] = kind
                values[name] = {q: float(value) for q, value in named if value is not None}
            samples.append(TelemetrySample(at, values, doing))
    return samples


def gpu_share(samples: Iterable[TelemetrySample]) -> float | None:
    """The share of their time in which GPUs computed, of workers that ran something.

    None where no GPU was read. It is NVIDIA's utilization: the share of the time in which any kernel
    ran, and so no measure of how well.

    >>> two = [TelemetrySample(0.0, {"a": {"gpu": 20.0}, "b": {"gpu": 0.0}}, {"a": "score", "b": ""})] * 2
    >>> gpu_share(two), gpu_share([])
    (0.2, None)
    """
    shares = [
        reading["gpu"] / 100
        for sample in samples
        for worker, reading in sample.readings.items()
        if sample.doing.get(worker) and "gpu" in reading
    ]
    return fmean(shares) if shares else None
