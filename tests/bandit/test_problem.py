"""Arms, tasks, features and costs; what was paid, and the workers that a search assumes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.bandit import Outcome, arm_features
from daskmetrics.bandit.costs import NO_CHECKPOINT, AssumedWorkers, PaidCosts
from daskmetrics.core.errors import DataError
from daskmetrics.domain.names import Checkpoint, Suite
from tests.bandit.conftest import make_world

PROBLEM = make_world().problem
ONE_LOAD = np.full(len(PROBLEM.arms), 60.0)


def test_an_encoding_is_paid_once_per_checkpoint_and_task():
    problem = replace(PROBLEM, load_cost=ONE_LOAD)
    costs, score = PaidCosts(problem), problem.score_cost
    whole = score + problem.encode_cost + 60.0
    first, second = 0, 1  # two layers of one checkpoint
    np.testing.assert_allclose(costs.cost(), whole)
    assert costs.charge(first, 1) == pytest.approx(whole[first, 1])
    assert not costs.needs_encoding(second, 1)
    assert costs.cost()[second, 1] == score[second, 1]  # and no load
    assert costs.cost()[second, 2] == pytest.approx(whole[second, 2])
    assert costs.charge(second, 1) == score[second, 1]
    with pytest.raises(DataError, match="already paid"):
        costs.charge(first, 1)


def test_a_checkpoint_is_loaded_where_no_free_worker_holds_it():
    problem = replace(PROBLEM, load_cost=ONE_LOAD, encode_cost=0 * PROBLEM.encode_cost)
    costs, price = PaidCosts(problem), problem.score_cost
    assert costs.charge(0, 0) == price[0, 0] + 60.0
    held = problem.checkpoint_index == 0
    np.testing.assert_array_equal(costs.cost([0])[held, 1:], price[held, 1:])
    np.testing.assert_array_equal(costs.cost([0])[~held], price[~held] + 60.0)
    assert costs.needs_encoding(1, 0)  # nothing is shared where encoding costs nothing
    assert costs.charge(1, 0, [3, 0]) == price[1, 0]


def test_workers_keep_their_checkpoints():
    workers = AssumedWorkers(2)
    assert workers.assign(5, 3.0) == 0
    assert workers.held == [NO_CHECKPOINT] and workers.now == 0.0
    assert workers.assign(6, 3.0) == 1
    assert workers.now == 3.0 and workers.held == [5, 6] and workers.finished == [0, 1]
    assert workers.assign(6, 1.0) == 1  # it holds this checkpoint
    assert workers.assign(7, 1.0, loads=False) == 0  # of embeddings that exist
    assert workers.held == [5, 6]


@given(st.lists(st.floats(0, 100), max_size=40), st.integers(1, 5))
def test_finished_decisions_are_only_appended(costs, count):
    workers, before = AssumedWorkers(count), []
    for number, cost in enumerate(costs):
        assert number - len(workers.finished) < count
        assert workers.finished[: len(before)] == before
        before = workers.finished
        workers.assign(0, cost)


BY_ARM = np.arange(1.0, len(PROBLEM.arms) + 1)
UNFIT = [
    ({"encode_cost": PROBLEM.encode_cost * BY_ARM[:, None]}, "equal for all layers"),
    ({"score_cost": PROBLEM.score_cost[:, :2]}, r"score_cost must have the shape \(48, 5"),
    ({"score_cost": PROBLEM.score_cost * np.nan}, "score_cost must be finite"),
    ({"score_cost": -PROBLEM.score_cost}, "not negative"),
    ({"features": PROBLEM.features + np.inf}, "features must be finite"),
    ({"weights": (0.0,) * 5}, "must not all be 0"),
    ({"default": Checkpoint("large", "step999")}, "has no arm"),
    ({"load_cost": BY_ARM}, "load_cost must be equal for all layers"),
    ({"tasks": ("task0",) * 5}, "distinct"),
]


@pytest.mark.parametrize(("change", "message"), UNFIT, ids=[message for _, message in UNFIT])
def test_a_problem_that_does_not_fit_together_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        replace(PROBLEM, **change)


def test_the_default_arm_is_a_last_layer():
    own = [str(PROBLEM.arms[PROBLEM.default_arms[arm]]) for arm in (0, -1)]
    assert own == ["small@step256/3", "large@step256/3"]
    fixed = replace(PROBLEM, default=Checkpoint("small", "step4"))
    assert {str(fixed.arms[arm]) for arm in fixed.default_arms} == {"small@step4/3"}


def test_features_are_training_depth_and_model():
    suites = [Suite("a", ("step0", "step8"), (1,), 2), Suite("b", ("step0", "step2"), (4,), 4)]
    expected = [[0, 0.5, 1, 0], [1, 0.5, 1, 0], [0, 1, 0, 1], [1, 1, 0, 1]]
    np.testing.assert_array_equal(arm_features(suites), expected)
    read_twice = Suite("m", ("main",), (0, 1, 2), 2, ("last", "64d"))
    assert arm_features([read_twice])[:, 1].tolist() == [0, 0, 0.5, 0.5, 1, 1]


@pytest.mark.parametrize("outcome", [(float("nan"), 0.0), (0.5, float("inf")), (0.5, -0.1)])
def test_a_failure_is_never_a_number(outcome):
    with pytest.raises(DataError, match="finite"):
        Outcome(*outcome)
