from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.dashboard import COST, History
from daskmetrics.bandit import Pick
from daskmetrics.dashboard import drawing
from daskmetrics.dashboard._pages import Page, current_quantity
from daskmetrics.dashboard._publisher import _shown
from daskmetrics.dashboard._state import (
    LATEST,
    MEAN,
    POSTERIOR_MEAN,
    POSTERIOR_SD,
    SCORED,
    LiveState,
)
from daskmetrics.domain.events import (
    HistorySent,
    SearchStarted,
    UnitAsked,
    UnitsPlanned,
    UnitsRetried,
)
from daskmetrics.domain.names import Arm, Cell, Suite
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Measured, Outcomes, Scored, Trained, result_as_json

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


def done(kind, name, value):
    return Record(f"{kind}-{name}", name, kind, "ok", value)


def scored(arm, task, score):
    return done("score", f"{arm}:{task}", Scored(score, 0.0))


def measured(name, *values, names=("curvature",)):
    layers = tuple(range(len(values)))
    ones = [[1] * len(names)] * len(layers)
    return done("measure", name, Measured(layers, names, values, stderr=ones, status=ones))


def ask(index, arm, task, search="s"):
    pick = Pick(index, Cell(Arm.parse(arm), task), "search", COST, {"because": "rival"})
    note = {"search": search, "pick": pick.as_dict()}
    return UnitAsked(f"score-{arm}:{task}", f"{arm}:{task}", note)


def test_the_pages_are_not_sent_what_they_do_not_show():
    value = Scored(0.5, 0.1, outcomes=Outcomes("k", 1, bits="gA=="), detail={"f1": 0.4})
    record = Record("key", "tiny@step1/0:task", "score", "ok", value)
    assert _shown(record)["value"] == result_as_json(Scored(0.5, 0.1))
    assert record.value == value


def test_metrics_are_at_their_layer_and_checkpoint(live, history):
    live.receive([measured("a@step1", (None,), (0.5,))], 1.0)
    of_layers = [live.values["curvature"][live.index[f"a@step1/{layer}"]] for layer in (0, 1)]
    np.testing.assert_array_equal(of_layers, [np.nan, 0.5])
    live.receive(history.measured(), 1.0)
    np.testing.assert_allclose(live.values["curvature"], 2 * history.quality(), rtol=1e-6)


ARM = "b@step2/1"


def test_an_arm_has_a_mean_when_all_tasks_are_scored(live):
    at = live.index[ARM]
    live.receive([ask(0, ARM, "s"), scored(ARM, "s", 0.25)], 1.0)
    assert np.isnan(live.values[MEAN][at]) and live.values[SCORED][at] == 1 and np.isnan(live.best)
    for now in (2.0, 3.0):  # what is received twice counts once
        live.receive([ask(1, ARM, "t"), scored(ARM, "t", 0.75)], now)
    assert live.values[MEAN][at] == live.best == 0.5
    assert live.curve[-1] == (2 * COST, 0.5) and live.paid == {ARM}
    assert live.counts["score", "ok"] == 2


@pytest.mark.parametrize(
    ("weights", "scores", "best"),
    [({"s": 3.0, "t": 1.0}, {"s": 0.25, "t": 0.75}, 0.375), ({"t": 2.0}, {"t": 0.75}, 0.75)],
)
def test_the_best_mean_is_over_the_tasks_of_the_objective(history, weights, scores, best):
    plan = history.opening()[0]
    tasks = tuple(replace(task, weight=weights.get(task.name, 0.0)) for task in plan.tasks)
    live = LiveState(replace(plan, tasks=tasks))
    live.receive([scored(ARM, task, score) for task, score in scores.items()], 1.0)
    assert live.values[MEAN][live.index[ARM]] == live.best == best


def test_failures_are_grouped_and_can_be_reset(live):
    for name in ("a@step0", "a@step1"):
        reason = f"no '{name}' in /a/b"
        live.receive([Record(f"measure-{name}", name, "measure", "error", reason=reason)], 1.0)
    (group,) = live.failures
    assert (group.kind, group.count, group.example) == ("measure", 2, "a@step0")
    live.receive([UnitsRetried(["measure-a@step0"])], 2.0)
    assert live.failures[0].count == 1
    live.receive([measured("a@step1")], 3.0)
    assert not live.failures
    assert (live.counts["measure", "ok"], live.counts["measure", "error"]) == (1, 0)


def test_the_latest_decisions_are_listed_once_with_scores(live):
    live.receive([ask(0, ARM, "s"), ask(1, ARM, "t"), ask(0, ARM, "s")], 1.0)  # interrupted
    live.receive([scored(ARM, "s", 0.3)], 1.0)
    assert list(live.latest) == [1, 2] and live.latest[1].score == 0.3 and live.spent == COST
    assert {pick.why for pick in live.latest.values()} == {"rival"}
    live.receive([ask(0, "a@step1/1", "s", search="another")], 2.0)
    assert [pick.name for pick in live.latest.values()] == ["a@step1/1:s"] and live.spent == 0
    live.receive([ask(i, "a@step1/1", "s", search="another") for i in range(1, 3 * LATEST)], 3.0)
    assert len(live.latest) == LATEST and max(live.latest) == 3 * LATEST


def test_posteriors_are_shown_as_they_are_received(live, history):
    message = history.posterior(0)
    live.receive([message], 1.0)
    shown = [live.values[name] for name in (POSTERIOR_MEAN, POSTERIOR_SD)]
    np.testing.assert_array_equal(np.ravel(shown), np.frombuffer(message.values, np.float32))
    assert live.leader == message.leader
    # of one cost the latest counts
    live.receive([replace(message, loss=0.25)], 2.0)
    assert live.losses == [(live.spent, 0.25)] and live.loss == 0.25


def test_the_phases_of_a_run(live):
    assert live.phase == "measuring"
    steps = {"a@step0": 0, "a@step1": 1, "a@step8": 7}
    live.receive([UnitsPlanned({"train": 3, "measure": 5}, steps), HistorySent()], 10.0)
    assert live.left(14.0) is None  # without any progress
    trained = Trained(loss=1.0, tokens=1.0, seconds=1.0)
    live.receive([done("train", "a@step0", trained), done("train", "a@step1", trained)], 14.0)
    assert live.progress == (3 * 1 / 8, 8)  # not two of three checkpoints
    assert live.left(14.0) == pytest.approx(4 * (8 - 3 / 8) / (3 / 8))
    live.receive([SearchStarted(10 * COST, exhaustive=100.0, spent=0.0)], 20.0)
    live.receive([ask(0, ARM, "s"), scored(ARM, "s", 0.3)], 25.0)
    assert live.phase == "searching" and live.left(25.0) == pytest.approx(45.0)


def test_what_is_being_measured_has_no_record_yet(live):
    live.receive([UnitAsked(f"measure-{name}", name, {}) for name in ("a@step0", "a@step1")], 1.0)
    live.receive([measured("a@step0")], 2.0)
    assert list(live.open.values()) == ["a@step1"] and live.recent == "a@step0"
    # a run that grows asks for all units again
    live.receive([UnitAsked("measure-a@step0", "a@step0", {})], 3.0)
    assert list(live.open.values()) == ["a@step1"]


def test_arms_and_tasks_that_are_not_planned_are_ignored(live):
    assert live.planned["measure"] == 5
    assert live.planned["score"] == len(live.arms) * len(TASKS)
    live.receive([scored("other@step1/0", "s", 1.0), scored("a@step1/0", "u", 1.0)], 1.0)
    assert np.isnan(live.best)


def test_a_run_without_metrics_shows_its_scores():
    opening = History(SUITES, ("s",)).opening()[0]
    live = LiveState(replace(opening, metrics=()))
    live.receive([UnitsPlanned({"measure": 0}), measured("a@step0", (), (), names=())], 0.0)
    assert set(live.names) == {"Search", "Scores"} and current_quantity(live) == SCORED


def test_the_colours_of_a_map_span_the_finite_values(live):
    live.values["s"][:3] = 1.0, 3.0, np.inf  # of a metric that 32 bits do not hold
    page = Page(None)
    page._begin(live)
    page._show_map(live, "s")
    assert (page.mapper.low, page.mapper.high) == (1.0, 3.0)


def test_the_page_has_the_names_of_layers():
    suites = (Suite("own", ("step0", "step1"), (0, 1), 1, layer_names=("stem", "head")),)
    history = History(suites, TASKS)
    live = LiveState(history.opening()[0])
    asked = [message for message in history.searched() if isinstance(message, UnitAsked)]
    live.receive([*asked, history.posterior(1)], 0.0)
    decisions = {f"own@step{step}/{layer}" for step in (0, 1) for layer in ("stem", "head")}
    assert live.paid == decisions and live.leader in decisions
    cells = {f"{arm}:{task}" for arm in decisions for task in TASKS}
    assert {decision.name for decision in live.latest.values()} == cells
    assert {*live.open.values()} == cells
    source = drawing.arms_source(live.arms, live.suites)
    assert {*source.data["name"]} == decisions
    assert drawing.marked(source, {"best": [live.leader]})["name"] == [live.leader]


@pytest.mark.parametrize("names", [("stem", "head"), ()])
def test_the_lines_of_a_page_have_the_names_of_layers(names):
    suite = Suite("own", ("main",), (0, 1), 1, layer_names=names)
    live = LiveState(History((suite,), TASKS).opening()[0])
    scores = [scored(arm, "s", 0.5) for arm in live.arms]
    live.receive([SearchStarted(1.0, 1.0, spent=0.0), *scores], 0.0)
    page = Page(None)
    page._begin(live)
    page._show()
    (axis,) = page.lines.xaxis
    assert page.lines.visible and axis.major_label_overrides == dict(enumerate(names))
    assert axis.axis_label == ("layer" if names else drawing.LAYER)
    points = page.lines.select_one({"name": "points"}).data
    assert list(points["at"]) == list(names or (0, 1))
