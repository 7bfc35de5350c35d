from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.bandit._clock import NO_CHECKPOINT, AssumedWorkers


def test_a_worker_keeps_its_checkpoint_and_another_worker_loads_the_next():
    workers = AssumedWorkers(2)
    assert workers.assign(5, 3.0) == 0
    assert workers.held == [NO_CHECKPOINT] and workers.now == 0.0
    assert workers.assign(6, 3.0) == 1
    assert workers.now == 3.0 and workers.held == [5, 6] and workers.finished == [0, 1]
    assert workers.assign(6, 1.0) == 1  # it holds this checkpoint
    assert workers.assign(7, 1.0) == 0


def test_scoring_existing_embeddings_loads_no_checkpoint():
    workers = AssumedWorkers(1)
    workers.assign(5, 1.0)
    workers.assign(6, 1.0, loads=False)
    assert workers.held == [5]


def test_advancing_ends_the_next_decision():
    workers = AssumedWorkers(3)
    workers.assign(0, 5.0)
    workers.assign(0, 2.0)
    assert workers.finished == [] and workers.now == 0.0
    assert workers.advance() and workers.finished == [1] and workers.now == 2.0
    workers.assign(0, 1.0)
    assert workers.order == [1, 2, 0]  # it begins at the time of its decision
    assert workers.advance() and workers.advance() and not workers.advance()
    assert workers.finished == [1, 2, 0]


def test_a_released_worker_is_free():
    workers = AssumedWorkers(2)
    workers.assign(4, float("inf"))
    workers.assign(5, float("inf"))
    workers.release(1)
    assert workers.held == [5]


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), max_size=40), st.integers(1, 5))
def test_finished_decisions_are_only_appended(costs, count):
    workers, before = AssumedWorkers(count), []
    for number, cost in enumerate(costs):
        assert number - len(workers.finished) < count
        assert workers.finished[: len(before)] == before
        before = workers.finished
        workers.assign(0, cost)
