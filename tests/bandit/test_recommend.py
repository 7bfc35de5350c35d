"""What the scores say: the best arm, its confidence, the best arm of every kind, and future rises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import simulate, true_objectives

from daskmetrics.bandit import Outcome, Problem, arm_features, policy_named
from daskmetrics.bandit.model import IncrementalPosterior
from daskmetrics.bandit.problem import Observations, task_weights
from daskmetrics.bandit.recommend import (
    CREDIBLE,
    champions,
    confidence,
    leader_confidence,
    margin_of,
    recommend,
    rise_forecast,
)
from daskmetrics.core.errors import ConfigError
from daskmetrics.domain.names import Arm, Cell, Suite, grid, step_of
from tests.bandit.conftest import make_world, observe, random_cells, state_after, state_of


def test_probabilities_are_those_of_the_draws():
    small = make_world()
    seen = observe(small, random_cells(small, 60))
    posterior = IncrementalPosterior(small.problem).posterior(seen)
    every = np.ones(len(posterior.mean), dtype=bool)
    of_arm = [confidence(posterior, arm, 0, every).best for arm in range(len(every))]
    assert sum(of_arm) == pytest.approx(1.0, abs=0.05)
    leader = int(posterior.mean.argmax())
    said = confidence(posterior, leader, 0, every)
    assert 0 < said.loss < said.most_lost < 5 * posterior.sd.max()
    alone = np.arange(len(of_arm)) == leader  # the others are not usable
    assert confidence(posterior, leader, 0, alone).best == 1.0
    credible = [of_arm[arm] for arm in said.credible]
    # each estimate has its own draws
    assert sum(credible[:-1]) - 0.03 < CREDIBLE <= sum(credible) + 0.03
    assert credible == pytest.approx(sorted(credible, reverse=True), abs=0.03)


def test_two_scores_do_not_give_high_confidence():
    seen = Observations.of([(0, 0, 0.500, 0.0), (9, 0, 0.501, 0.0)])
    posterior = IncrementalPosterior(make_world().problem).posterior(seen)
    leader = int(posterior.mean.argmax())
    usable = np.ones(len(posterior.mean), dtype=bool)
    # far more than normal draws of this variance would say
    assert confidence(posterior, leader, 0, usable).most_lost > 4 * posterior.sd.max()


def test_the_margin_is_a_share_of_the_mean_score():
    small = make_world()
    seen = observe(small, random_cells(small, 200))
    posterior = IncrementalPosterior(small.problem).posterior(seen)
    leader = int(posterior.mean.argmax())
    expected = 0.01 * small.scores[leader].mean()
    assert margin_of(posterior, leader, 0.01) == pytest.approx(expected, rel=0.3)


def with_noise(seed):
    """Twelve arms on three tasks, with scores that differ from smooth ones by noise."""
    small = make_world(seed=seed, revisions=2, layers=3, tasks=3)
    noise = np.random.default_rng(seed).normal(scale=0.02, size=small.scores.shape)
    return replace(small, scores=small.scores + noise)


EVERY_CELL = [(arm, task) for arm in range(12) for task in range(3)]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    seed=st.integers(0, 2**32 - 1),
    policy=st.sampled_from(["sweep", "random"]),
)
def test_an_exhaustive_search_recommends_the_greatest_mean(seed, policy):
    noisy = with_noise(seed)
    found = simulate(noisy.problem, noisy.table, policy_named(policy), budget=1.0, seed=seed)
    answer, objectives = found.recommendation, true_objectives(noisy.problem, noisy.table)
    np.testing.assert_allclose(objectives, noisy.scores.mean(axis=1))
    best = noisy.problem.arm_index[answer.arm]
    assert answer.confirmed
    assert objectives[best] == pytest.approx(objectives.max(), abs=1e-9)
    assert answer.best.measured == pytest.approx(objectives[best])
    assert answer.best.mean.score == pytest.approx(noisy.scores[best].mean())


def test_policies_decide_by_the_posterior_not_by_noisy_scores():
    """The posterior also uses the neighbours' scores, so its leader is not always the arm with the
    greatest mean.
    """
    states = [state_after(with_noise(seed), EVERY_CELL, seed=seed) for seed in range(12)]
    for state in states:
        state.finished.stderr[:] = 0.03
    assert all(state.scored.all() for state in states)
    assert 0 < sum(state.leader != state.recommended for state in states) < len(states)
    for state in states:
        assert state.leader == int(state.posterior.mean.argmax())
        best = state.recommended
        sure = confidence(state.posterior, best, state.seed, state.usable)
        assert leader_confidence(state, state) == sure


@settings(max_examples=settings.default.max_examples // 2)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.1, 1.0))
def test_no_listed_arm_is_above_one_with_greater_scores(seed, share):
    noisy = with_noise(seed)
    state = state_after(noisy, random_cells(noisy, round(36 * share), seed))
    found = recommend(state, state, 1.0, 1.0)
    assert found.arm == found.top[0] and len(set(found.top)) == 10
    top = np.array([noisy.problem.arm_index[arm] for arm in found.top])
    measured = state.measured[top[state.scored[top]]].tolist()
    assert measured == sorted(measured, reverse=True)
    assert found.best.scores
    if found.confirmed:
        assert found.best.measured == measured[0]


@pytest.mark.parametrize(("gap", "is_confirmed"), [(0.5, False), (0.0, True)])
def test_a_good_arm_that_lacks_a_score_beats_a_bad_one(gap, is_confirmed):
    """What was left of the budget completes no arm of the good model."""
    suites = [Suite(model, ("main",), tuple(range(6)), 5) for model in ("good", "bad")]
    ones = np.ones((12, 2))
    problem = Problem(grid(suites), ("s", "t"), arm_features(suites), ones, ones)
    cells = [(0, 0), (1, 0), (2, 1), (3, 1), (6, 0), (6, 1), (8, 0), (8, 1), (11, 0), (11, 1)]
    score = {arm: 0.3 + gap * (arm < 6) + 0.01 * np.sin(arm) for arm, _ in cells}
    finished = Observations.of((arm, task, score[arm], 0.01) for arm, task in cells)
    state = state_of(problem, finished, remaining=1.0)
    found = recommend(state, state, 10.0, 9.0)
    assert found.confirmed == is_confirmed == (found.arm.model == "bad")
    assert found.best.scores and found.probability_best > 0.05


def test_an_excluded_rival_must_be_scored_on_every_kind():
    """Searches that took them for excluded were sure and wrong on a table that was kept aside."""
    suite = Suite("m", ("step1", "step4"), tuple(range(4)), 3)
    ones = np.ones((8, 4))
    kinds = ("pairs", "pairs", "classes", "classes")
    problem = Problem(suite.arms(), ("s", "t", "u", "v"), arm_features([suite]), ones, ones)
    problem = replace(problem, kinds=kinds)
    # the best arm and two bad ones are scored on all tasks, the others on pairs
    cells = [(arm, task) for arm in range(8) for task in range(4 if arm in (0, 3, 6) else 2)]
    score = [0.8, 0.5, 0.5, 0.3, 0.5, 0.5, 0.3, 0.5]
    wobble = 0.004 * np.sin(np.arange(32)).reshape(8, 4)
    finished = Observations.of((a, t, score[a] + wobble[a, t], 0.001) for a, t in cells)
    state = state_of(problem, finished)
    assert state.recommended == 0
    assert leader_confidence(state, state).best <= 0.85


def test_the_mean_score_is_weighted_without_failed_arms():
    noisy = with_noise(0)
    problem = replace(noisy.problem, weights=(2.0, 1.0, 0.0))
    state = state_after(replace(noisy, problem=problem), EVERY_CELL)
    found = recommend(state, state, 1.0, 1.0)
    scores = noisy.scores @ [2 / 3, 1 / 3, 0]
    best = problem.arm_index[found.arm]
    assert found.best.mean.score == pytest.approx(scores.max()) == found.best.measured
    assert found.best.mean.stderr == pytest.approx(0.005 * np.hypot(2 / 3, 1 / 3))
    assert found.default.mean.score == pytest.approx(scores[problem.default_arms[best]])
    state = state_after(noisy, EVERY_CELL)
    best = int(noisy.scores.mean(axis=1).argmax())
    state.finished.score[(state.finished.arm == best) & (state.finished.task == 1)] = np.nan
    assert not state.scored[best] and state.scored.sum() == 11
    found = recommend(state, state, 1.0, 1.0)
    assert found.confirmed and found.arm != noisy.problem.arms[best]


OF_TASK = ("classes", "classes", "pairs", "pairs", "search")
KINDS = {f"task{i}": kind for i, kind in enumerate(OF_TASK)}


@pytest.mark.parametrize(
    ("objective", "weights", "message"),
    [
        ("pair", {}, r"Unknown objective 'pair'\. Did you mean 'pairs'"),
        ("all", {"tsk1": 2.0}, r"Unknown task in 'search.weights': 'tsk1'\. Did you mean 'task1'"),
        ("search", {"task4": 0.0}, "No task of the objective 'search' has a positive weight"),
    ],
)
def test_unknown_names_are_refused(objective, weights, message):
    with pytest.raises(ConfigError, match=message):
        task_weights(KINDS, objective, weights)


@pytest.mark.parametrize("objective", ["all", "pairs"])
def test_every_kind_has_its_own_best_arm_also_one_without_weight(objective):
    small = make_world(revisions=3)
    scores = small.scores.copy()
    scores[3, :2] += 1.0
    scores[7, 2:4] += 1.0
    scores[11, 4] += 1.0
    problem = replace(small.problem, weights=tuple(task_weights(KINDS, objective)))
    cells = list(np.ndindex(scores.shape))
    found = champions(state_after(replace(small, problem=problem, scores=scores), cells), KINDS)
    best = {kind: problem.arm_index[arm] for kind, arm in found.items()}
    assert best == {"classes": 3, "pairs": 7, "search": 11}
    assert champions(state_after(small, [(0, 0)]), dict.fromkeys(KINDS, "same")) == {}


def test_a_search_for_one_kind_confirms_no_other_task():
    small = make_world(seed=2)
    scores = small.scores.copy()
    scores[:, 2:4] = scores[::-1, 2:4]  # what is good at pairs is bad at everything else
    problem = replace(small.problem, weights=tuple(task_weights(KINDS, "pairs")))
    table = replace(small, problem=problem, scores=scores).table
    result = simulate(problem, table, policy_named("race"), budget=0.7, seed=0)
    answer, means = result.recommendation, scores.mean(axis=1)
    assert result.path[-1].loss < 0.01
    assert means[problem.arm_index[answer.arm]] < means.max()
    assert answer.confirmed
    assert {"task2", "task3"} <= set(answer.best.scores)
    confirmed = {pick.cell.task for pick in result.picks if pick.stage == "confirm"}
    assert confirmed <= {"task2", "task3"}


TASKS = {"s": 1.0, "t": 1.0}
FORECAST = {"share": 0.01, "ahead": 3, "seed": 0}


def forecast(curve, count):
    """Scores of four layers at every 100 steps, of which half are known, with errors of 0.01."""
    rng = np.random.default_rng(0)
    suite = Suite("m", tuple(f"step{100 * i}" for i in range(count)), (0, 1, 2, 3), 3)
    scores = {}
    for arm in suite.arms():
        for number, task in enumerate(TASKS):
            if arm.layer == 2 or rng.random() < 0.5:
                score = curve(step_of(arm.revision)) - 0.03 * abs(arm.layer - 2) + 0.05 * number
                scores[Cell(arm, task)] = Outcome(float(score + 0.01 * rng.standard_normal()), 0.01)
    layer = [arm for arm in suite.arms() if arm.layer == 2]
    best = max(layer, key=lambda arm: sum(scores[Cell(arm, task)].score for task in TASKS))
    kinds = {task: task for task in TASKS}
    given = {"tasks": TASKS, "kinds": kinds, **FORECAST}
    return rise_forecast([suite], scores, best, **given)


CURVES = {
    "rising": lambda step: 0.3 + 4e-4 * step,
    "flat": lambda step: 0.6,
    "falling": lambda step: 0.7 - 3e-4 * step,
    "saturated": lambda step: 0.7 - 0.4 * np.exp(-step / 100),
}


@pytest.mark.parametrize(
    ("curve", "count", "low", "high"),
    [
        ("rising", 10, 0.7, 1),
        ("flat", 10, 0, 0.1),
        ("falling", 10, 0, 0.01),
        ("saturated", 4, 0.4, 1),
        ("saturated", 16, 0, 0.2),
    ],
)
def test_a_score_that_rises_is_told_from_one_that_does_not(curve, count, low, high):
    assert low <= forecast(CURVES[curve], count).probability <= high


def test_too_few_checkpoints_or_steps_give_no_forecast():
    assert forecast(CURVES["rising"], 2) is None
    suite = Suite("m", ("step0", "step1", "step2", "main"), (0,), 1)
    scores = {Cell(arm, "s"): Outcome(0.5, 0.01) for arm in suite.arms()}
    given = {"tasks": {"s": 1.0}, "kinds": {"s": "s"}, **FORECAST}
    assert rise_forecast([suite], scores, Arm("m", "main", 0), **given) is None  # it has no step
    assert rise_forecast([suite], scores, Arm("m", "step1", 0), **given) is not None
