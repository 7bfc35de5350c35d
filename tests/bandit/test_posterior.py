"""The factored posterior against a Gaussian process written out over every cell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit import Outcome
from daskmetrics.bandit import _incremental as incremental_module
from daskmetrics.bandit import _posterior as posterior_module
from daskmetrics.bandit._incremental import FEW, REFIT, ROWS, IncrementalPosterior, is_due
from daskmetrics.bandit._kernel import LEVEL, NOISE, fit_model
from daskmetrics.bandit._posterior import ObservationRows, first_max, fit_posterior, greatest, pooled
from daskmetrics.bandit._problem import Observations


def observe(world, n, seed=0, stderr=0.01):
    rng = np.random.default_rng(seed)
    cells = np.argwhere(np.isfinite(world.scores))
    chosen = rng.permutation(cells)[:n]
    return Observations.of((int(a), int(t), float(world.scores[a, t]), stderr) for a, t in chosen)


def dense(model, seen, pending=None):
    """Mean (A,), covariance (A, A), cells with objectives (AT, A), all cells (AT, AT), from the AT x AT prior."""
    arms, tasks = model.problem.score_cost.shape
    every = np.arange(arms)
    h, kernel, same = model.hyperparameters, model.kernel(every, every), np.eye(arms)
    own = h.task_variance * kernel + h.cell_variance / (1 + h.kind_variance) * same
    common, kind = kernel + h.arm_variance * same, model.problem.kind_index
    prior = np.kron(common, np.ones((tasks, tasks))) + np.kron(own + LEVEL, np.eye(tasks))
    like = (kind[:, None] == kind) if model.problem.likeness is None else model.problem.likeness
    prior += np.kron(h.kind_variance * own, like)
    objective = np.kron(np.eye(arms), model.weights)

    def condition(rows, values):
        noise = model.noise[rows % tasks] + NOISE
        gain = prior[:, rows] @ np.linalg.inv(prior[np.ix_(rows, rows)] + np.diag(noise))
        return gain @ values, prior - gain @ prior[rows]

    rows, values = seen.arm * tasks + seen.task, model.values(seen)
    mean, covariance = condition(rows, values)
    if pending is not None:
        late = pending.arm * tasks + pending.task
        mean, covariance = condition(np.append(rows, late), np.append(values, mean[late]))
    level = model.problem.objective_weights @ model.level
    return level + objective @ mean, objective @ covariance @ objective.T, covariance @ objective.T, covariance


def of_cells(posterior, arms, tasks, targets):
    """Covariance of cells with objectives (c, S), and their variances as observations (c,), from `whitened`."""
    model, cells = posterior.model, ObservationRows.of(posterior.model, arms, tasks)
    distinct, where = np.unique(arms, return_inverse=True)
    white = np.stack(list(posterior.whitened(distinct)))[posterior.task_group[tasks], where]
    prior = model.with_objectives(targets, arms, cells.mix).T
    variance = model.cell_variance - (white**2).sum(axis=1) + cells.noise
    return prior - white @ posterior.cross[:, targets], variance


@pytest.mark.parametrize("n", [1, 7, 60])
@pytest.mark.parametrize("metrics", [0, 3])
@pytest.mark.parametrize("related", ["by kind", "by a likeness"])
def test_it_equals_a_dense_gaussian_process(world, n, metrics, related):
    small = world(seed=n)
    extra = np.random.default_rng(0).normal(size=(len(small.problem.arms), metrics))
    weights = (1.0, 2.0, 0.5, 1.0, 0.0)
    features = np.hstack([small.problem.features, extra])
    problem = replace(small.problem, features=features, weights=weights, kinds=("a", "b", "a", "", "b"))
    if related == "by a likeness":
        problem = replace(problem, likeness=np.corrcoef(np.random.default_rng(n).normal(size=(5, 9))))
    seen = observe(small, n)
    posterior = fit_posterior(problem, seen)
    mean, covariance, with_cells, cells = dense(fit_model(problem, seen), seen)
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-8)
    np.testing.assert_allclose(posterior.sd, np.sqrt(np.diag(covariance)), atol=1e-8)
    some, all_arms = np.array([3, 0, 17]), np.arange(len(problem.arms))
    np.testing.assert_allclose(posterior.covariance(some, all_arms), covariance[some], atol=1e-8)
    arms, tasks = np.array([0, 5, 5, 40]), np.array([1, 0, 4, 2])
    index = arms * len(problem.tasks) + tasks
    between, variance = of_cells(posterior, arms, tasks, some)
    np.testing.assert_allclose(between, with_cells[index][:, some], atol=1e-8)
    np.testing.assert_allclose(variance, np.diag(cells)[index] + posterior.model.noise[tasks] + NOISE, atol=1e-8)


def test_pending_cells_count_as_observed_at_their_expected_value(world):
    small = world()
    seen = observe(small, 30)
    pending = Observations.of([(1, 2, 0.0, 0.0), (20, 0, 0.0, 0.0)])
    posterior = fit_posterior(small.problem, seen, pending)
    mean, covariance, *_ = dense(posterior.model, seen, pending)
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-8)
    np.testing.assert_allclose(posterior.sd, np.sqrt(np.diag(covariance)), atol=1e-8)
    alone = fit_posterior(small.problem, seen)
    np.testing.assert_allclose(posterior.mean, alone.mean, atol=1e-8)
    np.testing.assert_allclose(posterior.without_pending().sd, alone.sd, atol=1e-8)


def test_without_observations_it_is_the_prior(world):
    problem = world().problem
    posterior = fit_posterior(problem, Observations.of([]))
    assert np.ptp(posterior.mean) == 0 and np.ptp(posterior.sd) == 0 and posterior.sd[0] > 0


def test_a_fully_measured_arm_has_its_own_mean(world):
    small = world()
    whole = Observations.of((9, t, float(small.scores[9, t]), 1e-6) for t in range(5))
    other = Observations.of([*((9, t, float(small.scores[9, t]), 1e-6) for t in range(5)), (20, 0, 0.1, 1e-6)])
    for seen in (whole, other):
        posterior = fit_posterior(small.problem, seen)
        assert posterior.mean[9] == pytest.approx(small.scores[9].mean(), abs=2e-3)
        assert posterior.sd[9] == posterior.sd.min()


def test_the_choice_of_arms_for_a_task_says_nothing_about_them(world):
    small = world()
    seen = observe(small, 40)
    best = int(fit_posterior(small.problem, seen).mean.argmax())
    task = int(np.flatnonzero(~np.isin(np.arange(5), seen.task[seen.arm == best]))[0]) if len(seen) else 0
    without = [i for i in range(len(seen)) if seen.task[i] != task]
    rows = [(int(seen.arm[i]), int(seen.task[i]), float(seen.score[i]), 0.01) for i in without]
    before = fit_posterior(small.problem, Observations.of(rows))
    after = fit_posterior(small.problem, Observations.of([*rows, (best, task, 0.1, 0.01)]))  # however low that is
    lead = [posterior.mean[best] - np.delete(posterior.mean, best).max() for posterior in (before, after)]
    assert lead[1] == pytest.approx(lead[0], abs=0.2 * before.sd[best])


def random_search(world, n, seed=0, lost=()):
    cells = np.random.default_rng(seed).permutation(np.argwhere(np.isfinite(world.scores)))[:n]
    cells = [(int(a), int(t)) for a, t in cells]
    outcomes = [Outcome(None) if i in lost else world.outcome(world.problem.cell(*c)) for i, c in enumerate(cells)]
    return cells, outcomes


@pytest.mark.parametrize("window", [0, 1, 9])
def test_a_posterior_that_grew_equals_one_computed_at_once(world, window):
    small = world(revisions=5)
    cells, outcomes = random_search(small, 90, lost=(3, 20, 41))
    growing = IncrementalPosterior(small.problem)
    for n in range(len(cells) + 1):
        grown = growing.posterior(cells[:n], outcomes[: max(n - window, 0)])
        if n % 13 == 0:
            fresh = IncrementalPosterior(small.problem).posterior(cells[:n], outcomes[: max(n - window, 0)])
            np.testing.assert_allclose(grown.mean, fresh.mean, atol=1e-8)
            np.testing.assert_allclose(grown.sd, fresh.sd, atol=1e-8)


def test_scores_processed_early_leave_no_work_and_change_nothing(world, monkeypatch):
    small = world(revisions=5)
    cells, outcomes = random_search(small, 90, lost=(3, 20, 41))
    monkeypatch.setattr(incremental_module, "BATCH", 8)
    early, late = IncrementalPosterior(small.problem), IncrementalPosterior(small.problem)
    for n in range(len(cells) + 1):
        early.update(cells[:n], outcomes[:n])
    steps = []
    monkeypatch.setattr(early, "_step", steps.append)
    actual, expected = (each.posterior(cells, outcomes[:80]) for each in (early, late))
    assert not steps and early.is_used
    assert actual.model.hyperparameters == expected.model.hyperparameters
    np.testing.assert_allclose(actual.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(actual.sd, expected.sd, atol=1e-8)


@pytest.mark.parametrize("scores", [1, 20, FEW])
def test_with_few_scores_the_model_is_estimated_from_all_of_them(world, scores):
    small = world(revisions=5)
    cells, outcomes = random_search(small, FEW + 1)
    growing = IncrementalPosterior(small.problem)
    rows = [(*cell, one.score, one.stderr) for cell, one in zip(cells, outcomes, strict=True)]
    model = fit_model(small.problem, Observations.of(rows[:scores]))
    for n in range(1, len(cells) + 1):
        posterior = growing.posterior(cells[:n], outcomes[: min(n, scores)])  # later ones are pending
        if n >= scores:
            assert posterior.model.hyperparameters == model.hyperparameters
            np.testing.assert_allclose(posterior.model.spread, model.spread, rtol=1e-10)


def test_a_new_basis_is_built_while_the_old_one_is_in_use(world):
    small = world(revisions=9)
    cells, outcomes = random_search(small, 2 * REFIT)
    growing = IncrementalPosterior(small.problem)
    models = [growing.posterior(cells[:n], outcomes[:n]).model for n in range(1, len(cells) + 1)]
    changes = [n for n in range(2, len(cells) + 1) if models[n - 1] is not models[n - 2]]
    assert is_due(REFIT) and changes[: FEW - 1] == list(range(2, FEW + 1))
    (change,) = changes[FEW - 1 :]
    assert REFIT // ROWS <= change - REFIT < REFIT


def test_fewer_scores_than_before_start_a_new_posterior(world):
    small = world(revisions=5)
    cells, outcomes = random_search(small, 80)
    growing = IncrementalPosterior(small.problem)
    for n in (80, 66, 50, 80, 20):
        fresh = IncrementalPosterior(small.problem).posterior(cells[:n], outcomes[:n])
        np.testing.assert_allclose(growing.posterior(cells[:n], outcomes[:n]).mean, fresh.mean, atol=1e-8)


def test_observations_change_the_hyperparameters(world):
    small = world(seed=1)
    rng = np.random.default_rng(0)
    rows = [(int(a), t) for a in rng.permutation(48)[:30] for t in range(5)]
    alike = Observations.of((a, t, float(small.scores[a].mean()), 0.0) for a, t in rows)
    apart = Observations.of((a, t, float(rng.normal()), 0.0) for a, t in rows)
    few, many = (fit_model(small.problem, seen).hyperparameters for seen in (alike, apart))
    assert few.task_variance < many.task_variance and few.cell_variance < many.cell_variance


def test_beyond_the_limit_arms_are_pooled_with_little_loss(world, monkeypatch):
    small = world()
    seen = observe(small, 200)
    apart = fit_posterior(small.problem, seen)
    monkeypatch.setattr(posterior_module, "LIMIT", 120)
    fewer = fit_posterior(small.problem, seen)
    assert len(apart.rows) == 200 and len(fewer.rows) <= 120
    assert np.corrcoef(apart.mean, fewer.mean)[0, 1] > 0.99
    assert (fewer.sd >= apart.sd - 1e-9).all()  # averaging loses information, and says so


def test_a_pooled_row_averages_its_arm(world):
    small = world()
    seen = observe(small, small.scores.size)
    rows, values = pooled(fit_model(small.problem, seen), seen, 48)
    assert rows.arm.tolist() == list(range(48))
    np.testing.assert_allclose(rows.mix.sum(axis=1), 1.0)
    assert np.corrcoef(values, small.scores.mean(axis=1))[0, 1] > 0.99


def test_beyond_one_row_per_arm_the_best_are_kept(world):
    small = world()
    seen = observe(small, small.scores.size)
    rows, _ = pooled(fit_model(small.problem, seen), seen, 20)
    best = np.argsort(-small.scores.mean(axis=1))[:8]
    assert len(rows) == 20 and np.isin(best, rows.arm).all()


def test_a_long_search_needs_few_rows(world, monkeypatch):
    small = world()
    for module in ("daskmetrics.bandit._posterior.LIMIT", "daskmetrics.bandit._incremental.LIMIT"):
        monkeypatch.setattr(module, 60)
    monkeypatch.setattr("daskmetrics.bandit._incremental.REFIT", 0)  # it would come between two of these limits
    cells, outcomes = random_search(small, 200)
    growing = IncrementalPosterior(small.problem)
    sizes = [len(growing.posterior(cells[:n], outcomes[:n]).rows) for n in range(1, 201)]
    assert max(sizes) <= 60 + 60  # and a few while they are pooled
    whole = IncrementalPosterior(small.problem).posterior(cells, outcomes)
    np.testing.assert_allclose(growing.posterior(cells, outcomes).mean, whole.mean, atol=1e-8)


@pytest.mark.parametrize("n", [0, 1, 4, 7, 9])
def test_the_greatest_values_are_those_of_a_stable_sort(n):
    values = np.array([1.0, -np.inf, 3.0, 2.0, 3.0, 2.0, 2.0, -np.inf])
    assert greatest(values, n).tolist() == sorted(np.argsort(-values, kind="stable")[:n].tolist())


def test_near_ties_go_to_the_first():
    assert first_max(np.array([0.0, 1.0, 1.0 + 1e-13])) == 1
    assert first_max(np.array([0.0, 1.0, 2.0]), np.array([True, True, False])) == 1
    assert first_max(np.array([0.0, 1.0, 2.0]), np.array([False, False, False])) == 2
