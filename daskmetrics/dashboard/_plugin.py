"""The scheduler's side: a plugin that receives the messages of a run and holds its state for the
pages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from distributed import Scheduler, SchedulerPlugin

from daskmetrics.core.telemetry import readings
from daskmetrics.dashboard._state import LiveState, TrainingCurves
from daskmetrics.domain.events import CLUSTER, MAP, TRAIN, message_from_json
from daskmetrics.domain.plan import Plan

NAME = "daskmetrics"
#: Of each quantity of `core.telemetry`: its column and unit in the table of workers, and its name
#: and description for Prometheus.
USED = {
    "cpu": ("CPU", "%", "cpu_percent", "Use of CPUs, in per cent of one"),
    "memory": ("memory", "B", "memory_bytes", "Memory"),
    "received": ("received", "B/s", "network_received_bytes_per_second", "Received by the machine"),
    "sent": ("sent", "B/s", "network_sent_bytes_per_second", "Sent by the machine"),
    "read": ("read", "B/s", "disk_read_bytes_per_second", "Read from disks of the machine"),
    "written": (
        "written",
        "B/s",
        "disk_written_bytes_per_second",
        "Written to disks of the machine",
    ),
    "gpu": ("GPU", "%", "gpu_percent", "Utilisation of the GPU"),
    "gpu_memory": ("GPU memory", "B", "gpu_memory_bytes", "Used memory of the GPU"),
    "power": ("power", "W", "gpu_power_watts", "Power of the GPU"),
    "temperature": ("temperature", "°C", "gpu_temperature_celsius", "Temperature of the GPU"),
}


class DashboardPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """The state of the latest run, training and workers."""

    name = NAME

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.live: LiveState | None = None
        self.training = TrainingCurves()
        self.cluster = ""  # the latest message of the topic `CLUSTER` about queue and machines
        self.items: Mapping[str, Any] = {}  # the latest message of the topic `MAP`

    def receive(self, news: Iterable[Mapping[str, Any]]) -> None:
        """Receive entries and other messages in order."""
        messages = [message_from_json(plain) for plain in news]
        for message in messages:
            if isinstance(message, Plan):
                self.live = LiveState(message)
        if self.live is not None:
            self.live.receive(messages, time.monotonic())

    def log_event(self, topic: str, msg: object) -> None:
        """Called by Dask for every logged event."""
        if not isinstance(msg, dict):
            return
        if topic == TRAIN:
            self.training.receive(msg, time.time())
        elif topic == MAP:
            self.items = msg
        elif topic == CLUSTER:
            self.cluster = str(msg.get("text", ""))

    def readings(self) -> dict[str, dict[str, float]]:
        """What each worker reported last, by its name."""
        workers = self.scheduler.workers.values()
        return {str(worker.name): readings(worker.metrics) for worker in workers}


def plugin_of(scheduler: Scheduler) -> DashboardPlugin:
    """The plugin of a scheduler.

    A new one if another scheduler of this process has added the pages.
    """
    return scheduler.plugins.get(NAME) or DashboardPlugin(scheduler)
