"""One rule decides which arm to use, and every view of a run names that arm."""

from __future__ import annotations

import json

import pytest

from daskmetrics.answer import analysis
from daskmetrics.core.names import Arm
from daskmetrics.core.serialization import as_json
from daskmetrics.report import Run, best_text, status_text, within_table, write
from daskmetrics.report._format import apart, candidate
from daskmetrics.report._sections import answers
from daskmetrics.report.page import page
from daskmetrics.report.server import RunCollection
from tests.report.conftest import invoke, mean_scores, text_of

STORIES = {
    "clear": {"outcomes": True},
    "tie": {"flat": True, "outcomes": True},
    "everything": {"outcomes": True, "budget": 1.0},
    "little": {"outcomes": True, "budget": 0.12},
    "another reward": {"outcomes": True, "reward": "robust"},
    "failures": {"failing": ("small@step8/2:stdlib:order", "small@step8/3:stdlib:package")},
}


@pytest.mark.parametrize("story", STORIES)
def test_all_views_name_the_same_arm_and_compare_it_in_the_same_words(a_run, story, monkeypatch):
    # no PNG files, which say nothing here and take most of the time
    monkeypatch.setattr("daskmetrics.report.page.find_spec", lambda name: None)
    run: Run = a_run(**STORIES[story])
    arm, folder = run.result.best_arm, run.folder.path
    assert arm in run.recorded
    assert run.verdict.overall.arm == arm == run.best().arm == run.answer.best.arm
    written = write(run)
    views = [best_text(run, in_short=True), best_text(run), run.best()._repr_html_()]
    views.append(written.read_text(encoding="utf-8"))
    check_the_default_and_its_relation(run, views)
    views += [status_text(run), text_of(within_table(run, 0.01)), run._repr_html_()]
    for text in (*views, repr(run.best()), repr(run)):
        assert candidate(arm) in text
    document = json.loads(invoke("best", folder, "--json").stdout)
    assert document == json.loads(as_json(run.answer))
    assert document["best"]["arm"] == document["verdict"]["overall"]["arm"] == str(arm)
    assert json.loads((written.parent / "summary.json").read_text())["answer"] == document
    state = json.loads(invoke("status", folder, "--json").stdout)
    assert state["best"] == str(arm)
    (row,) = (row for row in answers({"run": run, "other": run}).rows if row[0] == "best")
    assert all(text.startswith(candidate(arm)) for text in row[1:])
    (row,) = (row for row in RunCollection(folder.parent).rows() if row.name == folder.name)
    assert row.arm.startswith(str(arm))
    board = run.leaderboard().arms
    if run.config["search"]["reward"] == "mean" and board[0].rank:
        assert board[0].arm == arm
        assert mean_scores(run)[arm] == max(mean_scores(run).values())


def check_the_default_and_its_relation(run, views):
    """The default is of the answer's own model, and the relation is said in the same words."""
    answer, overall = run.answer, run.verdict.overall
    last = {suite.model: suite for suite in analysis.suites(run)}[answer.best.arm.model]
    assert answer.default.arm == Arm(last.model, last.revisions[-1], last.layers[-1])
    if answer.best.arm == answer.default.arm or answer.difference is None:
        return
    assert answer.relation in ("within the error", "beyond the error")
    assert (answer.relation == "within the error") or answer.default.arm not in overall.tied
    assert (answer.relation == "beyond the error") or answer.default.arm not in overall.worse
    gain = f"{apart(answer.difference)} over its last layer, {answer.relation}"
    for text in views:
        assert gain in " ".join(text.split())


def test_a_model_without_a_score_is_named(a_run, monkeypatch):
    run = a_run()
    only = {arm: scores for arm, scores in run.recorded.items() if arm.model != "tiny"}
    monkeypatch.setattr(run, "recorded", only)
    for text in (best_text(run, in_short=True), best_text(run)):
        assert "no layer of tiny has a score" in " ".join(text.split())
    assert "no layer of tiny has a score" in page(run, []) and "tiny" in run._repr_html_()
