from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks import catalogue, resolve
from daskmetrics.tasks import registry as registry
from daskmetrics.tasks._stdlib import TASKS
from daskmetrics.tasks.examples import KINDS
from daskmetrics.tasks.mteb import MtebTask


def test_all_expands_and_each_task_comes_once():
    assert [task.name for task in resolve(["stdlib:all", "stdlib:order"])] == list(TASKS)
    kinds = [task.kind for task in resolve(["stdlib:kinds"])]
    assert len(set(kinds)) == len(kinds)
    assert set(kinds) == KINDS.keys() - {"regression", "multilabel_classification"}


@pytest.mark.parametrize("name", ["stdlib:ordre", "mteb:", "preset:other", ""])
def test_an_unknown_name_lists_the_valid_ones(name):
    with pytest.raises(ConfigError, match=r"Unknown task .*stdlib:next_token"):
        resolve([name])


def test_an_installed_package_can_offer_tasks(monkeypatch):
    entry = EntryPoint("own:task", "tests_own_task:TASK", registry.GROUP)
    module = type(sys)("tests_own_task")
    module.TASK = TASKS["stdlib:order"]
    monkeypatch.setitem(sys.modules, "tests_own_task", module)
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: EntryPoints([entry]) if group == registry.GROUP else (),
    )
    assert "own:task" in catalogue()
    assert resolve(["own:task"])[0] is TASKS["stdlib:order"]


def test_the_error_without_the_benchmark_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    task = MtebTask("FinancialPhrasebankClassification")
    assert (task.name, task.kind) == ("mteb:FinancialPhrasebankClassification", "benchmark")
    with pytest.raises(ConfigError, match=r"pip install 'daskmetrics\[mteb\]'"):
        task.texts()
