from __future__ import annotations

import math

import pytest

from daskmetrics.answer.comparison import compare_arms, compare_named
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm
from daskmetrics.report import best_text
from tests.report.conftest import invoke


@pytest.fixture
def paired(a_run):
    return a_run(outcomes=True)


def test_outcomes_make_the_error_of_a_difference_smaller(paired, finished):
    for run, small in ((paired, True), (finished, False)):
        answer = run.answer
        for task, found in answer.differences.items():
            both = (side.scores[task].stderr for side in (answer.best, answer.default))
            alone = math.hypot(*both)
            assert found.paired is small
            assert found.stderr < 0.3 * alone if small else found.stderr == pytest.approx(alone)


def test_an_unpaired_error_is_marked(finished, paired):
    assert "(unpaired)" in best_text(finished) and "* not paired" in best_text(finished)
    assert "(unpaired)" not in best_text(paired) and "* not paired" not in best_text(paired)


def test_the_mean_has_the_weights_of_the_search(paired):
    best, default = paired.answer.best, paired.answer.default
    found = compare_arms(paired, best.arm, default.arm)
    back = compare_arms(paired, default.arm, best.arm)
    assert found.difference == paired.answer.difference and found.difference.value > 0
    assert back.difference.value == pytest.approx(-found.difference.value)
    assert back.difference.stderr == pytest.approx(found.difference.stderr)
    paired.config["search"] |= {"objective": "stdlib:order"}
    found = compare_arms(paired, best.arm, default.arm)
    assert found.difference.value == pytest.approx(found.tasks["stdlib:order"].value)


def test_two_arms_are_compared_task_by_task(paired):
    best, default = paired.best().arm, paired.answer.default.arm
    done = invoke("compare", paired.folder.path, "--arms", best, default)
    assert done.exit_code == 0 and all(task in done.output for task in paired.answer.differences)
    assert (
        f"more than {default}, {paired.answer.relation}." in " ".join(done.output.split())
        and "±" in done.output
    )
    unknown = invoke("compare", paired.folder.path, "--arms", "tiny@step9/9", best)
    assert unknown.exit_code == 2 and "tiny@step9/9" in unknown.output


def test_arms_without_a_common_task_cannot_be_compared(a_run):
    run = a_run(decisions=20)
    one, other = list(run.recorded)[:2]
    run.recorded[one], run.recorded[other] = {"stdlib:order": {}}, {"stdlib:package": {}}
    with pytest.raises(DataError, match="no scored task in common"):
        compare_named(run, str(one), str(other))
    assert not run.differences(Arm("nothing", "main", 0), one)
