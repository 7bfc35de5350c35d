"""What the driver sends to the pages, and what a monitoring system reads there."""

from __future__ import annotations

from types import SimpleNamespace

from benchmarks.dashboard import History
from daskmetrics.core.events import Record, to_json
from daskmetrics.core.results import Outcomes, Scored, result_as_json
from daskmetrics.dashboard._plugin import DashboardPlugin
from daskmetrics.dashboard._prometheus import PrometheusCollector
from daskmetrics.dashboard._publisher import _shown

NAMES = "units failures cells_scored best_score cost_spent_seconds eta_seconds workers"


def test_the_pages_are_not_sent_what_they_do_not_show():
    value = Scored(0.5, 0.1, outcomes=Outcomes("k", 1, bits="gA=="), detail={"f1": 0.4})
    record = Record("key", "tiny@step1/0:task", "score", "ok", value=value, seconds=3.0, worker="w")
    assert _shown(record)["value"] == result_as_json(Scored(0.5, 0.1))
    assert record.value == value


def test_units_scores_cost_workers_and_training_are_published():
    plugin = DashboardPlugin(SimpleNamespace(workers={}))
    plugin.receive([to_json(message) for message in History().opening()])
    plugin.training.receive({"rank": 0, "step": 1, "loss": 2.0}, 0.0)
    collector = PrometheusCollector()
    collector.plugins.append(plugin)
    families = {family.name: family for family in collector.collect()}
    assert families.keys() >= {f"daskmetrics_{name}" for name in NAMES.split()}
    (loss,) = families["daskmetrics_training_loss_nats"].samples
    assert loss.value == 2.0
