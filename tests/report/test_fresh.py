"""Whether the choice of a search holds on fresh items."""

from __future__ import annotations

import pytest

from daskmetrics.core._outcomes import Difference
from daskmetrics.core.names import Arm
from daskmetrics.report._fresh import Finalist, FreshItems, fresh_items

CHOSEN, *OTHERS = (Arm("m", "main", layer) for layer in range(5))


def finalists(*leads, error=0.01):
    """The chosen arm with a score of 0.5, and others that it exceeds by so much."""
    searched, change = Difference(0.55, 0.01, paired=False), Difference(-0.05, 0.02, paired=False)
    first = Finalist(CHOSEN, searched, Difference(0.5, 0.017, paired=False), change, None)
    others = [
        Finalist(arm, None, Difference(0.5 - lead, 0.017, paired=False), None, Difference(lead, error, paired=True))
        for arm, lead in zip(OTHERS, leads, strict=False)
    ]
    return FreshItems(0.3, (first, *others), ("s", "t"), (), clustering=False)


def test_a_choice_that_is_the_highest_on_fresh_items_holds():
    assert finalists(0.1, 0.03).verdict == "The choice holds: the next finalist, m@main/2, is lower by 0.030 ± 0.010."


def test_a_choice_that_is_lower_within_the_error_holds_within_it():
    assert "holds within the error: m@main/1 is higher by 0.010 ± 0.010" in finalists(-0.01, 0.1).verdict


def test_a_choice_that_is_clearly_lower_does_not_hold():
    verdict = finalists(0.1, -0.04).verdict
    assert "does not hold: m@main/2 is higher by 0.040 ± 0.010" in verdict and verdict.endswith("Prefer m@main/2.")


@pytest.mark.parametrize(("rivals", "held"), [(1, False), (4, True)])
def test_more_rivals_need_a_clearer_difference(rivals, held):
    """1.9 standard errors are rare for one rival, and not for the best of four."""
    others = [0.1] * (rivals - 1)
    assert ("holds within the error" in finalists(-0.019, *others).verdict) is held


def test_the_sentence_says_how_far_the_score_of_the_search_was_off():
    sentence = finalists(0.1).sentence
    assert "30 % of the items of 2 tasks were kept back" in sentence and "-0.050 ± 0.020" in sentence


def test_the_table_has_a_row_for_each_finalist():
    text = finalists(0.1, 0.03).table.as_text()
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["m@main/0", "m@main/1", "m@main/2"]
    assert "not measured" in text


def test_a_run_that_kept_nothing_back_has_no_such_paragraph(finished):
    assert fresh_items(finished) is None
