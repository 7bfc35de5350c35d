from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Arm
from daskmetrics.report._explain import explain_text, near_best_text, simpler_arms
from daskmetrics.report._posterior import posterior_of


def invoke(*words: object):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_an_explanation_has_the_posterior_the_rank_the_decisions_and_the_features(finished):
    best = str(finished.best().arm)
    text = explain_text(finished, best)
    assert "The recommended arm." in text and f"rank        1 of {len(posterior_of(finished).problem.arms)}" in text
    for word in ("decisions:", "curvature", "stdlib:order", "nats", "% of the arms"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100


def test_an_arm_that_was_never_chosen_is_explained(finished):
    paid = {cell.arm for cell in finished.cells.values()}
    never = next(arm for arm in posterior_of(finished).problem.arms if arm not in paid)
    text = " ".join(explain_text(finished, str(never)).split())
    assert "Never" in text and "the probability that this arm is better is" in text and "not measured" in text


def test_an_arm_that_is_expected_to_be_better_than_the_recommended_one_is_explained(a_run):
    run = a_run()
    first, second = run.result.top[:2]
    run.result = replace(run.result, best=second)
    text = " ".join(explain_text(run, str(Arm(**first["arm"]))).split())
    assert f"{Arm(**second['arm'])} is recommended for its scores; this arm is expected to be better by +" in text


def test_an_arm_is_explained_by_the_name_of_equal_weights(a_run):
    run = a_run(aliases={"small@step8": ("main",)})
    assert explain_text(run, "small@main/2") == explain_text(run, "small@step8/2")


def test_the_error_for_an_unknown_arm_has_the_nearest_names(finished):
    with pytest.raises(ConfigError, match=r"Did you mean 'small@step8/\d'"):
        explain_text(finished, "small@step8/9")


def test_simpler_arms_lose_at_most_the_share_in_the_worst_case(finished):
    verdict = finished.verdict
    strict, lax = (simpler_arms(finished, within) for within in (0.001, 0.3))
    assert len(strict) < len(lax) == len(verdict.overall.simpler)
    for simpler in lax:
        assert simpler.arm in verdict.tied and simpler.loss.value <= simpler.most_lost <= 0.3 * verdict.score_unit
    assert verdict.cheaper(0.3) == lax[0] and [each.arm for each in lax] == [
        arm for arm in verdict.tied if arm in {each.arm for each in lax}
    ]


def test_the_text_has_the_savings_of_a_simpler_arm(finished):
    text = " ".join(near_best_text(finished, 0.3).split())
    cheaper = finished.verdict.cheaper(0.3)
    assert text.startswith(f"best {finished.best().arm}:") and f"cheaper {cheaper.arm}:" in text
    assert "% fewer than the best arm" in text and f"loses at most {cheaper.most_lost:.3f} (95 %)" in text


@pytest.mark.parametrize("share", ["1", "-1%", "much", "100%"])
def test_a_share_outside_0_and_1_is_refused(finished, share):
    done = invoke("best", finished.folder.path, f"--within={share}")
    assert done.exit_code == 2 and "write 1% or 0.01" in done.output
