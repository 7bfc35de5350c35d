from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.bandit._posterior import fit_posterior
from daskmetrics.bandit._problem import Observations
from daskmetrics.bandit._recommend import CREDIBLE, confidence, margin_of


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
