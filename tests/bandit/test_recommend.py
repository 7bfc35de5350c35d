from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.bandit import Outcome, policy_named
from daskmetrics.bandit._posterior import fit_posterior
from daskmetrics.bandit._problem import Observations
from daskmetrics.bandit._recommend import CREDIBLE, confidence, leader_confidence, margin_of, recommend
from daskmetrics.bandit._simulate import simulate, true_objectives


def observe(world, n):
    cells = np.random.default_rng(0).permutation(np.argwhere(np.isfinite(world.scores)))[:n]
    return Observations.of((int(a), int(t), float(world.scores[a, t]), 0.005) for a, t in cells)


def test_probabilities_are_those_of_the_draws(world):
    small = world()
    posterior = fit_posterior(small.problem, observe(small, 60))
    each = [confidence(posterior, arm, 0.0, 0).best for arm in range(len(small.problem.arms))]
    assert sum(each) == pytest.approx(1.0, abs=0.05)
    leader = int(posterior.mean.argmax())
    wider = [confidence(posterior, leader, margin, 0).within for margin in (0.0, 0.01, 0.1, 10.0)]
    assert wider == sorted(wider) and wider[-1] == 1.0


def test_the_credible_set_is_the_smallest_with_the_required_probability(world):
    small = world()
    posterior = fit_posterior(small.problem, observe(small, 60))
    sure = confidence(posterior, int(posterior.mean.argmax()), 0.0, 0)
    each = [confidence(posterior, arm, 0.0, 0).best for arm in sure.credible]
    assert sum(each[:-1]) - 0.03 < CREDIBLE <= sum(each) + 0.03  # each estimate has its own draws
    assert each == pytest.approx(sorted(each, reverse=True), abs=0.03)


def test_unusable_arms_are_ignored(world):
    small = world()
    posterior = fit_posterior(small.problem, observe(small, 60))
    leader = int(posterior.mean.argmax())
    alone = np.arange(len(small.problem.arms)) == leader
    assert confidence(posterior, leader, 0.0, 0, alone).best == 1.0


def test_two_scores_do_not_give_high_confidence(world):
    small = world()
    seen = Observations.of([(0, 0, 0.500, 0.0), (9, 0, 0.501, 0.0)])
    posterior = fit_posterior(small.problem, seen)
    leader = int(posterior.mean.argmax())
    margin = margin_of(posterior, leader, seen, 0.01)
    assert margin > 4 * posterior.sd.max()
    assert confidence(posterior, leader, margin, 0).within < 0.9


@pytest.mark.parametrize("reward", ["mean", "running"])
def test_the_margin_is_a_share_of_the_mean_score(world, reward):
    small = world(reward=reward)
    seen = observe(small, 200)
    posterior = fit_posterior(small.problem, seen)
    leader = int(posterior.mean.argmax())
    margin = margin_of(posterior, leader, seen, 0.01)
    raw = 0.01 * small.scores[leader].mean()
    unit = 1.0 if reward == "mean" else np.median(small.scores.std(axis=0))
    assert margin == pytest.approx(raw / unit, rel=0.3)


def with_noise(small, seed):
    """The same arms and tasks, with scores that differ from the smooth ones by noise."""
    noise = np.random.default_rng(seed).normal(scale=0.02, size=small.scores.shape)
    return replace(small, scores=small.scores + noise)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    reward=st.sampled_from(["mean", "zscore", "running", "rank", "harmonic", "robust"]),
    policy=st.sampled_from(["sweep", "random"]),
)
def test_an_exhaustive_search_recommends_the_arm_with_the_greatest_mean(world, seed, reward, policy):
    noisy = with_noise(world(seed=seed, reward=reward, revisions=2, layers=3, tasks=3), seed)
    found = simulate(noisy.problem, noisy.table, policy_named(policy), budget=1.0, seed=seed)
    objectives = true_objectives(noisy.problem, noisy.table)
    if reward == "mean":
        np.testing.assert_allclose(objectives, noisy.scores.mean(axis=1))
    best = noisy.problem.arm_index[found.recommendation.arm]
    assert objectives[best] == pytest.approx(objectives.max(), abs=1e-9) and found.recommendation.confirmed
    assert found.recommendation.best.measured == pytest.approx(objectives[best])
    assert found.recommendation.best.mean.score == pytest.approx(noisy.scores[best].mean())


def test_policies_decide_by_the_posterior_where_noisy_scores_name_another_arm(world, after):
    """The posterior also uses the neighbours' scores, so its leader is not always the arm with the greatest mean."""
    cells = [(arm, task) for arm in range(12) for task in range(3)]
    states = [
        after(with_noise(world(seed=seed, revisions=2, layers=3, tasks=3), seed), cells, seed=seed)
        for seed in range(12)
    ]
    states = [replace(each, outcomes=[Outcome(out.score, 0.03) for out in each.outcomes]) for each in states]
    assert all(state.scored.all() for state in states)
    assert 0 < sum(state.leader != state.recommended for state in states) < len(states)
    for state in states:
        assert state.leader == int(state.posterior.mean.argmax())
        sure = leader_confidence(state, 0.01)
        margin = margin_of(state.posterior, state.recommended, state.observations, 0.01)
        assert sure == confidence(state.posterior, state.recommended, margin, state.seed, state.usable)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.1, 1.0))
def test_no_listed_arm_is_above_one_with_greater_scores(world, after, draw, seed, share):
    noisy = with_noise(world(seed=seed, revisions=2, layers=3, tasks=3), seed)
    state = after(noisy, draw(noisy, round(36 * share), seed))
    found = recommend(state, 1.0, 1.0)
    assert found.arm == found.top[0].arm and len({each.arm for each in found.top}) == 10
    measured = [each.measured for each in found.top if each.measured is not None]
    assert measured == sorted(measured, reverse=True)
    assert all((each.measured is not None) == (len(each.scores) == 3) for each in found.top)
    if state.scored.any():
        assert found.confirmed and found.best.measured == max(measured)
    else:
        assert not found.confirmed and found.best.scores


def test_an_arm_with_a_failed_cell_has_not_all_scores(world, after):
    small = world(revisions=2, layers=3, tasks=3)
    best = int(small.scores.mean(axis=1).argmax())
    state = after(small, [(arm, task) for arm in range(12) for task in range(3)])
    failed = [
        replace(one, score=None) if cell == (best, 1) else one
        for cell, one in zip(state.cells, state.outcomes, strict=True)
    ]
    state = replace(state, outcomes=failed)
    assert state.complete[best] and not state.scored[best] and state.scored.sum() == 11
    found = recommend(state, 1.0, 1.0)
    assert found.confirmed and found.arm != state.problem.arms[best]


def test_the_mean_score_has_the_weights_of_the_objective(world, after):
    small = world(revisions=2, layers=3, tasks=3)
    weighted = replace(small, problem=replace(small.problem, weights=(2.0, 1.0, 0.0)))
    found = recommend(after(weighted, [(arm, task) for arm in range(12) for task in range(3)]), 1.0, 1.0)
    scores = small.scores @ [2 / 3, 1 / 3, 0]
    assert found.best.mean.score == pytest.approx(scores.max()) == found.best.measured
    assert found.best.mean.stderr == pytest.approx(0.005 * np.hypot(2 / 3, 1 / 3))
    default = small.problem.default_arms[small.problem.arm_index[found.arm]]
    assert found.default.mean.score == pytest.approx(scores[default])
