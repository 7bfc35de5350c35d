"""A run on a user's own labelled texts that adds metrics later."""

from __future__ import annotations

from daskmetrics import experiment
from daskmetrics.core.files import RunFolder
from daskmetrics.experiment import Display
from daskmetrics.experiment import maintenance as maintain
from daskmetrics.planning.preview import preview
from daskmetrics.report import Run, write
from daskmetrics.report.explanation import explain_tables
from daskmetrics.report.terminal import status_text
from tests.experiment.test_direct import reviews
from tests.report.conftest import text_of

RECIPE = {"width": 16, "depth": 2, "steps": 2, "context": 32, "vocabulary": 300}


def test_a_run_without_metrics_may_add_them_later(tmp_path, prepared, client):
    data = reviews(tmp_path / "reviews.csv", 60)
    changes = {
        "models": [{"name": "a", "train": RECIPE}],
        "tasks": [f"file:{data}(text=body, label=stars, probe=ridge)"],
        "search": {"budget": 1.0},
    }
    folder = RunFolder(tmp_path / "runs" / "own")
    bare = prepared(**changes, metrics=[], corpus={"source": str(tmp_path / "no such file")})
    assert bare.prompts == ()
    rows = dict(preview(bare, folder).rows)
    # those of the training
    assert rows["metrics"] == "none" and rows["measuring"] == "3 units, 3 to do"
    experiment.run(bare, folder, Display(), client)
    run = Run(folder.path)
    assert not any(record.value.size for record in run.records if record.kind == "measure")
    assert len(run.recorded) == len(bare.plan.arms) and run.answer.confirmed
    assert {record.value.n for record in run.records if record.kind == "score"} == {60}
    assert not run.metrics and len(run.scores) == 3
    assert ": any of " in repr(run) and "none: the run has no metrics" in status_text(run)
    assert "no metrics" in write(run).read_text(encoding="utf-8")
    assert "metric" not in text_of(*explain_tables(run, str(run.best().arm)))
    assert all(size.weights for size in run.trade_offs().sizes.values())
    whole = run.trade_offs().arms[0].cost.whole
    assert maintain.verify(folder).damages == ()

    measured = prepared(**changes, metrics=["curvature"])
    ran = experiment.run(measured, folder, Display(), client)
    after = Run(folder.path)
    assert ran == len(measured.plan.checkpoints)  # and no score
    assert after.recorded == run.recorded
    assert list(after.metrics)[:1] == ["curvature"] and after.metrics["curvature"].notnull().any()
    assert after.trade_offs().arms[0].cost.whole == whole
    assert maintain.verify(folder).damages == ()
