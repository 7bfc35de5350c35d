from __future__ import annotations

import pytest

from daskmetrics.answer.posterior import posterior_of
from daskmetrics.core.errors import ConfigError
from daskmetrics.report import explain_tables, within_table
from daskmetrics.report._format import candidate
from tests.report.conftest import invoke, text_of


def test_an_explanation_has_the_posterior_the_rank_the_decisions_and_the_features(finished):
    text = text_of(*explain_tables(finished, str(finished.best().arm)))
    assert f"1 of {len(posterior_of(finished).problem.arms)}" in text
    assert "the recommended one" in text
    for word in ("decisions:", "curvature", "stdlib:order", "nats", "% of the layers"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100


def test_an_arm_that_was_never_chosen_is_explained(finished):
    paid = {cell.arm for cell in finished.cells.values()}
    never = next(arm for arm in posterior_of(finished).problem.arms if arm not in paid)
    text = text_of(*explain_tables(finished, str(never)))
    assert "never:" in text and "is expected to be better by" in text and "not measured" in text


def test_an_arm_is_explained_by_the_name_of_equal_weights(a_run):
    run = a_run(aliases={"small@step8": ("main",)})
    assert text_of(*explain_tables(run, "small@main/2")) == text_of(
        *explain_tables(run, "small@step8/2")
    )


def test_the_error_for_an_unknown_arm_has_the_nearest_names(finished):
    with pytest.raises(ConfigError, match=r"Did you mean 'small@step8/\d'"):
        text_of(*explain_tables(finished, "small@step8/9"))


def test_the_text_has_the_savings_of_a_simpler_arm(finished):
    text = " ".join(text_of(within_table(finished, 0.3)).split())
    simpler = finished.verdict.cheaper(0.3)
    assert candidate(finished.best().arm) in text and f"Cheaper {candidate(simpler.arm)}" in text
    assert f"at most {simpler.most_lost:.3f} (95 %)" in text and "weights in place of" in text
    assert "none loses" in text_of(within_table(finished, 1e-9))


@pytest.mark.parametrize("share", ["1", "-1%", "much", "100%"])
def test_a_share_outside_0_and_1_is_refused(finished, share):
    done = invoke("best", finished.folder.path, f"--within={share}")
    assert done.exit_code == 2 and "write 1% or 0.01" in done.output
