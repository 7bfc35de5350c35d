from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.core._outcomes import mean_difference, means_of
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Suite
from daskmetrics.report import Run, best_text, summary_text, write
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._documents import summary
from daskmetrics.report._html import page
from daskmetrics.report._verdict import verdict_of
from tests.report.conftest import TASKS, Story, make_run

MODEL = Suite("minilm", ("main",), tuple(range(7)), 6)
RISING = (0.45, 0.47, 0.49, 0.51, 0.53, 0.55, 0.57)
CLEAR = dict.fromkeys(TASKS, (*RISING[:6], 0.62))
TIE = dict.fromkeys(TASKS, (*RISING[:5], 0.5998, 0.601))
SPLIT = {task: (*RISING[:3], 0.62 if task != TASKS[2] else 0.5, 0.53, 0.55, 0.6) for task in TASKS}
EXHAUSTIVE = {"reward": "mean", "policy": "sweep"}


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory) -> dict[str, Run]:
    """Exhaustive runs of one checkpoint: a clear winner, a tie, and a winner that differs between tasks."""
    folder = tmp_path_factory.mktemp("verdicts")
    story = Story(suites=(MODEL,), budget=1.0, outcomes=True, settings=EXHAUSTIVE)
    merits = {"clear": CLEAR, "tie": TIE, "split": SPLIT}
    return {name: make_run(folder / name, replace(story, merits=each)) for name, each in merits.items()}


def layers(arms) -> list[int]:
    return [arm.layer for arm in arms]


def test_a_clear_winner_is_ahead_by_a_difference_with_its_error(verdicts):
    run = verdicts["clear"]
    verdict = run.verdict
    assert layers(verdict.tied) == [6] and layers(verdict.overall.worse) == [0, 1, 2, 3, 4, 5]
    ahead = mean_difference(list(run.differences(Arm("minilm", "main", 6), Arm("minilm", "main", 5)).values()))
    assert verdict.overall.lead.value == pytest.approx(ahead.value)
    assert verdict.overall.lead.stderr == pytest.approx(ahead.stderr, rel=1e-3)
    assert verdict.headline == f"Layer 6 is the best: +0.070 ± {ahead.stderr:.3f} above the next best, layer 5."
    assert run.settlement is None and not verdict.split and not verdict.doubts


def test_a_tie_is_called_one_and_names_the_simplest_first(verdicts):
    verdict = verdicts["tie"].verdict
    assert verdict.headline == "Layers 5 and 6 are tied for the best; layers 0 to 4 are worse."
    assert verdict.overall.simplest.layer == 5 and verdict.overall.arm.layer == 6
    assert verdict.advice.startswith("Layer 5 is the simplest of them; layer 6 is higher by +0.001 ± 0.00")
    assert 0.0012 < verdict.overall.most_lost < 0.01 and "loses at most" in verdict.advice
    assert verdict.advice.endswith("The default arm is among them.")
    text = summary_text(verdicts["tie"])
    assert text.index("simplest    minilm@main/5") < text.index("best        minilm@main/6")


def test_the_short_answer_is_followed_by_an_explanation_that_does_not_repeat_it(verdicts, a_run):
    clear, tie = verdicts["clear"].verdict, verdicts["tie"].verdict
    assert clear.answer == "Layer 6 of minilm is the best"
    assert clear.explanation == clear.text.replace("Layer 6 is the best: ", "It is ")
    assert tie.answer == "2 arms are tied for the best; the simplest is layer 5 of minilm"
    assert tie.explanation == tie.text.replace(
        "Layers 5 and 6 are tied for the best", "The tied arms are layers 5 and 6"
    )
    many = a_run(flat=True, outcomes=True).verdict
    count = f"{len(many.tied)} arms are tied for the best; the simplest is layer "
    assert many.answer.startswith(count) and " at step " in many.answer and len(many.answer) < 100


def test_where_tasks_disagree_the_verdict_says_so(verdicts):
    verdict = verdicts["split"].verdict
    best = {part.what: part.arm.layer for part in verdict.parts}
    assert best == {"classification": 3, "stdlib:order": 3, "stdlib:package": 3, "stdlib:retrieval": 6}
    assert layers(verdict.tied) == [6]
    assert verdict.split.startswith(
        "No arm is the best everywhere: for classification layer 3 exceeds layer 6 by +0.020 ±"
    )
    gains = [part.gain.value for part in verdict.parts if len(part.tasks) == 1]
    assert verdict.by_task.value == pytest.approx(np.mean(gains)) and verdict.by_task.value > verdict.overall.gain.value
    assert f"An arm for each task would gain {verdict.by_task.value:+.3f} ±" in verdict.split


@pytest.mark.parametrize("name", ["clear", "tie", "split"])
def test_the_verdict_agrees_with_the_raw_table(verdicts, name):
    run = verdicts[name]
    means = analysis.mean_scores(run)
    assert means[run.verdict.overall.arm] == max(means.values())
    assert min(means[arm] for arm in run.verdict.tied) > max(means[arm] for arm in run.verdict.overall.worse)
    for part in run.verdict.parts:
        mean = {arm: np.mean([scores[task] for task in part.tasks]) for arm, scores in analysis.scores(run).items()}
        assert mean[part.arm] == max(mean.values()) and part.arm in part.tied


@pytest.mark.parametrize("name", ["clear", "tie", "split"])
def test_terminal_page_card_and_summary_say_the_same(verdicts, name):
    run = verdicts[name]
    plain = json.loads(json.dumps(summary(run)))["verdict"]
    assert plain["headline"] == run.verdict.headline
    assert plain["standings"][0]["tied"] == [str(arm) for arm in run.verdict.tied]
    for text in (summary_text(run), best_text(run).replace("\n# ", "\n")):
        assert run.verdict.headline in " ".join(text.split())
    for text in (page(run, []), run._repr_html_()):
        assert text.count(run.verdict.answer) == 1
    for part in run.verdict.parts:
        assert f"{part.gain.value:+.3f}" in summary_text(run) or part.is_default


def test_gains_over_the_default_arm_are_paired(verdicts):
    run = verdicts["split"]
    part = next(part for part in run.verdict.parts if part.what == "stdlib:order")
    assert part.gain == run.differences(part.arm, run.best().default)["stdlib:order"] and part.gain.paired


def test_the_order_of_the_journal_changes_nothing(verdicts):
    for run in verdicts.values():
        shuffled = dict(reversed(list(run.recorded.items())))
        again = verdict_of(replace(run._evidence, recorded=shuffled, arms=run._evidence.arms[::-1]))
        assert replace(again, arms=run.verdict.arms) == run.verdict


def test_the_simplest_arm_has_the_smaller_model_then_the_shallower_layer_then_the_earlier_checkpoint(finished):
    evidence = replace(finished._evidence, sizes={"tiny": 1.0, "small": 2.0})
    arms = [Arm("small", "step1", 0), Arm("tiny", "step8", 1), Arm("tiny", "step4", 2), Arm("tiny", "step4", 1)]
    ordered = sorted(arms, key=evidence.simplicity)
    assert [str(arm) for arm in ordered] == ["tiny@step4/1", "tiny@step8/1", "tiny@step4/2", "small@step1/0"]


def test_arms_that_lack_tasks_are_judged_by_the_model_and_counted(a_run):
    run = a_run(flat=True, outcomes=True)
    verdict, one = run.verdict, run.verdict.overall
    credible = {Arm(**plain) for plain in run.result.credible}
    complete = {arm for arm, scores in run.recorded.items() if len(scores) == len(run.tasks)}
    assert {*one.tied, *one.worse} == complete
    assert set(one.maybe) == {arm for arm in credible - complete if arm in run.recorded}
    assert one.unseen == len(credible - complete) - len(one.maybe)
    assert f"{len(one.maybe) + one.unseen} other arms" in verdict.doubts and "by the model" in verdict.doubts.lower()


def test_a_best_arm_that_lacks_tasks_is_not_called_tested(a_run):
    run = a_run()
    evidence = run._evidence
    best = Arm(**run.result.best["arm"])
    fewer = {**evidence.recorded, best: dict(list(evidence.recorded[best].items())[:1])}
    verdict = verdict_of(replace(evidence, recorded=fewer))
    assert verdict.overall.tied == () and "lacks tasks" in verdict.headline
    assert verdict.answer.endswith(" is expected to be the best") and "but lacks tasks." in verdict.explanation


def test_missing_outcomes_and_missing_errors_are_said(finished):
    assert not finished.verdict.paired and "as independent" in finished.verdict.basis
    told = {
        arm: {task: {**each, "stderr": 0.0} for task, each in scores.items()}
        for arm, scores in finished.recorded.items()
    }
    exact = verdict_of(replace(finished._evidence, recorded=told))
    assert exact.exact == TASKS and "count as exact: stdlib:order" in exact.basis


@pytest.mark.parametrize("reward", ["zscore", "running", "rank", "harmonic", "robust"])
def test_another_reward_decides_in_its_own_units(verdicts, reward):
    evidence = verdicts["clear"]._evidence
    config = {**evidence.config, "search": {**evidence.config["search"], "reward": reward}}
    verdict = verdict_of(replace(evidence, config=config))
    assert layers(verdict.tied)[-1] == 6 and f"reward ({reward})" in verdict.basis
    assert verdict.overall.gain == verdicts["clear"].verdict.overall.gain  # gains are raw scores


def test_tasks_outside_of_the_objective_do_not_decide(verdicts):
    evidence = verdicts["split"]._evidence
    config = {**evidence.config, "search": {**evidence.config["search"], "objective": "classification"}}
    verdict = verdict_of(replace(evidence, config=config))
    assert layers(verdict.tied) == [3] and verdict.overall.tasks == TASKS[:2]
    assert "for stdlib:retrieval layer 6 exceeds layer 3" in verdict.split


def test_means_of_a_verdict_have_the_weights_of_the_objective(verdicts):
    evidence, weights = verdicts["split"]._evidence, dict(zip(TASKS, (1.0, 2.0, 5.0), strict=True))
    config = {**evidence.config, "search": {**evidence.config["search"], "weights": weights}}
    verdict = verdict_of(replace(evidence, config=config))
    assert (verdict.overall.score, verdict.overall.stderr) == means_of(evidence.recorded, weights)[verdict.overall.arm]
    gaps = verdicts["split"].differences(verdict.overall.arm, verdict.default)
    assert verdict.overall.gain == mean_difference([gaps[task] for task in TASKS], list(weights.values()))
    gains = {part.what: part.gain for part in verdict.parts}
    assert verdict.by_task == mean_difference([gains[task] for task in TASKS], list(weights.values()))


def test_arms_beyond_the_pairs_that_are_tested_are_compared_with_the_highest(verdicts, monkeypatch):
    run = verdicts["tie"]
    monkeypatch.setattr("daskmetrics.report._verdict.MOST", 1)
    verdict = verdict_of(run._evidence)
    assert verdict.overall.simplest.layer == 6 and verdict.overall.tested == 7
    assert 5 in layers(verdict.tied) and {0, 1, 2, 3} <= set(layers(verdict.overall.worse))


def test_a_run_of_one_task_has_no_table(tmp_path):
    task = TASKS[1]
    story = Story((MODEL,), (task,), budget=1.0, outcomes=True, settings=EXHAUSTIVE, merits={task: CLEAR[task]})
    run = make_run(tmp_path / "one", story)
    assert not run.verdict.parts and "gain over the default" not in summary_text(run)


def test_the_summary_is_written_beside_the_page(verdicts):
    run = verdicts["tie"]
    written = json.loads((write(run).parent / "summary.json").read_text(encoding="utf-8"))
    assert written["settle"]["text"] == run.settlement.text and written["name"] == "demo"


def test_there_is_no_verdict_before_the_end_of_the_search(a_run):
    run = a_run(decisions=5)
    with pytest.raises(DataError, match=r"has no verdict.*run it again"):
        run.verdict  # noqa: B018
    assert summary(run)["verdict"] is None
