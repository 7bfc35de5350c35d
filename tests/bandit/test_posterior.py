"""The factored posterior against a Gaussian process written out over every cell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit import posterior
from daskmetrics.bandit.posterior import NOISE, SHARED, arm_kernel, first_max, fit, standardise
from daskmetrics.bandit.problem import Observations


def observe(world, n, seed=0, stderr=0.01):
    rng = np.random.default_rng(seed)
    cells = np.argwhere(np.isfinite(world.scores))
    chosen = rng.permutation(cells)[:n]
    return Observations.of((int(a), int(t), float(world.scores[a, t]), stderr) for a, t in chosen)


def dense(problem, seen, pending=None):
    """Mean (A,) and covariance (A, A) of the objectives from the A*T x A*T covariance of all cells."""
    level, spread, values, noise = standardise(problem, seen)
    arms, tasks = problem.score_cost.shape
    every = np.arange(arms)
    task_kernel = SHARED * np.ones((tasks, tasks)) + (1 - SHARED) * np.eye(tasks)
    prior = np.kron(arm_kernel(problem, every, every), task_kernel)
    objective = np.kron(np.eye(arms), spread / tasks)

    def condition(rows, values, noise):
        gain = prior[:, rows] @ np.linalg.inv(prior[np.ix_(rows, rows)] + np.diag(noise + NOISE))
        return gain @ values, prior - gain @ prior[rows]

    rows = seen.arm * tasks + seen.task
    mean, covariance = condition(rows, values, noise)
    if pending is not None:
        late = pending.arm * tasks + pending.task
        rows, values = np.append(rows, late), np.append(values, mean[late])
        noise = np.append(noise, np.full(len(late), np.median(noise)))
        mean, covariance = condition(rows, values, noise)
    return level.mean() + objective @ mean, objective @ covariance @ objective.T, covariance @ objective.T, covariance


@pytest.mark.parametrize("n", [1, 7, 60])
@pytest.mark.parametrize("metrics", [0, 3])
def test_it_equals_the_dense_process(world, n, metrics):
    small = world(seed=n)
    extra = np.random.default_rng(0).normal(size=(len(small.problem.arms), metrics))
    problem = replace(small.problem, features=np.hstack([small.problem.features, extra]))
    seen = observe(small, n)
    belief = fit(problem, seen)
    mean, covariance, with_cells, cells = dense(problem, seen)
    np.testing.assert_allclose(belief.mean, mean, atol=1e-9)
    np.testing.assert_allclose(belief.sd, np.sqrt(np.diag(covariance)), atol=1e-9)
    some, all_arms = np.array([3, 0, 17]), np.arange(len(problem.arms))
    np.testing.assert_allclose(belief.covariance(some, all_arms), covariance[some], atol=1e-9)
    arms, tasks = np.array([0, 5, 5, 40]), np.array([1, 0, 4, 2])
    index = arms * len(problem.tasks) + tasks
    between, variance = belief.cells(arms, tasks, some)
    np.testing.assert_allclose(between, with_cells[index][:, some], atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(cells)[index] + NOISE, atol=1e-9)


def test_pending_cells_count_as_observed_at_their_expected_value(world):
    small = world()
    seen = observe(small, 30)
    pending = Observations.of([(1, 2, 0.0, 0.0), (20, 0, 0.0, 0.0)])
    belief = fit(small.problem, seen, pending)
    mean, covariance, *_ = dense(small.problem, seen, pending)
    np.testing.assert_allclose(belief.mean, mean, atol=1e-9)
    np.testing.assert_allclose(belief.mean, fit(small.problem, seen).mean, atol=1e-9)
    np.testing.assert_allclose(belief.sd, np.sqrt(np.diag(covariance)), atol=1e-9)


def test_without_observations_it_is_the_prior(world):
    problem = world().problem
    belief = fit(problem, Observations.of([]))
    assert np.ptp(belief.mean) == 0 and np.ptp(belief.sd) == 0 and belief.sd[0] > 0


def test_a_fully_measured_arm_has_its_own_mean(world):
    small = world()
    whole = Observations.of((9, t, float(small.scores[9, t]), 1e-6) for t in range(5))
    other = Observations.of([*((9, t, float(small.scores[9, t]), 1e-6) for t in range(5)), (20, 0, 0.1, 1e-6)])
    for seen in (whole, other):
        belief = fit(small.problem, seen)
        assert belief.mean[9] == pytest.approx(small.scores[9].mean(), abs=2e-3)
        assert belief.sd[9] == belief.sd.min()


def test_beyond_the_limit_arms_are_pooled_and_little_is_lost(world, monkeypatch):
    small = world()
    seen = observe(small, 200)
    apart = fit(small.problem, seen)
    monkeypatch.setattr(posterior, "LIMIT", 120)
    pooled = fit(small.problem, seen)
    assert len(apart.rows) == 200 and len(pooled.rows) <= 120
    assert np.corrcoef(apart.mean, pooled.mean)[0, 1] > 0.99
    assert (pooled.sd >= apart.sd - 1e-9).all()  # averaging loses information, and says so


def test_everything_pooled_leaves_one_row_per_arm(world, monkeypatch):
    small = world()
    monkeypatch.setattr(posterior, "LIMIT", 1)
    belief = fit(small.problem, observe(small, small.scores.size))
    assert belief.rows.tolist() == list(range(len(small.problem.arms)))
    np.testing.assert_allclose(belief.mixtures.sum(axis=1), 1.0)
    np.testing.assert_allclose(belief.mean, small.scores.mean(axis=1), atol=0.01)


def test_near_ties_go_to_the_first():
    assert first_max(np.array([0.0, 1.0, 1.0 + 1e-13])) == 1
    assert first_max(np.array([0.0, 1.0, 2.0]), np.array([True, True, False])) == 1
    assert first_max(np.array([0.0, 1.0, 2.0]), np.array([False, False, False])) == 2
