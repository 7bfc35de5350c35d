from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks import Score, Task, catalogue, resolve
from daskmetrics.tasks import registry as registry
from daskmetrics.tasks._stdlib import TASKS
from daskmetrics.tasks.examples import KINDS, divide
from daskmetrics.tasks.mteb import MtebTask
from daskmetrics.tasks.task import roles_of


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


class Reviews(Task):
    """The least that a task of one's own has."""

    name = "mine:reviews"
    kind = "classification"
    main_score = "accuracy"
    description = "which stars?"
    key = "1"

    def texts(self):
        return ["a text", "another"]

    def evaluate(self, embeddings, seed):
        return Score(float(embeddings.mean()), 0.1, 2)


class Unkeyed(Task):
    name, kind, main_score, description = "mine", "sts", "spearman", "how similar?"
    texts, evaluate = Reviews.texts, Reviews.evaluate


@pytest.fixture
def own(monkeypatch):
    """A module with tasks of a user."""
    module = type(sys)("own_tasks")
    module.REVIEWS, module.CLASS, module.UNKEYED = Reviews(), Reviews, Unkeyed()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_task_of_ones_own_needs_few_members(own):
    [task] = resolve(["own_tasks:REVIEWS"])
    assert task is own.REVIEWS and task.is_local and task.benchmark_name == "mine:reviews"
    assert roles_of(task) == [None, None]
    with pytest.raises(ConfigError, match="'mine:reviews' cannot be divided"):
        divide([task], 0.3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "own_tasks:CLASS",
            "must be an object of a subclass of daskmetrics.tasks.Task, got <class",
        ),
        ("own_tasks:UNKEYED", "Task 'own_tasks:UNKEYED' has no key. Add what is missing"),
    ],
)
def test_what_is_no_task_of_ones_own_is_refused(own, name, message):
    with pytest.raises(ConfigError, match=message):
        resolve([name])


def test_the_error_without_the_benchmark_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    task = MtebTask("FinancialPhrasebankClassification")
    assert (task.name, task.kind) == ("mteb:FinancialPhrasebankClassification", "benchmark")
    with pytest.raises(ConfigError, match=r"pip install 'daskmetrics\[mteb\]'"):
        task.texts()
