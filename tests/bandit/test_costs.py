from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit._costs import Ledger


def test_a_checkpoint_is_loaded_where_no_free_worker_holds_it(world):
    problem = world().problem
    problem = replace(problem, load_cost=np.full(len(problem.arms), 60.0), encode_cost=0 * problem.encode_cost)
    ledger, price = Ledger(problem), problem.score_cost
    assert ledger.charge(0, 0) == price[0, 0] + 60.0
    held = problem.checkpoint_index == 0
    np.testing.assert_array_equal(ledger.cost([0])[held, 1:], price[held, 1:])
    np.testing.assert_array_equal(ledger.cost([0])[~held], price[~held] + 60.0)
    assert ledger.needs_model(1, 0)  # nothing is shared where encoding costs nothing
    assert ledger.charge(1, 0, [3, 0]) == price[1, 0]


def test_embeddings_that_are_there_need_no_checkpoint(world):
    problem = world().problem
    problem = replace(problem, load_cost=np.full(len(problem.arms), 60.0))
    ledger = Ledger(problem)
    first = ledger.charge(0, 0)
    assert first == pytest.approx(problem.score_cost[0, 0] + problem.encode_cost[0, 0] + 60.0)
    assert not ledger.needs_model(1, 0)
    assert ledger.cost()[1, 0] == problem.score_cost[1, 0]
    assert ledger.cost()[1, 1] == pytest.approx(problem.score_cost[1, 1] + problem.encode_cost[1, 1] + 60.0)
