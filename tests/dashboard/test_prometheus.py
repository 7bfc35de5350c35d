"""What a monitoring system can read beside Dask's own numbers."""

from __future__ import annotations

from types import SimpleNamespace

from benchmarks.dashboard import History
from daskmetrics.core.events import to_json
from daskmetrics.dashboard._plugin import DashboardPlugin
from daskmetrics.dashboard._prometheus import PrometheusCollector


def test_units_scores_cost_workers_and_training_are_published():
    plugin = DashboardPlugin(SimpleNamespace(workers={}))
    plugin.receive([to_json(message) for message in History().opening()])
    plugin.training.receive({"rank": 0, "step": 1, "loss": 2.0}, 0.0)
    collector = PrometheusCollector()
    collector.plugins.append(plugin)
    families = {family.name.removeprefix("daskmetrics_"): family for family in collector.collect()}
    assert families.keys() >= {
        "units",
        "failures",
        "cells_scored",
        "best_score",
        "cost_spent_seconds",
        "eta_seconds",
        "workers",
        "training_loss_nats",
    }
    assert [sample.value for sample in families["training_loss_nats"].samples] == [2.0]
