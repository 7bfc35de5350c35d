from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from benchmarks.dashboard import COST, History
from daskmetrics.core.events import (
    Axis,
    HistorySent,
    ObjectiveSet,
    Record,
    RunStarted,
    SearchStarted,
    UnitAsked,
    UnitsPlanned,
    UnitsRetried,
)
from daskmetrics.core.names import Suite
from daskmetrics.core.results import Measured, Scored, Trained
from daskmetrics.dashboard._pages import current_quantity
from daskmetrics.dashboard._state import (
    LATEST,
    MEAN,
    POSTERIOR_MEAN,
    POSTERIOR_SD,
    SCORED,
    LiveState,
)
from tests.events import joined

SUITES = (
    Suite("a", ("step0", "step1"), (0, 1), 1),
    Suite("b", ("step0", "step1", "step2"), (0, 1, 2), 2),
)
TASKS = ("s", "t")


@pytest.fixture
def history():
    return History(SUITES, TASKS)


@pytest.fixture
def live(history):
    opening = history.opening()
    live = LiveState(opening[0])
    live.receive(opening, 0.0)
    return live


RESULTS = {
    "train": lambda value: Trained(tokens=1.0, seconds=1.0, **value),
    "score": lambda value: Scored(stderr=0.0, **value),
    "look": lambda value: Scored(stderr=0.0, **value),
    "measure": lambda value: Measured(stderr=(), status=(), **value),
}


def record(kind, name, value=None, key=None):
    status = (
        {"status": "ok", "reason": None}
        if value
        else {"status": "error", "reason": f"no '{name}' in /a/b"}
    )
    return Record(
        key or f"{kind}-{name}", name, kind, value=value and RESULTS[kind](value), **status
    )


def ask(index, arm, task, search="s"):
    model, rest = arm.split("@")
    revision, layer = rest.split("/")
    cell = {"arm": {"model": model, "revision": revision, "layer": int(layer)}, "task": task}
    pick = {"index": index, "cell": cell, "stage": "search", "cost": COST}
    return UnitAsked(f"score-{arm}:{task}", f"{arm}:{task}", {"search": search, "pick": pick})


def test_metrics_are_at_their_layer_and_checkpoint(live, history):
    live.receive(history.measured(), 1.0)
    assert live.arms == history.arms
    np.testing.assert_allclose(live.values["curvature"], 2 * history.quality(), rtol=1e-6)


def test_an_undefined_metric_is_nan(live):
    value = {"layers": [0, 1], "names": ["curvature"], "values": [[None], [0.5]]}
    live.receive([record("measure", "a@step1", value)], 1.0)
    assert np.isnan(live.values["curvature"][live.index["a@step1/0"]])
    assert live.values["curvature"][live.index["a@step1/1"]] == 0.5


def test_an_arm_has_a_mean_when_all_tasks_are_scored(live):
    at = live.index["b@step2/1"]
    live.receive([ask(0, "b@step2/1", "s"), record("score", "b@step2/1:s", {"score": 0.25})], 1.0)
    assert np.isnan(live.values[MEAN][at]) and live.values[SCORED][at] == 1 and np.isnan(live.best)
    live.receive([ask(1, "b@step2/1", "t"), record("score", "b@step2/1:t", {"score": 0.75})], 2.0)
    assert live.values[MEAN][at] == live.best == 0.5
    assert live.curve[-1] == (2 * COST, 0.5) and live.paid == {"b@step2/1"}


def test_the_best_mean_is_weighted_as_the_objective_is(live):
    at = live.index["b@step2/1"]
    live.receive([ObjectiveSet({"s": 3.0, "t": 1.0})], 1.0)
    scores = [
        record("score", f"b@step2/1:{task}", {"score": score})
        for task, score in (("s", 0.25), ("t", 0.75))
    ]
    live.receive(scores, 1.0)
    assert live.values[MEAN][at] == live.best == 0.375


def test_an_arm_needs_no_score_on_a_task_outside_of_the_objective(live):
    live.receive([ObjectiveSet({"t": 2.0}), record("score", "b@step2/1:t", {"score": 0.75})], 1.0)
    assert live.best == 0.75


def test_a_score_that_is_received_twice_counts_once(live):
    for _ in range(2):
        live.receive(
            [
                record("score", "b@step2/1:s", {"score": 0.25}),
                record("score", "b@step2/1:t", {"score": 0.75}),
            ],
            1.0,
        )
    assert live.best == 0.5 and live.counts["score", "ok"] == 2


def test_failures_are_grouped_and_can_be_reset(live):
    live.receive([record("measure", "a@step0"), record("measure", "a@step1")], 1.0)
    (group,) = live.failures
    assert (group.kind, group.count, group.example) == ("measure", 2, "a@step0")
    live.receive([UnitsRetried(["measure-a@step0"])], 2.0)
    assert live.failures[0].count == 1
    live.receive([record("measure", "a@step1", {"layers": [], "names": [], "values": []})], 3.0)
    assert (
        not live.failures
        and live.counts["measure", "ok"] == 1
        and live.counts["measure", "error"] == 0
    )


def test_the_decisions_of_the_latest_search_are_listed_with_their_scores(live):
    live.receive([ask(0, "a@step1/0", "s"), record("score", "a@step1/0:s", {"score": 0.3})], 1.0)
    assert live.latest[1].score == 0.3
    live.receive([ask(0, "a@step1/1", "s", search="another")], 2.0)
    assert [one.name for one in live.latest.values()] == ["a@step1/1:s"] and live.spent == 0
    live.receive([ask(i, "a@step1/1", "s", search="another") for i in range(1, 3 * LATEST)], 3.0)
    assert len(live.latest) == LATEST and max(live.latest) == 3 * LATEST


def test_a_decision_that_is_asked_for_again_after_an_interruption_counts_once(live):
    live.receive(
        [ask(0, "a@step1/0", "s"), ask(1, "a@step1/0", "t"), ask(0, "a@step1/0", "s")], 1.0
    )
    assert list(live.latest) == [1, 2]
    live.receive([record("score", "a@step1/0:s", {"score": 0.3})], 2.0)
    assert live.spent == COST


def test_posteriors_are_shown_as_they_are_received(live, history):
    message = history.posterior(0)
    live.receive([message], 1.0)
    mean, sd = np.frombuffer(message.values, np.float32).reshape(2, -1)
    np.testing.assert_array_equal(live.values[POSTERIOR_MEAN], mean)
    np.testing.assert_array_equal(live.values[POSTERIOR_SD], sd)
    assert live.leader == message.leader


def test_the_phases_of_a_run(live, history):
    assert live.phase == "measuring"
    live.receive([UnitsPlanned({"train": 3, "measure": 5}), HistorySent()], 10.0)
    assert live.left(14.0) is None  # without any progress
    live.receive(
        [record("train", "a@step0", {"loss": 1.0}), record("train", "a@step1", {"loss": 1.0})], 14.0
    )
    assert live.left(14.0) == pytest.approx(6 * 4 / 2) and live.progress == (2, 8)
    live.receive([SearchStarted(10 * COST, exhaustive=100.0, spent=0.0)], 20.0)
    live.receive([ask(0, "a@step1/0", "s"), record("score", "a@step1/0:s", {"score": 0.3})], 25.0)
    assert live.phase == "searching" and live.left(25.0) == pytest.approx(45.0)


def test_what_is_being_measured_is_what_was_asked_for_and_has_no_record(live):
    live.receive([UnitAsked(f"measure-{name}", name, {}) for name in ("a@step0", "a@step1")], 1.0)
    live.receive([record("measure", "a@step0", {"layers": [], "names": [], "values": []})], 2.0)
    assert list(live.open.values()) == ["a@step1"] and live.recent == "a@step0"
    live.receive([record("look", "a@step0/0:s@1/16", {"score": 0.3})], 2.0)
    again = {"measure-a@step0": "a@step0", "look-a@step0/0:s@1/16": "a@step0/0:s@1/16"}
    live.receive([UnitAsked(key, name, {}) for key, name in again.items()], 3.0)
    assert list(live.open.values()) == ["a@step1"], "a run that grows asks for all units again"


def test_a_run_that_grows_has_as_many_checkpoints_as_its_latest_round(live, history):
    start = next(message for message in history.opening() if isinstance(message, RunStarted))
    live.receive([replace(start, checkpoints=2 * start.checkpoints)], 1.0)
    assert live.planned["measure"] == 2 * start.checkpoints


def test_unknown_arms_and_messages_are_ignored(live):
    before = live.version
    live.receive([joined("w")], 1.0)
    assert live.version == before
    live.receive(
        [
            record("score", "other@step1/0:s", {"score": 1.0}),
            record("score", "a@step1/0:u", {"score": 1.0}),
        ],
        1.0,
    )
    assert np.isnan(live.best)


def test_the_whole_grid_of_the_paper_is_received():
    history = History()
    live = LiveState(history.opening()[0])
    live.receive(
        [*history.opening(), *history.measured(), *islice(history.searched(), 20_000)], 1.0
    )
    failed = sum(group.count for group in live.failures if group.kind == "score")
    assert (
        live.counts["score", "ok"] + failed == live.done("score") > 9000 and len(live.curve) < 500
    )
    assert np.nansum(live.values[SCORED]) == live.counts["score", "ok"]


def test_a_run_without_metrics_shows_its_scores():
    opening = History(SUITES, ("s",)).opening()[0]
    template = replace(opening.template, metrics=Axis((), (), ()))
    live = LiveState(replace(opening, template=template))
    value = {"layers": [0, 1], "names": [], "values": [[], []]}
    live.receive([UnitsPlanned({"measure": 0}), record("measure", "a@step0", value)], 0.0)
    assert set(live.names) == {"Search", "Scores"}
    assert current_quantity(live) == SCORED and np.isnan(live.values[SCORED]).all()
