from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Arm
from daskmetrics.report._explain import arms_near_best, explain_text, near_best_text
from daskmetrics.report._posterior import posterior_of

WIDTHS = {"tiny": 32, "small": 64}


def invoke(*words: object):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def sized(finished, monkeypatch):
    monkeypatch.setattr(finished, "start", replace(finished.start, widths=WIDTHS))
    return finished


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


def test_every_arm_near_the_best_is_listed_cheapest_first(sized):
    posterior = posterior_of(sized)
    best = posterior.problem.arms[posterior.leader]
    strict, lax = (arms_near_best(posterior, within, 0.5) for within in (0.001, 0.3))
    assert best in [one.arm for one in strict] and len(strict) < len(lax) <= len(posterior.problem.arms)
    assert [one.flops for one in lax] == sorted(one.flops for one in lax)
    for one in lax:
        assert one.parameters == 12 * WIDTHS[one.arm.model] ** 2 * one.arm.layer


def test_the_text_has_the_savings_of_arms_near_the_best(sized):
    text = near_best_text(sized, 0.3, 0.5)
    assert (
        "shallowest" in text
        and "earliest" in text
        and "% fewer than the best arm" in text
        and "good enough with probability" in text
    )


@pytest.mark.parametrize("share", ["1", "-1%", "much", "100%"])
def test_a_share_outside_0_and_1_is_refused(finished, share):
    done = invoke("best", finished.folder.path, f"--within={share}")
    assert done.exit_code == 2 and "write 1% or 0.01" in done.output
