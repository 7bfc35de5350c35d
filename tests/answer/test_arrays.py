from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.answer import analysis
from daskmetrics.core.names import Arm
from daskmetrics.core.results import Status
from tests.report.conftest import scores_of


def test_metrics_have_names_units_and_all_models(finished):
    metrics = finished.metrics
    assert dict(metrics.sizes) == {"model": 2, "checkpoint": 5, "layer": 4}
    assert (
        metrics["curvature"].attrs["units"] == "radians"
        and metrics["curvature"].attrs["description"]
    )
    assert metrics["curvature_stderr"].attrs["units"] == "radians"
    assert metrics["model"].values.tolist() == ["tiny", "small"]


def test_checkpoints_are_in_order_of_training(finished):
    assert finished.metrics["checkpoint"].values.tolist() == [
        "step0",
        "step1",
        "step2",
        "step4",
        "step8",
    ]
    assert finished.metrics["step"].values.tolist() == [0, 1, 2, 4, 8]


def test_layers_that_a_model_lacks_are_nan_and_missing(finished):
    metrics = finished.metrics
    assert np.isnan(metrics["infonce"].sel(model="tiny", layer=3)).all()
    assert (metrics["infonce_status"].sel(model="tiny", layer=3) == Status.MISSING).all()
    assert metrics["infonce_status"].dtype == np.uint8
    assert np.isnan(metrics["infonce"].sel(model="tiny", checkpoint="step0")).all()  # it failed


@pytest.mark.parametrize("what", ["metrics", "scores"])
def test_the_store_and_the_journal_have_the_same_values(finished, what):
    arrays = getattr(finished, what)
    expected = _by_task(finished)
    if what == "metrics":
        metrics = analysis.metrics(finished).items()
        expected = {name: {arm: value for arm, (value, _) in row.items()} for name, row in metrics}
    for name, values in expected.items():
        assert int(np.isfinite(arrays[name]).sum()) == len(values)
        for arm, value in values.items():
            assert (
                arrays[name].sel(model=arm.model, checkpoint=arm.revision, layer=arm.layer) == value
            )


def _by_task(run) -> dict[str, dict[Arm, float]]:
    scores = scores_of(run)
    return {
        task: {arm: own[task] for arm, own in scores.items() if task in own} for task in run.tasks
    }


def test_a_run_without_tasks_has_no_scores(a_run):
    assert not a_run(tasks=()).scores.data_vars
