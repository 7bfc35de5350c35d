"""The numbers of a run on the scheduler's ``/metrics``, for Prometheus."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence

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
        self.plugins = [plugin for plugin in self.plugins if not plugin.closed]
        for plugin in self.plugins[-1:]:
            yield from _workers(plugin)
            for quantity, (name, help_text) in TRAINING.items():
                latest = plugin.training.last.items()
                values = {(rank,): getattr(point, quantity) for rank, point in latest}
                yield _labelled(f"training_{name}", help_text, values.items(), "rank")
            if plugin.items:
                yield _gauge("items_planned", "Items of a map", plugin.items["items"])
                finished = {(status,): count for status, count in plugin.items["counts"].items()}
                yield _labelled(
                    "items", "Items of a map that have a result", finished.items(), "status"
                )
            if plugin.live is not None:
                yield from _run(plugin.live)


COLLECTOR = PrometheusCollector()
REGISTRY.register(COLLECTOR)


def _workers(plugin: DashboardPlugin) -> Iterator[MetricFamily]:
    yield _gauge("workers", "Workers of the scheduler", len(plugin.scheduler.workers))
    reported = plugin.readings().items()
    for quantity, (_, _, name, help_text) in USED.items():
        values = {(worker,): usage[quantity] for worker, usage in reported if quantity in usage}
        if values:
            yield _labelled(f"worker_{name}", f"{help_text} of a worker", values.items(), "worker")


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
    states = [((live.name, live.phase), 1)]
    yield _labelled("run_info", "The run that the dashboard shows", states, "run", "state")
    units = {unit: count for unit, count in live.counts.items() if count}
    yield _labelled("units", "Recorded work units", units.items(), "kind", "state")
    planned = {(kind,): live.planned[kind] for kind in KINDS if kind in live.planned}
    help_text = "Planned work units; for scores, those of scoring everything"
    yield _labelled("units_planned", help_text, planned.items(), "kind")
    failures = CounterMetricFamily(
        "daskmetrics_failures", "Failed units, by cause", labels=["kind", "cause"]
    )
    for (kind, status), count in units.items():
        if status != "ok":
            failures.add_metric([kind, status], count)
    yield failures
    yield _gauge("cells_scored", "Scores that are known", live.counts["score", "ok"])
    for name, help_text, attribute in GAUGES:
        yield _gauge(name, help_text, getattr(live, attribute))
    yield CounterMetricFamily(
        "daskmetrics_cost_spent_seconds", "Estimated seconds spent by the search", live.spent
    )
    eta = live.left(time.monotonic())
    if eta is None:
        eta = math.nan
    yield _gauge("eta_seconds", "Remaining seconds of the current phase", eta)


def _gauge(name: str, about: str, value: float) -> MetricFamily:
    return GaugeMetricFamily(f"daskmetrics_{name}", about, value=value)


def _labelled(
    name: str, about: str, values: Iterable[tuple[Sequence[str], float]], *labels: str
) -> MetricFamily:
    family = GaugeMetricFamily(f"daskmetrics_{name}", about, labels=list(labels))
    for names, value in values:
        family.add_metric(list(map(str, names)), value)
    return family
