"""The numbers of a run on the scheduler's ``/metrics``, for Prometheus."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

from distributed import Status
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from daskmetrics.dashboard._plugin import USED, DashboardPlugin
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
        running = (plugin for plugin in self.plugins if plugin.scheduler.status is Status.running)
        self.plugins = list(running)
        for plugin in self.plugins[-1:]:
            yield _gauge("workers", "Workers of the scheduler", len(plugin.scheduler.workers))
            used = plugin.readings().items()
            for quantity, (_, _, name, description) in USED.items():
                values = {(worker,): row[quantity] for worker, row in used if quantity in row}
                if values:
                    yield _gauge(f"worker_{name}", f"{description} of a worker", values, "worker")
            for quantity, (name, description) in TRAINING.items():
                latest = plugin.training.last.items()
                values = {(rank,): getattr(point, quantity) for rank, point in latest}
                yield _gauge(f"training_{name}", description, values, "rank")
            if plugin.items:
                yield _gauge("items_planned", "Items of a map", plugin.items["items"])
                values = {(status,): count for status, count in plugin.items["counts"].items()}
                yield _gauge("items", "Items of a map that have a result", values, "status")
            if plugin.live is not None:
                yield from _run(plugin.live)


COLLECTOR = PrometheusCollector()
REGISTRY.register(COLLECTOR)


TRAINING = {
    "step": ("step", "Latest training step"),
    "loss": ("loss_nats", "Latest training loss, nats per token"),
    "tokens_per_second": ("tokens_per_second", "Latest training throughput"),
}


#: Name, description, and the attribute of `LiveState`.
GAUGES = (
    ("best_score", "Greatest mean raw score of a candidate scored on every task", "best"),
    (
        "shortfall",
        "Possible regret of the leading candidate, in units of what the search compares",
        "shortfall",
    ),
    ("cost_budget_seconds", "Budget of the search in estimated seconds", "budget"),
    ("cost_exhaustive_seconds", "Estimated seconds of scoring everything", "exhaustive"),
)


def _run(live: LiveState) -> Iterator[MetricFamily]:
    yield _gauge(
        "run_info", "The run that the dashboard shows", {(live.name, live.phase): 1}, "run", "state"
    )
    units = {unit: count for unit, count in live.counts.items() if count}
    yield _gauge("units", "Recorded work units", units, "kind", "state")
    planned = {(kind,): live.planned[kind] for kind in KINDS if kind in live.planned}
    description = "Planned work units; for scores, those of scoring everything"
    yield _gauge("units_planned", description, planned, "kind")
    failures = CounterMetricFamily(
        "daskmetrics_failures", "Failed units, by cause", labels=["kind", "cause"]
    )
    for labels, count in units.items():
        if labels[1] != "ok":
            failures.add_metric(labels, count)
    yield failures
    yield _gauge("cells_scored", "Scores that are known", live.counts["score", "ok"])
    for name, description, attribute in GAUGES:
        yield _gauge(name, description, getattr(live, attribute))
    yield CounterMetricFamily(
        "daskmetrics_cost_spent_seconds", "Estimated seconds spent by the search", live.spent
    )
    eta = live.left(time.monotonic())
    description = "Remaining seconds of the current phase"
    yield _gauge("eta_seconds", description, math.nan if eta is None else eta)


def _gauge(
    name: str,
    about: str,
    values: float | Mapping[tuple[str], float] | Mapping[tuple[str, str], float],
    *labels: str,
) -> MetricFamily:
    """One number, or one for each combination of labels."""
    family = GaugeMetricFamily(f"daskmetrics_{name}", about, labels=labels)
    by_labels = values if isinstance(values, Mapping) else {(): values}
    for names, value in by_labels.items():
        family.add_metric(names, value)
    return family
