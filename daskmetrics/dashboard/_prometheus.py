"""The numbers of a run on the scheduler's ``/metrics``, for Prometheus."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from daskmetrics.dashboard._plugin import DashboardPlugin
from daskmetrics.dashboard._state import KINDS, LiveState

MetricFamily = GaugeMetricFamily | CounterMetricFamily


class PrometheusCollector(Collector):
    """The state of a plugin as Prometheus metrics, collected for each scrape.

    The schedulers of a process share one registry, which shows the latest that is not closed.
    """

    def __init__(self) -> None:
        self.plugins: list[DashboardPlugin] = []  # the latest, whose numbers are shown, is last

    def collect(self) -> Iterator[MetricFamily]:
        """Called by prometheus_client for each scrape."""
        self.plugins = [plugin for plugin in self.plugins if not plugin.closed]
        for plugin in self.plugins[-1:]:
            yield from _load(plugin)
            yield from _training(plugin)
            if plugin.items:
                yield _gauge("items_planned", "Items of a map", plugin.items["items"])
                finished = {(status,): count for status, count in plugin.items["counts"].items()}
                yield _labelled("items", "Items of a map that have a result", finished, "status")
            if plugin.live is not None:
                yield from _run(plugin.live)


USED = {
    "cpu": ("cpu_percent", "Use of CPUs by a worker, in per cent of one"),
    "memory": ("memory_bytes", "Memory of a worker"),
    "received": ("network_received_bytes_per_second", "Received by the machine of a worker"),
    "sent": ("network_sent_bytes_per_second", "Sent by the machine of a worker"),
    "read": ("disk_read_bytes_per_second", "Read from disks of the machine of a worker"),
    "written": ("disk_written_bytes_per_second", "Written to disks of the machine of a worker"),
    "gpu": ("gpu_percent", "Utilisation of the GPU of a worker"),
    "gpu_memory": ("gpu_memory_bytes", "Used memory of the GPU of a worker"),
    "power": ("gpu_power_watts", "Power of the GPU of a worker"),
    "temperature": ("gpu_temperature_celsius", "Temperature of the GPU of a worker"),
}
"""Name and description of each quantity of `core._telemetry`."""

COLLECTOR = PrometheusCollector()
REGISTRY.register(COLLECTOR)


def _load(plugin: DashboardPlugin) -> Iterator[MetricFamily]:
    yield _gauge("workers", "Workers of the scheduler", len(plugin.scheduler.workers))
    if plugin.load:
        now = plugin.load[-1]
        busy = {(part,): getattr(now, part) for part in ("gpu_slots", "cpu_slots", "cpu", "gpu")}
        yield _labelled("busy_ratio", "Used share of the workers' resources", busy, "of")
    reported = plugin.readings()
    for quantity, (name, about) in USED.items():
        if values := {
            (worker,): own[quantity] for worker, own in reported.items() if quantity in own
        }:
            yield _labelled(f"worker_{name}", about, values, "worker")


def _training(plugin: DashboardPlugin) -> Iterator[MetricFamily]:
    last = {(rank,): point for rank, point in plugin.training.last.items()}
    for place, name, about in (
        (0, "step", "Latest training step"),
        (1, "loss_nats", "Latest training loss, nats per token"),
        (2, "tokens_per_second", "Latest training throughput"),
    ):
        yield _labelled(
            f"training_{name}", about, {rank: point[place] for rank, point in last.items()}, "rank"
        )


def _run(live: LiveState) -> Iterator[MetricFamily]:
    yield _labelled(
        "run_info", "The run that the dashboard shows", {(live.name, live.phase): 1}, "run", "state"
    )
    units = {unit: count for unit, count in live.counts.items() if count}
    yield _labelled("units", "Recorded work units", units, "kind", "state")
    planned = {(kind,): live.planned[kind] for kind in KINDS if kind in live.planned}
    yield _labelled(
        "units_planned",
        "Planned work units; for scores, those of the exhaustive sweep",
        planned,
        "kind",
    )
    failures = CounterMetricFamily(
        "daskmetrics_failures", "Failed units, by cause", labels=["kind", "cause"]
    )
    for (kind, status), count in units.items():
        if status != "ok":
            failures.add_metric([kind, status], count)
    yield failures
    yield _gauge("cells_scored", "Cells that have a score", live.counts["score", "ok"])
    yield _gauge("best_score", "Greatest mean raw score of an arm scored on every task", live.best)
    yield _gauge(
        "shortfall", "Possible regret of the leading arm, in units of the reward", live.shortfall
    )
    yield CounterMetricFamily(
        "daskmetrics_cost_spent_seconds", "Assumed seconds spent by the search", live.spent
    )
    yield _gauge("cost_budget_seconds", "Budget of the search in assumed seconds", live.budget)
    yield _gauge(
        "cost_exhaustive_seconds", "Assumed seconds of scoring every cell", live.exhaustive
    )
    left = live.left(time.monotonic())
    yield _gauge(
        "eta_seconds", "Remaining seconds of the current phase", math.nan if left is None else left
    )


def _gauge(name: str, about: str, value: float) -> MetricFamily:
    return GaugeMetricFamily(f"daskmetrics_{name}", about, value=value)


def _labelled(name: str, about: str, values: Mapping[Any, float], *labels: str) -> MetricFamily:
    family = GaugeMetricFamily(f"daskmetrics_{name}", about, labels=list(labels))
    for names, value in values.items():
        family.add_metric([str(label) for label in names], value)
    return family
