from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.answer import analysis
from daskmetrics.answer.answer import Evidence, Verdict, answer_of, verdict_of
from daskmetrics.core.names import Arm, Suite
from daskmetrics.core.outcomes import Difference, mean_difference, means_of
from daskmetrics.report import Run
from daskmetrics.report._sections import answer_rows
from tests.report.conftest import TASKS, Story, make_run, mean_scores, scores_of

MODEL = Suite("minilm", ("main",), tuple(range(7)), 6)
RISING = (0.45, 0.47, 0.49, 0.51, 0.53, 0.55, 0.57)
CLEAR = dict.fromkeys(TASKS, (*RISING[:6], 0.62))
TIE = dict.fromkeys(TASKS, (*RISING[:5], 0.5998, 0.601))
SPLIT = {task: (*RISING[:3], 0.62 if task != TASKS[2] else 0.5, 0.53, 0.55, 0.6) for task in TASKS}
EXHAUSTIVE = {"reward": "mean", "policy": "sweep"}


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory) -> dict[str, Run]:
    """Exhaustive runs of one checkpoint: a clear winner, a tie, and a winner that differs between
    tasks.
    """
    folder = tmp_path_factory.mktemp("verdicts")
    story = Story(suites=(MODEL,), budget=1.0, outcomes=True, settings=EXHAUSTIVE)
    merits = {"clear": CLEAR, "tie": TIE, "split": SPLIT}
    return {
        name: make_run(folder / name, replace(story, merits=each)) for name, each in merits.items()
    }


def layers(arms) -> list[int]:
    return [arm.layer for arm in arms]


def verdict_with(run: Run, recorded=None, **search) -> Verdict:
    """The verdict with other scores, or other settings of the search."""
    changed = copy(run)
    changed.recorded = recorded or run.recorded
    changed.config = {**run.config, "search": {**run.config["search"], **search}}
    return verdict_of(changed)


def test_a_winner_that_lacks_a_score_is_not_replaced_by_one_that_the_search_disbelieves(verdicts):
    run = copy(verdicts["clear"])
    best = run.result.best_arm
    run.recorded = {arm: dict(scores) for arm, scores in run.recorded.items()}
    del run.recorded[best][TASKS[1]]
    run.result = replace(run.result, confirmed=False)
    answer = answer_of(run)
    assert answer.best.arm == answer.verdict.overall.arm == answer.verdict.models[0].best == best
    assert answer.verdict.models[0].score is None
    assert not answer.verdict.overall.tested and answer.sureness is None
    assert "candidates scored on every task are unlikely" in answer_rows(answer)["Best of"]


def test_a_clear_winner_is_ahead_by_a_difference_with_its_error(verdicts):
    run = verdicts["clear"]
    verdict = run.verdict
    assert layers(verdict.overall.tied) == [6] and layers(verdict.overall.worse) == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    ahead = mean_difference(
        list(run.differences(Arm("minilm", "main", 6), Arm("minilm", "main", 5)).values())
    )
    assert verdict.overall.lead.value == pytest.approx(ahead.value)
    assert verdict.overall.lead.stderr == pytest.approx(ahead.stderr, rel=1e-3)
    assert run.answer.sureness == "clear" and run.answer.relation == "within the error"
    assert verdict.disagreeing == () and verdict.cheaper() is None


def test_tested_arms_stand_to_the_best_as_the_test_says_and_others_as_their_error_says(verdicts):
    for run in verdicts.values():
        overall = run.verdict.overall
        for gain in (Difference(0.0, 1.0, paired=True), Difference(3.0, 1.0, paired=True)):
            assert {overall.relation(arm, gain) for arm in overall.tied} == {"within the error"}
            assert {overall.relation(arm, gain) for arm in overall.worse} == {"beyond the error"}
            assert overall.relation(Arm("else", "main", 0), gain) == gain.relation


def test_of_a_tie_the_highest_is_the_answer_and_a_simpler_one_is_offered_if_it_loses_little(
    verdicts,
):
    verdict = verdicts["tie"].verdict
    assert verdicts["tie"].answer.sureness in ("probable", "a tie")
    assert verdict.overall.arm.layer == 6 and layers(verdict.overall.tied) == [5, 6]
    (simpler,) = verdict.overall.simpler
    assert simpler.arm.layer == 5 and 0.0012 < simpler.most_lost < 0.01
    share = simpler.most_lost / verdict.score_unit
    assert verdict.cheaper(1.01 * share) == simpler and verdict.cheaper(0.99 * share) is None
    assert verdicts["tie"].answer.cheaper == (simpler if share <= 0.01 else None)


def test_where_tasks_disagree_the_verdict_says_so(verdicts):
    verdict = verdicts["split"].verdict
    best = {part.what: part.arm.layer for part in verdict.parts}
    assert best == {
        "classification": 3,
        "stdlib:order": 3,
        "stdlib:package": 3,
        "stdlib:retrieval": 6,
    }
    assert layers(verdict.overall.tied) == [6]
    assert {part.what for part in verdict.disagreeing} == set(best) - {"stdlib:retrieval"}
    gains = [part.over_best.value for part in verdict.parts if len(part.tasks) == 1]
    assert verdict.per_task.value == pytest.approx(np.mean(gains)) == pytest.approx(0.04 / 3)


@pytest.mark.parametrize("name", ["clear", "tie", "split"])
def test_the_verdict_agrees_with_the_raw_table(verdicts, name):
    run = verdicts[name]
    means = mean_scores(run)
    assert means[run.verdict.overall.arm] == max(means.values())
    assert min(means[arm] for arm in run.verdict.overall.tied) > max(
        means[arm] for arm in run.verdict.overall.worse
    )
    for part in run.verdict.parts:
        mean = {
            arm: np.mean([scores[task] for task in part.tasks])
            for arm, scores in scores_of(run).items()
        }
        assert mean[part.arm] == max(mean.values()) and part.arm in part.tied


def test_the_order_of_the_journal_changes_nothing(verdicts):
    for run in verdicts.values():
        shuffled = dict(reversed(list(run.recorded.items())))
        assert verdict_with(run, shuffled) == run.verdict


def test_the_simplest_arm_has_the_smaller_model_then_the_shallower_layer_then_the_earlier_checkpoint(
    finished,
):
    evidence = Evidence(finished)
    evidence.sizes = {"tiny": 1.0, "small": 2.0}
    arms = [
        Arm("small", "step1", 0),
        Arm("tiny", "step8", 1),
        Arm("tiny", "step4", 2),
        Arm("tiny", "step4", 1),
    ]
    ordered = sorted(arms, key=evidence.simplicity)
    assert [str(arm) for arm in ordered] == [
        "tiny@step4/1",
        "tiny@step8/1",
        "tiny@step4/2",
        "small@step1/0",
    ]


def test_arms_that_lack_tasks_are_judged_by_the_model_and_counted(a_run):
    run = a_run(flat=True, outcomes=True)
    one = run.verdict.overall
    credible = {Arm(**plain) for plain in run.result.credible}
    complete = {arm for arm, scores in run.recorded.items() if len(scores) == len(run.tasks)}
    assert {*one.tied, *one.worse} == complete
    assert one.open == len(credible - complete)


def test_an_arm_that_lacks_tasks_is_the_best_so_far_only_while_none_has_all(a_run):
    run = a_run()
    best = run.verdict.overall.arm
    fewer = {**run.recorded, best: dict(list(run.recorded[best].items())[:1])}
    others = verdict_with(run, fewer).overall
    assert others.arm != best and others.arm in others.tied
    none = {arm: dict(list(scores.items())[:1]) for arm, scores in run.recorded.items()}
    verdict = verdict_with(run, none)
    assert verdict.overall.tied == () and verdict.overall.arm == best


def test_every_model_has_its_best_arm_and_its_last_layer(finished):
    means = mean_scores(finished)
    for standing in finished.verdict.models:
        own = {arm: mean for arm, mean in means.items() if arm.model == standing.model}
        assert standing.best is None or own[standing.best] == max(own.values())
        last = max(
            suite.layers for suite in analysis.suites(finished) if suite.model == standing.model
        )[-1]
        assert (standing.last.revision, standing.last.layer) == ("step8", last)


def test_another_reward_decides_in_its_own_units(verdicts):
    verdict = verdict_with(verdicts["clear"], reward="robust")
    assert layers(verdict.overall.tied)[-1] == 6 and verdict.reward == "robust"
    assert verdict.overall.gain == verdicts["clear"].verdict.overall.gain  # gains are raw scores


def test_tasks_outside_of_the_objective_do_not_decide(verdicts):
    verdict = verdict_with(verdicts["split"], objective="classification")
    assert layers(verdict.overall.tied) == [3] and verdict.overall.tasks == TASKS[:2]
    assert "stdlib:retrieval" in {part.what for part in verdict.disagreeing}
    assert verdict.overall.arm.layer == 3


def test_means_of_a_verdict_have_the_weights_of_the_objective(verdicts):
    run, weights = verdicts["split"], dict(zip(TASKS, (1.0, 2.0, 5.0), strict=True))
    verdict = verdict_with(run, weights=weights)
    mean = means_of(run.recorded, weights)[verdict.overall.arm]
    assert (verdict.overall.score, verdict.overall.stderr) == mean
    gaps = run.differences(verdict.overall.arm, verdict.default)
    assert verdict.overall.gain == mean_difference(
        [gaps[task] for task in TASKS], list(weights.values())
    )
    gains = {part.what: part.over_best for part in verdict.parts}
    assert verdict.per_task == mean_difference(
        [gains[task] for task in TASKS], list(weights.values())
    )


def test_a_run_of_one_task_has_no_parts(tmp_path):
    task = TASKS[1]
    story = Story(
        (MODEL,),
        (task,),
        budget=1.0,
        outcomes=True,
        settings=EXHAUSTIVE,
        merits={task: CLEAR[task]},
    )
    run = make_run(tmp_path / "one", story)
    assert not run.verdict.parts and run.answer.per_task is None
