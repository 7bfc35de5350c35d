"""Each line of an answer says its fact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daskmetrics.answer.answer import CheaperArm
from daskmetrics.answer.sizes import ArmCost
from daskmetrics.answer.worth import Finalist, FreshItems
from daskmetrics.core.text import score_text
from daskmetrics.domain.failures import Failure
from daskmetrics.domain.outcomes import Difference
from daskmetrics.domain.plan import Floor
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


SIX = ArmCost(6, 10, 20, 30.0, 6.0, 384, 1536, seconds=0.06)
CHEAPER = [
    (replace(SIX, layers=3, seconds=0.03), "2.0 times as fast, "),
    (replace(SIX, layers=3, seconds=None), "3 layers in place of 6, "),
    (replace(SIX, layers=0, seconds=0.0), "no layer to compute, "),
    (replace(SIX, layers=0, whole=None, seconds=None), "an earlier layer, "),
    (replace(SIX, bytes=256), "256 bytes a vector in place of 1,536, "),
]


@pytest.mark.parametrize(("cost", "saved"), CHEAPER)
def test_a_cheaper_candidate_is_named_with_what_it_saves(answer, cost, saved):
    simpler = CheaperArm(answer.default.arm, GAP, 0.05, cost, SIX, True)
    line = lines.cheaper(replace(answer, cheaper=simpler))
    name = candidate(answer.default.arm, {})
    assert line == f"{name}: {saved}loses 0.020 ± 0.010, at most 0.050 (95 %)"
    assert not lines.cheaper(replace(with_overall(answer, simpler=()), cheaper=None))


def test_what_may_be_lost_is_said_however_probable_the_best(answer):
    known = replace(answer, candidates=99, most_lost=0.01, expected_loss=0.003)
    loss = "no other of 99 is more than 0.010 better (95 %), expected loss 0.003"
    for probability in (0.1, 0.95):
        assert loss in lines.sure(replace(known, probability=probability))
    unknown = lines.sure(replace(known, most_lost=None))
    assert "too few scores to say what it may lose; expected loss 0.003" in unknown


def test_the_score_of_one_task_has_its_measure_and_floor(answer):
    (name, *_), floor = answer.weights, Floor(0.25, "largest class alone")
    tasks = [replace(task, floor=floor) for task in answer.tasks if task.name == name]
    one = replace(answer, tasks=tasks, weights={name: 1.0})
    score = f"accuracy {score_text(answer.best.score, answer.best.stderr)}"
    assert f"{score} (largest class alone 0.250)" in lines.use(one)
    assert "mean of 3 tasks" in lines.use(answer)


def test_the_best_within_its_error_of_a_guess_is_none(answer):
    guess = replace(answer, over_floor=Difference(0.03, 0.02, paired=False))
    assert lines.use(guess).startswith("none: no candidate is better than guessing")
    assert not lines.cheaper(guess)
    worse = replace(answer, over_floor=Difference(-0.3, 0.02, paired=False))
    assert "better than guessing" in lines.use(worse)
    better = replace(answer, over_floor=Difference(0.05, 0.02, paired=False))
    assert "guessing" not in lines.use(better) + lines.use(replace(answer, over_floor=None))


def test_of_a_tie_any_will_do_and_the_cheapest_is_named(answer):
    first, second = answer.best.arm, answer.default.arm
    tied = replace(with_overall(answer, tied=(second, first)), sureness="a tie", cheaper=None)
    simpler = CheaperArm(second, GAP, 0.05, replace(SIX, layers=3), SIX, True)
    line = lines.use(with_overall(tied, simpler=(simpler,)))
    names = f"the cheapest is {candidate(second, {})}, the highest {candidate(first, {})}: "
    assert line.startswith(f"any of 2; {names}")
    worse = replace(simpler, tied=False)
    assert replace(with_overall(tied, simpler=(worse,)), cheaper=worse).cheapest is None
    alone = lines.use(with_overall(tied, simpler=()))
    assert alone.startswith(f"any of 2; the cheapest and the highest is {candidate(first, {})}: ")
    assert lines.use(replace(tied, sureness="probable")).startswith(candidate(first, {}))


def test_what_would_decide_is_a_budget_or_more_items(answer):
    first, second = answer.best.arm, answer.default.arm
    short = replace(with_overall(answer, open=2), ending="budget")
    assert lines.decide(short).endswith("--budget 1")
    tie = with_overall(answer, open=0, next=second, tied=(first, second), lead=GAP, critical=80.0)
    tie = replace(tie, most_lost=None)
    assert lines.decide(tie).startswith("about 1,600 times as many items")
    assert "more search" not in lines.decide(tie) + lines.decide(replace(tie, most_lost=0.81))
    assert lines.decide(replace(tie, most_lost=0.79)).endswith("; more search would not")
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
