"""The Grafana dashboard uses metrics that are published."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

from benchmarks.dashboard import History
from daskmetrics.core.events import to_json
from daskmetrics.dashboard._plugin import DashboardPlugin
from daskmetrics.dashboard._prometheus import PrometheusCollector

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


def test_every_metric_of_the_grafana_dashboard_is_published():
    plugin = DashboardPlugin(SimpleNamespace(workers={}))
    plugin.receive([to_json(message) for message in History().opening()])
    plugin.measure_load()
    plugin.training.receive({"rank": 0, "step": 1, "loss": 2.0}, 0.0)
    collector = PrometheusCollector()
    collector.plugins.append(plugin)
    published = {
        name for family in collector.collect() for name in (family.name, f"{family.name}_total")
    }
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [
        name
        for p in panels
        for t in p["targets"]
        for name in re.findall(r"daskmetrics_\w+", t["expr"])
    ]
    assert asked and set(asked) <= published
    assert len({panel["id"] for panel in panels}) == len(panels)
