"""What the entries of a journal say together."""

from __future__ import annotations

from daskmetrics.domain.events import (
    RunFinished,
    SearchEnded,
    StoreCreated,
    ended_search,
    is_finished,
)
from daskmetrics.domain.names import Arm
from daskmetrics.domain.recommendation import ArmSummary, Recommendation
from tests.events import planned


def test_a_plan_that_comes_back_finds_the_end_of_its_own_search():
    arm = ArmSummary(Arm("m", "main", 1), 0.0, 1.0, {})
    best = Recommendation(arm, arm, True, 0.5, 0.5, 0.01, (), (), 1, 0, 1.0, 1.0, 1.0)
    first, second, other = (SearchEnded(key, best, {}, (), {}, "sure") for key in ("a", "a", "b"))
    assert ended_search([first, second, other], "a") is second
    assert ended_search([first, other], "b") is other
    assert ended_search([first], "b") is None and ended_search([], "a") is None


def test_a_plan_that_came_back_is_finished_with_its_own_store():
    one, other = planned(seed=1), planned(seed=2)
    stores = {plan.seed: StoreCreated(plan.store_key, {}) for plan in (one, other)}
    entries = [one, stores[1], RunFinished(one.key, 1.0)]
    assert is_finished(entries)
    entries += [other, stores[2], one]
    assert not is_finished(entries)
    assert is_finished([*entries, stores[1]])
