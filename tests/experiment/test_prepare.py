from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Checkpoint
from daskmetrics.experiment import measure as measure
from daskmetrics.experiment import preparation as preparation
from daskmetrics.experiment import search as search
from daskmetrics.planning.preview import preview
from tests.checkpoints.weights import write


def test_arms_of_suites_that_are_not_trained_yet(prepared):
    experiment = prepared()
    assert [len(suite.arms()) for suite in experiment.suites] == [4 * 3, 3 * 1]
    assert experiment.baseline == Checkpoint("b", "step2")
    assert prepared(search={"baseline": "a@step4"}).baseline == Checkpoint("a", "step4")


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"protocol": {"pooling": "last"}},
        {"protocol": {"batch_tokens": 512}},
        {"corpus": {"prompts": 17}},
        {"metrics": ["curvature", "infonce"]},
        {"models": [{"name": "a", "train": {"width": 16, "depth": 2, "steps": 4, "seed": 1}}]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_change_of_the_numbers_changes_the_keys(prepared, changes):
    first, second = prepared(), prepared(**changes)
    checkpoint = Checkpoint("a", "step1")
    assert first.measure_keys[checkpoint] != second.measure_keys[checkpoint]
    assert first.key != second.key
    # old and new numbers never stand in one store
    assert first.template({}).key != second.template({}).key


@pytest.mark.parametrize(
    "changes", [{"cluster": {"workers": 9}}, {"name": "other"}], ids=["cluster", "name"]
)
def test_the_cluster_does_not_change_the_keys(prepared, changes):
    assert prepared().key == prepared(**changes).key


def test_the_budget_changes_the_search_and_not_its_measurements(prepared):
    first, second = prepared(), prepared(search={"budget": 0.9})
    assert first.key != second.key
    assert first.measure_keys == second.measure_keys


def test_runs_of_earlier_versions_keep_their_keys(prepared, monkeypatch):
    experiment, parts = prepared(), []
    monkeypatch.setattr(preparation, "content_key", lambda *given: parts.append(given) or "key")
    assert experiment.key == "key"
    _, _, search_settings = parts[-1]
    # a setting that is added or removed would change the keys of all runs, which then search again
    assert " ".join(sorted(search_settings)) == (
        "baseline budget cells confidence confirm device metrics objective policy reward spend"
        " wall_hours weights window within"
    )


def test_prompts_may_come_from_a_task(prepared):
    experiment = prepared(corpus={"source": "task:stdlib:order", "prompts": 20})
    assert len(experiment.prompts) == 20
    assert set(experiment.prompts) <= set(experiment.tasks[0].texts())


@pytest.fixture
def doubled(prepared, tmp_path):
    """A suite whose last step serves the weights of an earlier one."""
    for name, weights in (
        ("step1", np.ones(8)),
        ("step2", np.arange(8)),
        ("step4", np.ones(8)),
        ("main", np.ones(8)),
    ):
        write(tmp_path / "suite" / name, weights)
    return lambda **search: prepared(
        models=[{"name": "a", "source": str(tmp_path / "suite")}], search=search
    )


def test_equal_weights_are_measured_and_scored_once(doubled, tmp_path):
    experiment = doubled()
    assert [arm.revision for arm in experiment.arms] == ["step2"] * 3 + ["step4"] * 3
    assert [unit.name for unit in measure.units(experiment, RunFolder(tmp_path), [])] == [
        "a@step2",
        "a@step4",
    ]
    rows = dict(preview(experiment, RunFolder(tmp_path / "run")).rows)
    assert rows["identical"] == "a@step4 = step1 = main: equal weights, measured and scored once"


def test_a_baseline_may_have_any_of_the_names_of_equal_weights(doubled):
    assert doubled().baseline == doubled(baseline="a@step1").baseline == Checkpoint("a", "step4")
    with pytest.raises(ConfigError, match="Unknown baseline checkpoint 'a@step3'"):
        doubled(baseline="a@step3")


def test_metrics_that_were_recorded_under_another_name_of_equal_weights_are_known(
    doubled, prepared, tmp_path
):
    one, two = (
        prepared(
            models=[{"name": name, "source": str(tmp_path / "suite"), "revisions": [revision]}]
        )
        for name, revision in (("a", "step1"), ("b", "step4"))
    )
    (first, second) = (measure.units(each, RunFolder(tmp_path), [])[0] for each in (one, two))
    assert first.key != second.key and first.args[0].states_key == second.args[0].states_key
