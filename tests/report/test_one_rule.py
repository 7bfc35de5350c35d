"""One rule decides which arm to use, and every view of a run names that arm."""

from __future__ import annotations

import json

import pytest

from daskmetrics.core.names import Arm
from daskmetrics.report import Run, best_text, summary_text
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._compare import answers, compare_document
from daskmetrics.report._documents import best_document, near_best_document, status_document, summary
from daskmetrics.report._explain import near_best_text
from daskmetrics.report._format import apart, place
from daskmetrics.report._html import page
from daskmetrics.report._overview import RunCollection

STORIES = {
    "clear": {"outcomes": True},
    "tie": {"flat": True, "outcomes": True},
    "everything": {"outcomes": True, "budget": 1.0},
    "little": {"outcomes": True, "budget": 0.12},
    "another reward": {"outcomes": True, "reward": "running"},
    "failures": {"failing": ("small@step8/2:stdlib:order", "small@step8/3:stdlib:package")},
}


@pytest.mark.parametrize("story", STORIES)
def test_all_views_name_the_same_arm(a_run, story):
    run: Run = a_run(**STORIES[story])
    arm, verdict = run.result.best_arm, run.verdict
    assert arm in run.recorded
    assert verdict.overall.arm == arm == run.best().arm
    named = place(arm, verdict.arms)
    assert named in " ".join([verdict.answer[0].lower() + verdict.answer[1:]])
    for text in (summary_text(run), best_text(run), near_best_text(run, 0.01), page(run, []), run.best()._repr_html_()):
        assert str(arm) in text
    document = json.loads(json.dumps(best_document(run), default=vars_or_text))
    assert document["best"]["arm"] == document["verdict"]["arm"] == str(arm)
    assert summary(run)["verdict"]["arm"] == near_best_document(run, 0.01)["best"]["arm"].__str__() == str(arm)
    assert str(status_document(run)["best"]) == str(arm)
    assert answers({"run": run, "other": run}).rows[6][1:] == (str(arm), str(arm))
    assert [str(each) for each in compare_document(run, run)["best_arms"]["arms"]] == [str(arm)] * 2
    (row,) = [row for row in RunCollection(run.folder.path.parent).rows() if row.name == run.folder.path.name]
    assert row.arm.startswith(str(arm))
    board = run.leaderboard().arms
    if run.config["search"]["reward"] == "mean" and board[0].rank:
        assert board[0].arm == arm
        assert analysis.mean_scores(run)[arm] == max(analysis.mean_scores(run).values())


@pytest.mark.parametrize("story", STORIES)
def test_the_default_is_of_the_answers_own_model_and_its_relation_is_said_in_the_same_words(a_run, story):
    run: Run = a_run(**STORIES[story])
    best, verdict = run.best(), run.verdict
    last = {suite.model: suite for suite in analysis.suites(run)}[best.arm.model]
    assert best.default == Arm(last.model, last.revisions[-1], last.layers[-1])
    if best.arm == best.default or best.gain is None:
        return
    assert best.relation == ("within the error" if best.default in verdict.tied else best.relation)
    assert best.relation == ("beyond the error" if best.default in verdict.overall.worse else best.relation)
    other = {"within the error": "beyond the error", "beyond the error": "within the error"}[best.relation]
    for text in (summary_text(run), best_text(run).replace("\n# ", " ")):
        flat = " ".join(text.split())
        assert f"exceeds the last layer of its model by {apart(best.gain)}, {best.relation}." in flat
        assert f"difference {apart(best.gain)}, {best.relation}." in flat
        assert f"{apart(best.gain)}, {other}" not in flat


def vars_or_text(value):
    return vars(value) if hasattr(value, "__dict__") and not isinstance(value, Arm) else str(value)
