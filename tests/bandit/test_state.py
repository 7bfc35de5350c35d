"""Every model is looked at before any is compared, whatever it costs and whatever fails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daskmetrics.bandit import (
    Budget,
    Learner,
    Outcome,
    Problem,
    arm_features,
    least_budget,
    policy_named,
)
from daskmetrics.bandit._state import covering_costs
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Suite, grid

LAYERS = 4


def made_problem(
    models: int, seed: int, kinds: tuple[str, ...] = ("pairs", "pairs", "classes")
) -> Problem:
    """Models with one to three checkpoints, whose encodings cost from 1 to 100."""
    rng = np.random.default_rng(seed)
    checkpoints = [
        tuple(f"step{step}" for step in range(rng.integers(1, 4))) for _ in range(models)
    ]
    suites = [
        Suite(f"m{i}", names, tuple(range(LAYERS)), LAYERS - 1)
        for i, names in enumerate(checkpoints)
    ]
    arms = grid(suites)
    price = {suite.model: 100 ** rng.random() for suite in suites}
    task_price = 10 ** rng.random(len(kinds))
    encode = np.array([price[arm.model] for arm in arms])[:, None] * task_price
    return Problem(
        arms=arms,
        tasks=tuple(f"task{i}" for i in range(len(kinds))),
        features=arm_features(suites),
        encode_cost=encode,
        score_cost=0.05 * np.ones_like(encode),
        kinds=kinds,
        load_cost=np.array([0.1 * price[arm.model] for arm in arms]),
    )


def made_scores(problem: Problem, seed: int, gap: float) -> np.ndarray:
    """Scores (A, T) of models that differ by multiples of a gap, whose layers and tasks differ by
    less.
    """
    rng = np.random.default_rng(seed)
    merit = 0.5 + gap * rng.permutation(len(problem.models))
    within = abs(gap) / 4 * rng.random((len(problem.arms), len(problem.tasks)))
    return merit[problem.model_index][:, None] + within


def search(problem, scores, budget, seed=0, policy="race", fails=lambda cell: False, window=1):
    """Run a search to its end."""
    learner = Learner(problem, policy_named(policy), budget=budget, window=window, seed=seed)
    while not learner.done:
        for pick in learner.ask(window):
            arm, task = problem.locate(pick.cell)
            learner.tell(
                pick.index, Outcome(None if fails(pick.cell) else float(scores[arm, task]), 0.005)
            )
    return learner


@settings(max_examples=settings.default.max_examples // 2)
@given(
    models=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    gap=st.floats(-0.09, 0.09),
    share=st.floats(0, 0.98),
    policy=st.sampled_from(["race", "sweep", "random"]),
    window=st.sampled_from([1, 4]),
)
def test_no_arm_of_a_worse_model_is_the_answer_while_a_better_model_has_no_score(
    models, seed, gap, share, policy, window
):
    problem = made_problem(models, seed)
    scores = made_scores(problem, seed, gap)
    least = least_budget(problem)
    budget = Budget(cost=least + share * (problem.exhaustive_cost - least))
    learner = search(problem, scores, budget, seed, policy, window=window)
    scored = {pick.cell.arm.model for pick in learner.picks}
    assert scored == set(problem.models)
    answer = learner.recommendation()
    own_cells = {pick.cell for pick in learner.picks if pick.cell.arm == answer.arm}
    assert own_cells and len(answer.best.scores) == len(own_cells)
    kinds_seen = {
        (pick.cell.arm.model, problem.kinds[problem.tasks.index(pick.cell.task)])
        for pick in learner.picks
    }
    if models > 1:
        assert len(kinds_seen) == models * 2
    assert learner.spent <= learner.budget * (1 + 1e-9)
    best_model = problem.arms[int(scores.mean(axis=1).argmax())].model
    complete = {problem.arms[arm].model for arm in np.flatnonzero(learner.state.scored)}
    if abs(gap) > 0.03 and best_model in complete:
        assert answer.arm.model == best_model
    assert not complete or answer.arm.model in complete or not answer.confirmed


@settings(max_examples=settings.default.max_examples // 2)
@given(
    models=st.integers(2, 4),
    seed=st.integers(0, 2**32 - 1),
    share=st.floats(0, 0.98),
    window=st.sampled_from([1, 4]),
)
# what is left in the end does not pay for the leader's missing score, but for that of another layer
@example(models=2, seed=7157, share=0.25, window=1)
def test_the_better_model_is_the_answer_where_each_kind_has_one_task(models, seed, share, window):
    """Its looks are of one arm, which has a score on every task then, and can be compared."""
    problem = made_problem(models, seed, ("pairs", "classes"))
    scores = made_scores(problem, seed, 0.09)
    least = least_budget(problem)
    budget = Budget(cost=least + share * (problem.exhaustive_cost - least))
    answer = search(problem, scores, budget, seed, window=window).recommendation()
    assert answer.arm.model == problem.arms[int(scores.mean(axis=1).argmax())].model


@pytest.mark.parametrize("seed", range(2))
def test_the_first_decisions_are_a_cheap_score_of_each_model(seed):
    problem = made_problem(4, seed)
    learner = search(problem, made_scores(problem, seed, 0.05), budget=0.6)
    first = learner.picks[:4]
    assert [pick.stage for pick in first] == ["cover"] * 4
    assert sorted(pick.cell.arm.model for pick in first) == sorted(problem.models)
    for pick in first:
        model = problem.models.index(pick.cell.arm.model)
        cheapest = covering_costs(problem)[model].min()
        assert pick.cost <= 2 * cheapest * (1 + 1e-9)


def test_a_budget_that_does_not_pay_for_a_look_at_every_model_is_refused_with_one_that_does():
    problem = made_problem(3, seed=1)
    least = least_budget(problem) / problem.exhaustive_cost
    with pytest.raises(
        ConfigError, match=r"each of 3 models on each kind of task.*search.budget=0.*auto"
    ) as info:
        Learner(problem, policy_named("race"), budget=0.9 * least, window=1, seed=0)
    advised = float(str(info.value).partition("search.budget=")[2].partition(",")[0])
    assert least <= advised <= least + 0.001
    Learner(problem, policy_named("race"), budget=advised, window=1, seed=0)
    with pytest.raises(ConfigError, match=r"takes 6: set search\.cells=6"):
        Learner(problem, policy_named("race"), budget=Budget(share=1.0, cells=5), window=1, seed=0)


def test_a_single_model_needs_one_score():
    problem = made_problem(1, seed=2)
    cheapest = (problem.encode_cost + problem.score_cost + problem.load_costs[:, None]).min()
    assert least_budget(problem) == pytest.approx(cheapest)
    with pytest.raises(ConfigError, match="but a single score, with its encoding, takes"):
        Learner(problem, policy_named("race"), budget=Budget(cost=0.9 * cheapest), window=1, seed=0)


def test_a_model_whose_cells_fail_is_tried_on_other_encodings_and_then_given_up():
    problem = made_problem(3, seed=5)
    broken = "m1"
    learner = search(
        problem,
        made_scores(problem, 5, 0.05),
        budget=0.95,
        fails=lambda cell: cell.arm.model == broken,
    )
    tried = [
        pick.cell
        for pick in learner.picks
        if pick.cell.arm.model == broken and pick.stage == "cover"
    ]
    encodings = {(cell.arm.checkpoint, cell.task) for cell in tried}
    assert len(encodings) == len(tried) > 1
    assert learner.recommendation().arm.model != broken


@pytest.mark.parametrize("order", [1, -1])
def test_the_gain_does_not_depend_on_the_order_of_the_models(order):
    suites = [Suite("good", ("main",), (0, 1), 1), Suite("bad", ("main",), (0, 1), 1)][::order]
    arms = grid(suites)
    ones = np.ones((len(arms), 1))
    problem = Problem(arms, ("t",), arm_features(suites), ones, ones)
    scores = np.array(
        [[{"good": 0.8, "bad": 0.3}[arm.model] + 0.01 * (arm.layer == 0)] for arm in arms]
    )
    answer = search(problem, scores, budget=1.0).recommendation()
    assert str(answer.arm) == "good@main/0" and str(answer.default.arm) == "good@main/1"
