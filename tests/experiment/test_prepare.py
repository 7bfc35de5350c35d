from __future__ import annotations

import sys

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.names import Checkpoint
from daskmetrics.experiment import measure as measure
from daskmetrics.experiment import search as search
from daskmetrics.experiment.preparation import task_key
from daskmetrics.experiment.problem import build_problem
from daskmetrics.planning.preview import preview
from tests.checkpoints.weights import write

TRAIN = {"width": 16, "depth": 2, "steps": 4, "seed": 1}


@pytest.mark.parametrize(
    ("changes", "other_run", "other_numbers"),
    [
        ({"seed": 1}, True, True),
        ({"protocol": {"pooling": "last"}}, True, True),
        ({"protocol": {"batch_tokens": 512}}, True, True),
        ({"corpus": {"prompts": 17}}, True, True),
        ({"metrics": ["curvature", "infonce"]}, True, True),
        ({"models": [{"name": "a", "train": TRAIN}]}, True, True),
        ({"search": {"budget": 0.9}}, True, False),
        ({"cluster": {"workers": 9}}, False, False),
        ({"name": "other"}, False, False),
    ],
    ids=str,
)
def test_keys_change_with_what_decides_the_numbers(prepared, changes, other_run, other_numbers):
    first, second = prepared(), prepared(**changes)
    checkpoint = Checkpoint("a", "step1")
    assert (first.plan.key != second.plan.key) == other_run
    assert (
        first.plan.measure_key(checkpoint) != second.plan.measure_key(checkpoint)
    ) == other_numbers
    # old and new numbers never stand in one store
    assert (first.plan.store_key != second.plan.store_key) == other_numbers


def test_prompts_may_come_from_a_task(prepared):
    experiment = prepared(corpus={"source": "task:stdlib:order", "prompts": 20})
    assert len(experiment.prompts) == 20
    assert set(experiment.prompts) <= set(experiment.tasks[0].texts())


@pytest.fixture
def doubled(prepared, tmp_path):
    """Prepares a suite whose last step serves the weights of an earlier one."""
    for name, values in (("step1", 1), ("step2", 2), ("step4", 1), ("main", 1)):
        write(tmp_path / "suite" / name, values)

    def prepare(model="a", revisions="all", **search):
        source = {"source": str(tmp_path / "suite"), "revisions": revisions}
        return prepared(models=[{"name": model, **source}], search=search)

    return prepare


def test_equal_weights_are_measured_and_scored_once(doubled, tmp_path):
    experiment = doubled()
    assert [arm.revision for arm in experiment.plan.arms] == ["step2"] * 3 + ["step4"] * 3
    units = measure.units(experiment, RunFolder(tmp_path), [])
    assert [unit.name for unit in units] == ["a@step2", "a@step4"]
    rows = dict(preview(experiment, RunFolder(tmp_path / "run")).rows)
    assert "a@step4 = step1 = main" in rows["identical"]


def test_a_baseline_may_have_any_of_the_names_of_equal_weights(doubled):
    compared = doubled(baseline="a@step1")
    assert compared.baseline == build_problem(compared).default == Checkpoint("a", "step4")
    with pytest.raises(ConfigError, match="Unknown baseline checkpoint 'a@step3'"):
        doubled(baseline="a@step3")


def test_listed_revisions_are_in_the_order_of_training(doubled):
    experiment = doubled(revisions=["step2", "step1"])
    assert [arm.revision for arm in experiment.plan.arms] == ["step1"] * 3 + ["step2"] * 3
    problem = build_problem(experiment)
    assert {problem.arms[arm].revision for arm in problem.default_arms} == {"step2"}


def test_metrics_of_equal_weights_are_known_by_both_names(doubled, tmp_path):
    first, second = (
        measure.units(doubled(model, [revision]), RunFolder(tmp_path), [])[0]
        for model, revision in (("a", "step1"), ("b", "step4"))
    )
    assert first.key != second.key and first.args[0].states_key == second.args[0].states_key


def test_keys_follow_from_the_code_of_own_policies_and_tasks(prepared, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    keys = []
    for number in (1, 2, 2):
        text = f"def ask(state): return {number}\nclass Reviews:\n    key = 'own'\n"
        (tmp_path / "own_search.py").write_text(text)
        sys.modules.pop("own_search", None)
        run = prepared(search={"policy": "own_search:ask"}).plan.key
        keys.append((run, task_key(sys.modules["own_search"].Reviews())))
    first, second, again = keys
    assert second == again and not {*first} & {*second}
