"""Each line of an answer says its fact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daskmetrics.answer.answer import CheaperArm
from daskmetrics.answer.worth import Finalist, FreshItems
from daskmetrics.domain.failures import Failure
from daskmetrics.domain.outcomes import Difference
from daskmetrics.report import lines
from daskmetrics.report._format import candidate

GAP = Difference(0.02, 0.01, paired=True)


@pytest.fixture
def answer(finished):
    return finished.answer


def with_overall(answer, **changes):
    overall = replace(answer.verdict.overall, **changes)
    return replace(answer, verdict=replace(answer.verdict, overall=overall))


@pytest.mark.parametrize(
    ("best", "holds", "words"),
    [(0, True, "it is the best"), (1, True, "within the error"), (1, False, "beyond the error")],
)
def test_fresh_items_confirm_the_choice_or_do_not(answer, best, holds, words):
    arms = list(answer.verdict.overall.tied or answer.verdict.overall.worse)[:1]
    arms = [answer.best.arm, *arms]
    finalists = tuple(Finalist(arm, None, (0.5, 0.1), None) for arm in arms)
    items = FreshItems(0.3, finalists, (), arms[best], holds)
    assert words in lines.fresh(replace(answer, fresh=items))
    alone = replace(items, finalists=finalists[:1])
    assert lines.fresh(replace(answer, fresh=alone)).startswith("no other candidate")
    assert not lines.fresh(replace(answer, fresh=None))


def test_a_cheaper_candidate_is_named_with_what_it_loses(answer):
    simpler = CheaperArm(answer.default.arm, GAP, 0.05)
    line = lines.cheaper(replace(answer, cheaper=simpler))
    name = candidate(answer.default.arm)
    assert line == f"{name} loses 0.020 ± 0.010, at most 0.050 below the true best (95 %)"
    assert not lines.cheaper(replace(with_overall(answer, simpler=()), cheaper=None))


def test_what_may_be_lost_is_said_unless_it_is_surely_the_best(answer):
    known = replace(answer, candidates=99, probability=0.6, most_lost=0.01, expected_loss=0.003)
    loss = "no other of 99 is more than 0.010 better (95 %), expected loss 0.003"
    assert loss in lines.sure(known)
    for other in (replace(known, probability=0.95), replace(known, most_lost=None)):
        assert "chance to be the best" in lines.sure(other) and "loss" not in lines.sure(other)


def test_what_would_decide_is_a_budget_or_more_items(answer):
    first, second = answer.best.arm, answer.default.arm
    short = replace(with_overall(answer, open=2), ending="budget")
    assert lines.decide(short).endswith("--budget 1")
    tie = with_overall(answer, open=0, next=second, tied=(first, second), lead=GAP, critical=80.0)
    assert lines.decide(tie).startswith("about 1,600 times as many items")
    assert not lines.decide(with_overall(answer, open=0, next=None))


def test_a_long_reason_is_cut_and_an_undefined_metric_is_none(answer):
    reason = "ValueError: the texts of this task have no label at all"
    failed = Failure("score", "error", 3, "tiny@step0/0", reason)
    line = lines.check(replace(answer, failures=(failed,), warnings=()))
    assert line.startswith("3 values missing (ValueError: the texts of this ...): ")
    undefined = replace(failed, kind="curvature", status="nan")
    assert not lines.check(replace(answer, failures=(undefined,), warnings=()))


def test_without_a_search_the_best_gains_nothing(answer):
    same = replace(answer, best=answer.default)
    assert lines.gain(same) == "none: it is what one would take without a search"
    assert lines.gain(replace(answer, difference=None)).startswith("not known: no task")
