"""Whether the choice of a search holds on fresh items."""

from __future__ import annotations

import math

import pytest

from daskmetrics.answer.worth import fresh_items
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import Difference
from daskmetrics.core.results import Scored
from daskmetrics.report._sections import fresh_table

CHOSEN, *OTHERS = (Arm("small", "step8", layer) for layer in range(4))
SPREAD = 0.01  # standard error of a score, as a search recorded it


@pytest.fixture
def with_fresh(a_run, monkeypatch):
    """A run whose finalists have these fresh scores on every task, the chosen arm first."""

    def make(*fresh: float):
        run = a_run(budget=1.0)
        finalists = dict(zip((CHOSEN, *OTHERS), fresh, strict=False))
        scores = {
            arm: {task: Scored(score, SPREAD) for task in run.tasks}
            for arm, score in finalists.items()
        }
        monkeypatch.setattr(run, "fresh", scores)
        return run

    return make


@pytest.mark.parametrize(
    ("fresh", "best", "holds"),
    [
        ((0.5, 0.4, 0.47), CHOSEN, True),  # the highest
        ((0.5, 0.505, 0.4), OTHERS[0], True),  # lower within the error
        ((0.5, 0.4, 0.54), OTHERS[1], False),  # lower beyond it
        ((0.5, 0.516), OTHERS[0], False),  # 1.96 standard errors are rare for one rival,
        ((0.5, 0.516, 0.4, 0.4), OTHERS[0], True),  # and not for the best of three
    ],
)
def test_a_choice_holds_unless_a_rival_is_clearly_higher(with_fresh, fresh, best, holds):
    found = fresh_items(with_fresh(*fresh))
    assert (found.best, found.holds) == (best, holds)


def test_every_finalist_has_both_scores_and_its_distance_from_the_choice(with_fresh):
    run = with_fresh(0.5, 0.4)
    chosen, other = fresh_items(run).finalists
    searched = sum(run.recorded[CHOSEN][task].score for task in run.tasks) / 3
    assert chosen.searched[0] == pytest.approx(searched) and chosen.lead is None
    assert chosen.fresh == pytest.approx((0.5, math.sqrt(3) * SPREAD / 3))
    assert other.lead == Difference(
        pytest.approx(0.1), pytest.approx(math.sqrt(2 * 3) * SPREAD / 3), paired=False
    )
    rows = fresh_table(fresh_items(run)).rows
    assert [row[0] for row in rows] == [str(CHOSEN), str(OTHERS[0])]


def test_a_finalist_that_lacks_a_task_is_named(with_fresh, monkeypatch):
    run = with_fresh(0.5, 0.4, 0.3)
    monkeypatch.setitem(run.fresh, OTHERS[0], {})
    assert fresh_items(run).unscored == (OTHERS[0],)
    monkeypatch.setitem(run.fresh, CHOSEN, {})
    assert fresh_items(run) is None
