from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.bandit.costs import NO_CHECKPOINT, AssumedWorkers, PaidCosts


def test_a_checkpoint_is_loaded_where_no_free_worker_holds_it(world):
    problem = world().problem
    problem = replace(
        problem, load_cost=np.full(len(problem.arms), 60.0), encode_cost=0 * problem.encode_cost
    )
    costs, price = PaidCosts(problem), problem.score_cost
    assert costs.charge(0, 0) == price[0, 0] + 60.0
    held = problem.checkpoint_index == 0
    np.testing.assert_array_equal(costs.cost([0])[held, 1:], price[held, 1:])
    np.testing.assert_array_equal(costs.cost([0])[~held], price[~held] + 60.0)
    assert costs.needs_encoding(1, 0)  # nothing is shared where encoding costs nothing
    assert costs.charge(1, 0, [3, 0]) == price[1, 0]


def test_existing_embeddings_need_no_checkpoint(world):
    problem = world().problem
    problem = replace(problem, load_cost=np.full(len(problem.arms), 60.0))
    costs = PaidCosts(problem)
    first = costs.charge(0, 0)
    assert first == pytest.approx(problem.score_cost[0, 0] + problem.encode_cost[0, 0] + 60.0)
    assert not costs.needs_encoding(1, 0)
    assert costs.cost()[1, 0] == problem.score_cost[1, 0]
    assert costs.cost()[1, 1] == pytest.approx(
        problem.score_cost[1, 1] + problem.encode_cost[1, 1] + 60.0
    )


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


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), max_size=40), st.integers(1, 5))
def test_finished_decisions_are_only_appended(costs, count):
    workers, before = AssumedWorkers(count), []
    for number, cost in enumerate(costs):
        assert number - len(workers.finished) < count
        assert workers.finished[: len(before)] == before
        before = workers.finished
        workers.assign(0, cost)
