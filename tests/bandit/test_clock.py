from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.bandit._clock import NOTHING, Fleet


def test_a_worker_keeps_its_checkpoint_and_another_is_loaded_beside_it():
    fleet = Fleet(2)
    assert fleet.give(5, 3.0) == 0
    assert fleet.held == [NOTHING] and fleet.now == 0.0
    assert fleet.give(6, 3.0) == 1
    assert fleet.now == 3.0 and fleet.held == [5, 6] and fleet.over == [0, 1]
    assert fleet.give(6, 1.0) == 1  # it holds that
    assert fleet.give(7, 1.0) == 0


def test_embeddings_leave_the_checkpoint_where_it_is():
    fleet = Fleet(1)
    fleet.give(5, 1.0)
    fleet.give(6, 1.0, loads=False)
    assert fleet.held == [5]


def test_waiting_lets_the_next_one_end():
    fleet = Fleet(3)
    fleet.give(0, 5.0)
    fleet.give(0, 2.0)
    assert fleet.over == [] and fleet.now == 0.0
    assert fleet.wait() and fleet.over == [1] and fleet.now == 2.0
    fleet.give(0, 1.0)
    assert fleet.order == [1, 2, 0]  # begun when it was decided on
    assert fleet.wait() and fleet.wait() and not fleet.wait()
    assert fleet.over == [1, 2, 0]


def test_who_has_really_ended_is_free():
    fleet = Fleet(2)
    fleet.give(4, float("inf"))
    fleet.give(5, float("inf"))
    fleet.free(1)
    assert fleet.held == [5]


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), max_size=40), st.integers(1, 5))
def test_what_is_over_only_grows_at_its_end(costs, workers):
    fleet, before = Fleet(workers), []
    for number, cost in enumerate(costs):
        assert number - len(fleet.over) < workers
        assert fleet.over[: len(before)] == before
        before = fleet.over
        fleet.give(0, cost)
