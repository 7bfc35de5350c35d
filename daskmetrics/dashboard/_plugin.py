"""The scheduler's side: a plugin that receives the messages of a run and holds its state for the
pages.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from distributed import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from daskmetrics.core.events import CLUSTER, MAP, TRAIN, StorePlanned, message_from_json
from daskmetrics.core.telemetry import readings
from daskmetrics.dashboard._state import Grid, LiveState, TrainingCurves

NAME = "daskmetrics"
LOAD_INTERVAL = 2.0  # seconds between measurements of the load
MAX_LOADS = 900  # measurements that are kept: half an hour


@dataclass(frozen=True)
class WorkerLoad:
    """The load of the workers at one time, as used shares; NaN for a resource that no worker has or
    reports.
    """

    time: float
    gpu_slots: float
    cpu_slots: float
    cpu: float
    gpu: float


class DashboardPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """The state of the latest run, of the latest training, and of the workers of a scheduler."""

    name = NAME

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.live: LiveState | None = None
        self.training = TrainingCurves()
        self.load: deque[WorkerLoad] = deque(maxlen=MAX_LOADS)
        self.cluster = ""  # the latest message of the topic `CLUSTER` about queue and machines
        self.items: Mapping[str, Any] = {}  # the latest message of the topic `MAP`
        self.closed = False
        self._measuring = PeriodicCallback(self.measure_load, LOAD_INTERVAL * 1000)

    def open(self) -> None:
        """Register the plugin and its message handler with the scheduler."""
        self.scheduler.handlers["daskmetrics_receive"] = self.receive
        self.scheduler.add_plugin(self)
        self._measuring.start()

    async def close(self) -> None:
        """Called by Dask when the scheduler ends."""
        self.closed = True
        self._measuring.stop()

    def receive(self, news: Iterable[Mapping[str, Any]]) -> None:
        """Receive entries of a journal and other messages of the driver, in order."""
        messages = [message_from_json(plain) for plain in news]
        for message in messages:
            if isinstance(message, StorePlanned):
                self.live = LiveState(Grid.of(message))
        if self.live is not None:
            self.live.receive(messages, time.monotonic())

    def log_event(self, topic: str, msg: Any) -> None:
        """Called by Dask for every logged event."""
        if topic == TRAIN and isinstance(msg, dict):
            self.training.receive(msg, time.time())
        elif topic == MAP and isinstance(msg, dict):
            self.items = msg
        elif topic == CLUSTER and isinstance(msg, dict):
            self.cluster = str(msg.get("text", ""))

    def readings(self) -> dict[str, dict[str, float]]:
        """What each worker reported last, by its name."""
        return {
            str(worker.name): readings(worker.metrics) for worker in self.scheduler.workers.values()
        }

    def measure_load(self) -> None:
        """Record the current load of the workers, as the scheduler knows it."""
        workers = list(self.scheduler.workers.values())
        processors = sum(worker.nthreads for worker in workers)
        used = self.readings().values()
        cpu = sum(reading.get("cpu", 0.0) for reading in used)
        gpus = [reading["gpu"] for reading in used if "gpu" in reading]
        load = WorkerLoad(
            time=time.time(),
            gpu_slots=_used_share(workers, "GPU"),
            cpu_slots=_used_share(workers, "CPU"),
            cpu=cpu / 100 / processors if processors else math.nan,
            gpu=fmean(gpus) / 100 if gpus else math.nan,
        )
        self.load.append(load)


def plugin_of(scheduler: Any) -> DashboardPlugin:
    """The plugin of a scheduler; a new one if another scheduler of this process has added the
    pages.
    """
    plugin = scheduler.extensions.get(NAME)
    return plugin if isinstance(plugin, DashboardPlugin) else DashboardPlugin(scheduler)


def _used_share(workers: Sequence[Any], resource: str) -> float:
    """Used share of a resource; units that wait at a worker also use it, up to what the worker has."""
    total: float = sum(worker.resources.get(resource, 0.0) for worker in workers)
    if not total:
        return math.nan
    used: float = 0.0
    for worker in workers:
        owned = worker.resources.get(resource, 0.0)
        used += min(worker.used_resources.get(resource, 0.0), owned)
    return used / total
