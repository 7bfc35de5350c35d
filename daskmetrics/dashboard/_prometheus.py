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
from daskmetrics.dashboard._state import KINDS, LiveState, TrainingCurves

MetricFamily = GaugeMetricFamily | CounterMetricFamily
Values = float | Mapping[str, float] | Mapping[tuple[str, str], float]


class PrometheusCollector(Collector):
    """The state of a plugin, collected for each scrape.

    The schedulers of a process share one registry, which shows the latest that is not closed.
    """

    def __init__(self) -> None:
        self.plugins: list[DashboardPlugin] = []  # the latest, whose numbers are shown, is last

    def collect(self) -> Iterator[MetricFamily]:
        """Called by prometheus_client for each scrape."""
        self.plugins = [
            plugin for plugin in self.plugins if plugin.scheduler.status is Status.running
        ]
        if self.plugins:
            latest = self.plugins[-1]
            yield _gauge("workers", "Workers of the scheduler", len(latest.scheduler.workers))
            yield from _workers(latest.readings())
            yield from _training(latest.training)
            if items := latest.items:
                yield _gauge("items_planned", "Items of a map", items["items"])
                about = "Items of a map that have a result"
                yield _gauge("items", about, items["counts"], "status")
            if latest.live is not None:
                yield from _run(latest.live)


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
    ("expected_loss", "By how much the best candidate is expected to exceed the leader", "loss"),
    ("cost_budget_seconds", "Budget of the search in estimated seconds", "budget"),
    ("cost_exhaustive_seconds", "Estimated seconds of scoring everything", "exhaustive"),
)


def _workers(readings: Mapping[str, Mapping[str, float]]) -> Iterator[MetricFamily]:
    for quantity, (_, _, name, description) in USED.items():
        by_worker = {worker: row[quantity] for worker, row in readings.items() if quantity in row}
        if by_worker:
            yield _gauge(f"worker_{name}", f"{description} of a worker", by_worker, "worker")


def _training(training: TrainingCurves) -> Iterator[MetricFamily]:
    for quantity, (name, description) in TRAINING.items():
        by_rank = {rank: getattr(point, quantity) for rank, point in training.last.items()}
        yield _gauge(f"training_{name}", description, by_rank, "rank")


def _run(live: LiveState) -> Iterator[MetricFamily]:
    shown = {(live.name, live.phase): 1}
    yield _gauge("run_info", "The run that the dashboard shows", shown, "run", "state")
    units = {unit: count for unit, count in live.counts.items() if count}
    yield _gauge("units", "Recorded work units", units, "kind", "state")
    planned = {kind: live.planned[kind] for kind in KINDS if kind in live.planned}
    description = "Planned work units; for scores, those of scoring everything"
    yield _gauge("units_planned", description, planned, "kind")
    failures = CounterMetricFamily(
        "daskmetrics_failures", "Failed units, by cause", labels=["kind", "cause"]
    )
    for (kind, status), count in units.items():
        if status != "ok":
            failures.add_metric((kind, status), count)
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
    values: Values,
    *labels: str,
) -> MetricFamily:
    family = GaugeMetricFamily(f"daskmetrics_{name}", about, labels=labels)
    if not isinstance(values, Mapping):
        family.add_metric((), values)
        return family
    for names, value in values.items():
        family.add_metric([names] if isinstance(names, str) else names, value)
    return family
