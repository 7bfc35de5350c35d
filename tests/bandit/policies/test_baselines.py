"""Policies that pay for whole arms."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

from daskmetrics.bandit import policy_named
from daskmetrics.bandit._simulate import simulate
from daskmetrics.bandit.policies.baselines import design, ridge

WHOLE = ["linucb", "linear-ts", "gp-ei", "gp-ucb"]


@pytest.mark.parametrize("name", WHOLE)
def test_an_arm_is_finished_before_the_next_is_started(world, name):
    small = world()
    picks = simulate(small.problem, small.table, policy_named(name), budget=0.4, seed=0).picks
    arms = [arm for arm, _ in groupby(pick.cell.arm for pick in picks if pick.stage == "search")]
    assert len(set(arms)) == len(arms) > 3
    for arm in arms:
        assert sum(pick.cell.arm == arm for pick in picks) == 5


def test_the_shared_model_recovers_a_quadratic(world, after):
    small = world()
    features = design(small.problem)
    truth = np.array([0.0, 0.8, 0.3, -1.0, -0.4, 0.2, 0.1, -0.1])
    exact = type(small)(small.problem, np.repeat((features @ truth)[:, None], 5, axis=1))
    arms = np.random.default_rng(0).permutation(len(features))
    weights, _ = ridge(after(exact, [(int(arm), task) for arm in arms[:24] for task in range(5)]))
    unseen = features[arms[24:]]
    assert np.corrcoef(unseen @ weights, unseen @ truth)[0, 1] > 0.9


def test_a_pending_arm_lowers_only_the_uncertainty(world, after):
    small = world()
    done = [(arm, task) for arm in (0, 5, 11) for task in range(5)]
    before, meanwhile = ridge(after(small, done)), ridge(after(small, [*done, (20, 0)], known=15))
    np.testing.assert_array_equal(before[0], meanwhile[0])
    assert np.trace(meanwhile[1]) < np.trace(before[1])
