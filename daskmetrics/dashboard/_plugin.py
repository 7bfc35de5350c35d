"""The scheduler's side: a plugin that receives the messages of a run and holds its state for the
pages.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from distributed import SchedulerPlugin

from daskmetrics.core.events import CLUSTER, MAP, TRAIN, StorePlanned, message_from_json
from daskmetrics.core.telemetry import readings
from daskmetrics.dashboard._state import LiveState, TrainingCurves

NAME = "daskmetrics"


class DashboardPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """The state of the latest run, of the latest training, and of the workers of a scheduler."""

    name = NAME

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.live: LiveState | None = None
        self.training = TrainingCurves()
        self.cluster = ""  # the latest message of the topic `CLUSTER` about queue and machines
        self.items: Mapping[str, Any] = {}  # the latest message of the topic `MAP`
        self.closed = False

    def open(self) -> None:
        """Register the plugin and its message handler with the scheduler."""
        self.scheduler.handlers["daskmetrics_receive"] = self.receive
        self.scheduler.add_plugin(self)

    async def close(self) -> None:
        """Called by Dask when the scheduler ends."""
        self.closed = True

    def receive(self, news: Iterable[Mapping[str, Any]]) -> None:
        """Receive entries of a journal and other messages of the driver, in order."""
        messages = [message_from_json(plain) for plain in news]
        for message in messages:
            if isinstance(message, StorePlanned):
                self.live = LiveState(message)
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

    def load(self) -> dict[str, float]:
        """The used shares of the workers' slots (the resources GPU and CPU), processors and GPUs
        now; NaN for what no worker has or reports.
        """
        workers = list(self.scheduler.workers.values())
        used = self.readings().values()
        cpu = sum(reading.get("cpu", 0.0) for reading in used)
        gpus = [reading["gpu"] for reading in used if "gpu" in reading]
        processors = sum(worker.nthreads for worker in workers)
        return {
            "gpu_slots": _used_share(workers, "GPU"),
            "cpu_slots": _used_share(workers, "CPU"),
            "cpu": cpu / 100 / processors if processors else math.nan,
            "gpu": fmean(gpus) / 100 if gpus else math.nan,
        }


def plugin_of(scheduler: Any) -> DashboardPlugin:
    """The plugin of a scheduler; a new one if another scheduler of this process has added the
    pages.
    """
    plugin = scheduler.extensions.get(NAME)
    if isinstance(plugin, DashboardPlugin):
        return plugin
    return DashboardPlugin(scheduler)


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
