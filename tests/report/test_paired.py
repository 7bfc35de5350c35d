from __future__ import annotations

import math

import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.core._outcomes import Difference
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm
from daskmetrics.report import summary_text
from daskmetrics.report._compare import compare_text
from daskmetrics.report._html import page
from daskmetrics.report._paired import compare_arms, compare_arms_text


@pytest.fixture
def paired(a_run):
    return a_run(outcomes=True)


def test_outcomes_make_the_error_of_a_difference_smaller(paired, finished):
    for run, small in ((paired, True), (finished, False)):
        best = run.best()
        assert best.differences.keys() == set(best.shared)
        for task, found in best.differences.items():
            alone = math.hypot(best.scores[task]["stderr"], best.default_scores[task]["stderr"])
            assert found.paired is small
            assert found.stderr < 0.3 * alone if small else found.stderr == pytest.approx(alone)


def test_an_unpaired_error_is_marked(finished, paired):
    assert "(unpaired)" in summary_text(finished) and "* not paired" in summary_text(finished)
    assert "(unpaired)" in page(finished, []) and "two independent scores" in page(finished, [])
    assert "(unpaired)" not in summary_text(paired) and "* not paired" not in summary_text(paired)


def test_an_arm_differs_from_itself_by_zero(paired):
    best = paired.best().arm
    same = compare_arms(paired, best, best)
    assert all(found == Difference(0.0, 0.0, paired=True) for found in same.tasks.values())
    assert (same.mean.value, same.mean.stderr, same.objective.probability) == (0.0, 0.0, 0.5)


@pytest.mark.parametrize("reward", ["zscore", "mean", "running", "rank", "harmonic", "robust"])
def test_the_objective_has_the_sign_and_the_scale_of_the_reward(paired, reward):
    best = paired.best()
    paired.config["search"]["reward"] = reward
    found = compare_arms(paired, best.arm, best.default)
    back = compare_arms(paired, best.default, best.arm)
    assert found.objective.value > 0 and found.objective.stderr > 0 and found.reward == reward
    assert back.objective.value == pytest.approx(-found.objective.value)
    assert back.objective.stderr == pytest.approx(found.objective.stderr)
    if reward == "mean":
        assert found.objective.value == pytest.approx(found.mean.value)
        assert found.objective.stderr == pytest.approx(found.mean.stderr)


def test_the_objective_has_the_weights_of_the_search(paired):
    best = paired.best()
    paired.config["search"] |= {"objective": "stdlib:order", "reward": "mean"}
    found = compare_arms(paired, best.arm, best.default)
    assert found.objective.value == pytest.approx(found.tasks["stdlib:order"].value)
    paired.config["search"]["weights"] = {"stdlib:order": 3}
    assert compare_arms(paired, best.arm, best.default).objective == found.objective


def test_two_arms_are_compared_task_by_task(paired):
    best = paired.best()
    done = CliRunner().invoke(main, ["compare", str(paired.folder.path), "--arms", str(best.arm), str(best.default)])
    assert done.exit_code == 0 and all(task in done.output for task in best.shared)
    assert "probability" in done.output and "±" in done.output
    unknown = CliRunner().invoke(main, ["compare", str(paired.folder.path), "--arms", "tiny@step9/9", str(best.arm)])
    assert unknown.exit_code == 2 and "tiny@step9/9" in unknown.output


def test_arms_without_a_common_task_cannot_be_compared(a_run):
    run = a_run(decisions=20)
    one, other = list(run.recorded)[:2]
    run.recorded[one], run.recorded[other] = {"stdlib:order": {}}, {"stdlib:package": {}}
    with pytest.raises(DataError, match="no scored task in common"):
        compare_arms_text(run, str(one), str(other))
    assert not run.differences(Arm("nothing", "main", 0), one)


def test_the_best_arms_of_two_runs_are_compared(paired):
    text = compare_text(paired, paired)
    assert "+0.000 ± 0.000" in text and "unpaired" not in text
