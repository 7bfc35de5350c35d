from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.answer import analysis
from daskmetrics.answer.answer import Verdict, answer_of, verdict_of
from daskmetrics.bandit import task_weights
from daskmetrics.domain.names import Arm, Suite
from daskmetrics.domain.outcomes import Difference, mean_difference
from daskmetrics.domain.scores import Scores
from daskmetrics.report import Run, index
from tests.report.conftest import TASKS, Story, make_run, mean_scores, scores_of

MODEL = Suite("minilm", ("main",), tuple(range(7)), 6)
RISING = (0.45, 0.47, 0.49, 0.51, 0.53, 0.55, 0.57)
MERITS = {
    "clear": dict.fromkeys(TASKS, (*RISING[:6], 0.62)),
    "tie": dict.fromkeys(TASKS, (*RISING[:5], 0.5998, 0.601)),
    "split": {
        task: (*RISING[:3], 0.62 if task != TASKS[2] else 0.5, 0.53, 0.55, 0.6) for task in TASKS
    },
}


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory) -> dict[str, Run]:
    """Exhaustive runs of one checkpoint: a clear winner, a tie, and a winner that differs between
    tasks.
    """
    folder = tmp_path_factory.mktemp("verdicts")
    story = Story(suites=(MODEL,), budget=1.0, outcomes=True)
    return {
        name: make_run(folder / name, replace(story, merits=merits))
        for name, merits in MERITS.items()
    }


def layers(arms) -> list[int]:
    return [arm.layer for arm in arms]


def with_scores(run: Run, recorded) -> Run:
    """A copy of the run with other scores."""
    changed = copy(run)
    changed.recorded = Scores(recorded, list(run.kinds))
    vars(changed).pop("compared", None)  # which follows from them
    return changed


def verdict_with(run: Run, recorded=None, **search) -> Verdict:
    """The verdict with other scores, or with another objective or other weights."""
    assert run.result  # kept by the copy, whose plan has another key
    changed = with_scores(run, recorded or run.recorded)
    weights = task_weights(run.kinds, **search)
    tasks = zip(run.plan.tasks, weights, strict=True)
    weighted = [replace(task, weight=weight) for task, weight in tasks]
    changed.plan = replace(run.plan, tasks=tuple(weighted))
    return verdict_of(changed.evidence)


def test_the_verdict_agrees_with_the_raw_table_in_any_order(verdicts):
    for run in verdicts.values():
        means, overall = mean_scores(run), run.verdict.overall
        assert means[overall.arm] == max(means.values())
        tied, worse = ([means[arm] for arm in arms] for arms in (overall.tied, overall.worse))
        assert min(tied) > max(worse)
        for part in run.verdict.parts:
            mean = {
                arm: np.mean([scores[task] for task in part.tasks])
                for arm, scores in scores_of(run).items()
            }
            assert mean[part.arm] == max(mean.values()) and part.arm in part.tied
        assert verdict_with(run, dict(reversed([*run.recorded.items()]))) == run.verdict


def test_a_clear_winner_is_ahead_by_a_difference_with_its_error(verdicts):
    run = verdicts["clear"]
    verdict, overall = run.verdict, run.verdict.overall
    assert (layers(overall.tied), layers(overall.worse)) == ([6], [0, 1, 2, 3, 4, 5])
    gaps = run.differences(Arm("minilm", "main", 6), Arm("minilm", "main", 5))
    ahead = mean_difference(gaps, run.weights)
    assert overall.lead.value == pytest.approx(ahead.value)
    assert overall.lead.stderr == pytest.approx(ahead.stderr, rel=1e-3)
    assert run.answer.sureness == "clear" and run.answer.relation == "within the error"
    assert verdict.disagreeing == () and verdict.cheaper() is overall.items_to_decide is None


def test_of_a_tie_the_highest_wins_and_a_simpler_is_offered(
    verdicts,
):
    verdict, answer = verdicts["tie"].verdict, verdicts["tie"].answer
    assert answer.sureness in ("probable", "a tie")
    assert verdict.overall.arm.layer == 6 and layers(verdict.overall.tied) == [5, 6]
    (simpler,) = [each for each in verdict.overall.simpler if each.tied]
    assert simpler.arm.layer == 5 and 0.0012 < simpler.most_lost < 0.01
    share = simpler.most_lost / verdict.overall.score
    assert verdict.cheaper(1.01 * share) == simpler and verdict.cheaper(0.99 * share) is None
    assert answer.cheaper == (simpler if share <= 0.01 else None)


def test_one_that_is_worse_is_offered_if_it_may_lose_that_much(verdicts):
    verdict = verdicts["clear"].verdict
    offered, score = verdict.overall.simpler, verdict.overall.score
    bounds = [each.most_lost for each in offered]
    assert bounds == sorted(bounds, reverse=True) and not any(each.tied for each in offered)
    for each in offered:
        assert each.most_lost > each.loss.value > 0
        assert verdict.cheaper(1.001 * each.most_lost / score) == each
    assert verdict.cheaper(0.999 * bounds[-1] / score) is None
    assert layers(each.arm for each in offered)[0] == 0


def test_relations_are_those_of_the_test_or_of_the_error(verdicts):
    overall = verdicts["tie"].verdict.overall
    for gain in (Difference(0.0, 1.0, paired=True), Difference(3.0, 1.0, paired=True)):
        assert {overall.relation(arm, gain) for arm in overall.tied} == {"within the error"}
        assert {overall.relation(arm, gain) for arm in overall.worse} == {"beyond the error"}
        assert overall.relation(Arm("else", "main", 0), gain) == gain.relation
    tied = replace(overall, lead=Difference(0.01, 0.02, paired=True), critical=2.0)
    assert tied.items_to_decide == pytest.approx(16.0)
    equal = replace(tied, lead=Difference(1e-7, 0.02, paired=True))  # but for their order
    assert equal.items_to_decide is None


def test_where_tasks_disagree_the_verdict_says_so(verdicts):
    verdict = verdicts["split"].verdict
    best = {part.what: part.arm.layer for part in verdict.parts}
    assert best == {"classification": 3, TASKS[0]: 3, TASKS[1]: 3, TASKS[2]: 6}
    assert layers(verdict.overall.tied) == [6]
    assert {part.what for part in verdict.disagreeing} == set(best) - {TASKS[2]}
    gains = [part.over_best.value for part in verdict.parts if len(part.tasks) == 1]
    assert verdict.per_task.value == pytest.approx(np.mean(gains)) == pytest.approx(0.04 / 3)


def test_weights_and_objective_of_the_search_decide(verdicts):
    run, weights = verdicts["split"], dict(zip(TASKS, (1.0, 2.0, 5.0), strict=True))
    verdict = verdict_with(run, weights=weights)
    overall = verdict.overall
    assert (overall.score, overall.stderr) == run.recorded.mean(overall.arm, weights)
    gaps = run.differences(overall.arm, verdict.default)
    assert overall.gain == mean_difference(gaps, weights)
    gains = {part.what: part.over_best for part in verdict.parts}
    assert verdict.per_task == mean_difference(gains, weights)
    verdict = verdict_with(run, objective="classification")
    assert layers(verdict.overall.tied) == [3] == [verdict.overall.arm.layer]
    assert verdict.overall.tasks == TASKS[:2]
    assert TASKS[2] in {part.what for part in verdict.disagreeing}


def test_a_winner_without_a_score_stays_the_winner(verdicts):
    recorded = {arm: dict(scores) for arm, scores in verdicts["clear"].recorded.items()}
    run = with_scores(verdicts["clear"], recorded)
    best = run.result.recommendation.arm
    del recorded[best][TASKS[1]]
    unsure = replace(run.result.recommendation, confirmed=False)
    run.result = replace(run.result, recommendation=unsure)
    answer = answer_of(run.evidence)
    model = answer.verdict.models[0]
    assert answer.best.arm == answer.verdict.overall.arm == model.best == best
    assert model.score is answer.sureness is None and not answer.verdict.overall.tested


def test_an_arm_that_lacks_tasks_is_only_the_best_so_far(a_run):
    run = a_run()
    best = run.verdict.overall.arm
    credible = set(run.result.recommendation.credible)
    complete = {arm for arm, scores in run.recorded.items() if len(scores) == len(run.kinds)}
    assert run.verdict.overall.open == len(credible - complete)
    none = {arm: dict(list(scores.items())[:1]) for arm, scores in run.recorded.items()}
    others = verdict_with(run, {**run.recorded, best: none[best]}).overall
    assert others.arm != best and others.arm in others.tied
    overall = verdict_with(run, none).overall
    assert overall.tied == () and overall.arm == best


def test_simpler_is_a_smaller_model_then_layer_then_checkpoint(
    finished,
):
    evidence = finished.evidence
    names = ("tiny@step4/1", "tiny@step8/1", "tiny@step4/2", "small@step1/0")
    ordered = [Arm.parse(name) for name in names]
    assert sorted(set(ordered), key=evidence.simplicity) == ordered


def test_every_model_has_its_best_arm_and_its_last_layer(finished):
    means = mean_scores(finished)
    last = {
        suite.model: suite.layers[-1] for suite in analysis.suites(finished.plan, finished.records)
    }
    for standing in finished.verdict.models:
        own = {arm: mean for arm, mean in means.items() if arm.model == standing.model}
        assert standing.best is None or own[standing.best] == max(own.values())
        assert standing.last == Arm(standing.model, "step8", last[standing.model])
    others = {arm: by for arm, by in finished.recorded.items() if arm.model != "tiny"}
    assert answer_of(with_scores(finished, others).evidence).unscored_models == ("tiny",)


def test_the_score_is_over_all_tasks_of_the_objective(a_run):
    """Also where the default lacks some."""
    failing = ("tiny@step0", "small@step8/1:stdlib:package", "small@step8/3:stdlib:order")
    run = a_run(failing=failing, outcomes=True)
    answer = run.answer
    assert answer.confirmed and answer.best.scores.keys() != answer.default.scores.keys()
    mean = np.mean([score.score for score in answer.best.scores.values()])
    assert [answer.verdict.overall.score, answer.best.score] == pytest.approx([mean, mean])
    assert answer.default.score is None
    (row,) = index.rows(run.folder.path.parent)
    assert row["score"].startswith(f"score {mean:.3f} ±")
    answer = a_run(objective="retrieval", budget=1.0).answer
    assert len(answer.best.scores) == 3 and answer.verdict.overall.what == "the objective"
    assert answer.best.score == answer.best.scores[TASKS[2]].score
    assert answer.difference.value == pytest.approx(answer.best.score - answer.default.score)
