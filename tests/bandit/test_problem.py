from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit import Learner, Outcome, Pick, State, arm_features, policy_named
from daskmetrics.bandit.costs import PaidCosts
from daskmetrics.bandit.problem import Observations
from daskmetrics.bandit.recommend import leader_confidence
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Checkpoint, Suite


def test_an_encoding_is_paid_once_per_checkpoint_and_task(world):
    problem = world().problem
    first, second = 0, 1  # two layers of one checkpoint
    costs = PaidCosts(problem)
    assert costs.cost()[second, 1] == problem.encode_cost[second, 1] + problem.score_cost[second, 1]
    costs.charge(first, 1)
    assert costs.cost()[second, 1] == problem.score_cost[second, 1]
    assert costs.cost()[second, 2] == problem.encode_cost[second, 2] + problem.score_cost[second, 2]
    assert costs.charge(second, 1) == problem.score_cost[second, 1]


def test_paying_for_all_cells_costs_the_exhaustive_cost_in_any_order(world):
    problem = world().problem
    cells = np.argwhere(np.ones(problem.score_cost.shape, dtype=bool))
    for seed in range(3):
        costs = PaidCosts(problem)
        for arm, task in np.random.default_rng(seed).permutation(cells):
            costs.charge(arm, task)
        assert costs.spent == pytest.approx(problem.exhaustive_cost)
        assert not costs.cost().any()


def test_a_cell_cannot_be_bought_twice(world):
    costs = PaidCosts(world().problem)
    costs.charge(0, 0)
    with pytest.raises(DataError, match="already paid"):
        costs.charge(0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda p: {"encode_cost": p.encode_cost * np.arange(1, len(p.arms) + 1)[:, None]},
            "equal for all layers",
        ),
        (lambda p: {"score_cost": p.score_cost[:, :2]}, r"score_cost must have the shape \(48, 5"),
        (lambda p: {"score_cost": p.score_cost * np.nan}, "score_cost must be finite"),
        (lambda p: {"score_cost": -p.score_cost}, "not negative"),
        (lambda p: {"features": p.features[:, :2]}, r"features must have the shape \(48, 4\)"),
        (lambda p: {"features": p.features / 0.0}, "features must be finite"),
        (lambda p: {"weights": (0.0,) * len(p.tasks)}, "must not all be 0"),
        (lambda p: {"default": Checkpoint("large", "step999")}, "has no arm"),
        (lambda p: {"load_cost": np.full(3, 1.0)}, "load_cost must have the shape"),
        (
            lambda p: {"load_cost": np.arange(len(p.arms)) * 1.0},
            "load_cost must be equal for all layers",
        ),
        (lambda p: {"tasks": ("task0",) * len(p.tasks)}, "distinct"),
    ],
)
def test_a_problem_that_does_not_fit_together_is_refused(world, change, message):
    problem = world().problem
    with np.errstate(all="ignore"):
        changed = change(problem)
    with pytest.raises(DataError, match=message):
        replace(problem, **changed)


def test_the_default_arm_is_the_last_layer_of_the_models_own_last_checkpoint_or_of_a_given_one(
    world,
):
    problem = world().problem
    small, large = problem.default_arms[0], problem.default_arms[-1]
    assert (
        str(problem.arms[small]) == "small@step256/3"
        and str(problem.arms[large]) == "large@step256/3"
    )
    fixed = replace(problem, default=Checkpoint("small", "step4"))
    assert {str(problem.arms[arm]) for arm in fixed.default_arms} == {"small@step4/3"}


def test_two_suites_differ_in_their_model_columns():
    suites = [Suite("a", ("step0", "step8"), (1,), 2), Suite("b", ("step0", "step2"), (4,), 4)]
    expected = [[0, 0.5, 1, 0], [1, 0.5, 1, 0], [0, 1, 0, 1], [1, 1, 0, 1]]
    np.testing.assert_array_equal(arm_features(suites), expected)


def test_observations_do_not_depend_on_their_order():
    rows = [(2, 0, 0.3, 0.1), (0, 1, 0.2, 0.1), (0, 0, 0.1, 0.1)]
    one, other = (Observations.of(some).by_cell() for some in (rows, reversed(rows)))
    assert one.arm.tolist() == other.arm.tolist() == [0, 0, 2]
    assert one.score.tolist() == other.score.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("outcome", [(float("nan"), 0.0), (0.5, float("inf")), (0.5, -0.1)])
def test_a_failure_is_never_a_number(outcome):
    with pytest.raises(DataError, match="finite"):
        Outcome(*outcome)


@pytest.fixture
def looking(world):
    """A problem with a look at its first task."""
    whole = world().problem
    tasks, arms = len(whole.tasks), len(whole.arms)
    return replace(
        whole,
        tasks=(*whole.tasks, "look"),
        encode_cost=np.column_stack([whole.encode_cost, whole.encode_cost[:, 0] / 16]),
        score_cost=np.column_stack([whole.score_cost, np.ones(arms)]),
        kinds=(*whole.kind_names, whole.kind_names[0]),
        weights=(*[1.0] * tasks, 0.0),
        looks=(*[False] * tasks, True),
    )


def test_looks_have_no_weight_and_are_no_part_of_the_exhaustive_cost(world, looking):
    assert looking.exhaustive_cost == pytest.approx(world().problem.exhaustive_cost)
    with pytest.raises(DataError, match="the weight of a look must be 0"):
        replace(looking, weights=None)


def test_an_arm_with_looks_alone_is_never_recommended(looking):
    first, other, look = 0, len(looking.arms) - 1, len(looking.tasks) - 1
    cells = [(first, 0, 0.5), (first, look, 0.4), (other, look, 0.9)]
    picks = [
        Pick(i, looking.cell(arm, task), "search", 0.0, {}, known=i)
        for i, (arm, task, _) in enumerate(cells)
    ]
    learner = Learner(looking, policy_named("race"), budget=0.5, window=1, seed=0, decided=picks)
    for i, (_, _, score) in enumerate(cells):
        learner.tell(i, Outcome(score, 0.01))
    # what confirms the leader is not spent on looks
    state = learner.state
    missing = state.confirming_cost[state.leader]
    kept, more = (replace(state, remaining=missing + cost, budget=2 * missing) for cost in (0, 9))
    assert not kept.open[:, look].any() and more.open[:, look].any()
    best = learner.recommendation()
    assert best.arm == looking.arms[first]
    assert best.best.scores.keys() == {looking.tasks[0]}
    assert (best.cells, best.looks) == (1, 2)
    # Laplace's rule of succession counts arms with a score
    assert best.probability_within <= 2 / 3


def test_arms_with_looks_alone_limit_the_confidence_as_arms_without_scores_do(looking):
    scored, look = (0, 2, 24, 47), len(looking.tasks) - 1
    cells = [(arm, task) for arm in scored for task in range(look)]
    cells += [(arm, look) for arm in range(len(looking.arms))]
    finished = Observations.of((arm, task, 0.1 + 0.8 * (arm == 0), 0.001) for arm, task in cells)
    paid = np.zeros_like(looking.score_cost, dtype=bool)
    paid[finished.arm, finished.task] = True
    pending = np.zeros((0, 2), dtype=int)
    state = State(looking, finished, pending, paid, looking.score_cost, np.inf, 0)
    assert leader_confidence(state, 0.01).within <= 5 / 6
