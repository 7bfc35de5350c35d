from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit import Outcome
from daskmetrics.bandit._costs import PaidCosts, cost_correction
from daskmetrics.bandit._problem import OutcomeArrays


def test_a_checkpoint_is_loaded_where_no_free_worker_holds_it(world):
    problem = world().problem
    problem = replace(problem, load_cost=np.full(len(problem.arms), 60.0), encode_cost=0 * problem.encode_cost)
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
    assert costs.cost()[1, 1] == pytest.approx(problem.score_cost[1, 1] + problem.encode_cost[1, 1] + 60.0)


def test_without_measured_seconds_no_cost_is_corrected(world):
    small = world()
    assert (cost_correction(small.problem, OutcomeArrays.of([((0, 0), Outcome(0.5))])) == 1).all()


def test_a_slow_model_and_a_slow_task_are_corrected_and_jitter_is_ignored(world):
    problem = world().problem
    rng = np.random.default_rng(0)
    cells = [(int(a), int(t)) for a, t in rng.permutation(np.argwhere(problem.score_cost > 0))[:120]]
    large = problem.features[:, 3] == 1
    slow = [8.0 ** large[a] * 16.0 ** (t == 2) * rng.uniform(0.9, 1.1) for a, t in cells]
    outcomes = [Outcome(0.5, seconds=s * problem.score_cost[c]) for s, c in zip(slow, cells, strict=True)]
    factor = cost_correction(problem, OutcomeArrays.of(zip(cells, outcomes, strict=True)))
    assert (factor[large] == 8 * factor[~large][0]).all()
    assert (factor[:, 2] == 16 * factor[:, 0]).all()
    assert np.ptp(factor[~large][:, [0, 1, 3, 4]]) == 0
