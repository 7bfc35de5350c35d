"""The model of the scores: the kernel, and the factored posterior against a Gaussian process
written out over every cell.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from daskmetrics.bandit import Problem, arm_features
from daskmetrics.bandit import model as gp
from daskmetrics.bandit.problem import Observations
from daskmetrics.domain.names import Suite
from tests.bandit.conftest import make_world, observe, random_cells

PARTS = ("", "mean", "last", "max", "cls"), ("", "256d", "128d", "64d")
NAMES = tuple(",".join(filter(None, parts)) for parts in product(*PARTS))


@pytest.fixture(scope="module")
def readouts() -> Problem:
    """Every readout of seven layers on one task."""
    suite = Suite("m", ("main",), (0, 1, 2, 3, 4, 5, 6), 6, NAMES)
    cost = np.ones((len(suite.arms()), 1))
    return Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost)


def test_a_readout_correlates_most_with_its_layer(readouts):
    arms = np.arange(len(readouts.arms))
    distance = gp.readout_distances(NAMES)
    assert (np.diag(distance) == 0).all() and (distance + np.eye(len(NAMES)) > 0).all()
    covariance = gp.arm_covariance(readouts, gp.Hyperparameters(), arms, arms)
    values = np.linalg.eigvalsh(covariance)
    assert values.min() > -1e-8 * values.max()
    index = {(arm.layer, arm.readout): i for i, arm in enumerate(readouts.arms)}
    of_256 = covariance[index[3, "256d"]]
    assert of_256[index[3, ""]] > of_256[index[0, "256d"]]
    assert of_256[index[2, "256d"]] > of_256[index[2, "last,64d"]]


@pytest.mark.parametrize(("spread", "is_alike"), [(0.001, True), (0.3, False)])
def test_how_alike_readouts_are_is_learned_from_the_scores(readouts, spread, is_alike):
    chance = np.random.default_rng(0)
    level = dict(zip(NAMES, chance.normal(size=len(NAMES)), strict=True))
    rows = [
        (i, 0, 0.5 + 0.1 * arm.layer / 6 + spread * level[arm.readout], 0.0)
        for i, arm in enumerate(readouts.arms)
    ]
    drawn = [rows[i] for i in chance.permutation(len(rows))[:120]]
    learned = gp.fit_model(readouts, Observations.of(drawn)).hyperparameters.readout_scale
    assert learned > 1 if is_alike else learned < 1


def computed(problem, *history):
    """The posterior of these scores, and of pending cells, computed at once."""
    return gp.IncrementalPosterior(problem).posterior(*history)


def dense(model, seen, pending):
    """Mean (A,), covariance (A, A), cells with objectives (AT, A), all cells (AT, AT), from the AT
    x AT prior.
    """
    arms, tasks = model.problem.score_cost.shape
    every = np.arange(arms)
    h, same = model.hyperparameters, np.eye(arms)
    kernel = gp.arm_covariance(model.problem, h, every, every)
    own = h.task_variance * kernel + h.cell_variance / (1 + h.kind_variance) * same
    common, kind = kernel + h.arm_variance * same, model.problem.kind_index
    prior = np.kron(common, np.ones((tasks, tasks))) + np.kron(own + gp.LEVEL, np.eye(tasks))
    prior += np.kron(h.kind_variance * own, kind[:, None] == kind)
    trend = model.problem.cost_trend
    prior += np.kron(h.cost_variance * kernel, np.outer(trend, trend))
    objective = np.kron(np.eye(arms), model.weights)

    def condition(rows, values):
        noise = model.noise[rows % tasks] + gp.NOISE
        gain = prior[:, rows] @ np.linalg.inv(prior[np.ix_(rows, rows)] + np.diag(noise))
        return gain @ values, prior - gain @ prior[rows]

    rows, values = seen.arm * tasks + seen.task, model.values(seen)
    mean, _ = condition(rows, values)
    late = pending.arm * tasks + pending.task  # as if observed at their expected value
    mean, covariance = condition(np.append(rows, late), np.append(values, mean[late]))
    level = model.problem.objective_weights @ model.level
    return (
        level + objective @ mean,
        objective @ covariance @ objective.T,
        covariance @ objective.T,
        covariance,
    )


def of_cells(posterior, arms, tasks, targets):
    """Covariance of cells with objectives (c, S), and their variances as observations (c,), from
    `whitened`.
    """
    model, cells = posterior.model, gp.ObservationRows.of(posterior.model, arms, tasks)
    distinct, where = np.unique(arms, return_inverse=True)
    of_task = {task: white for these, white in posterior.whitened(distinct) for task in these}
    white = np.stack([of_task[task][arm] for task, arm in zip(tasks, where, strict=True)])
    prior = model.cells(targets, model.weights, arms, cells.mix).T
    variance = model.cell_variance[tasks] - (white**2).sum(axis=1) + cells.noise
    return prior - white @ posterior.cross[:, targets], variance


@pytest.mark.parametrize("known", [0, 7, gp.FEW])
@pytest.mark.parametrize("pending", [0, 2])
def test_it_equals_a_dense_gaussian_process(known, pending):
    small = make_world(seed=known)
    weights = (1.0, 2.0, 0.5, 1.0, 0.0)
    problem = replace(small.problem, weights=weights, kinds=("a", "b", "a", "", "b"))
    every = observe(small, random_cells(small, known + pending))
    seen, late = every.take(slice(known)), every.take(slice(known, None))
    posterior = computed(problem, seen, np.column_stack([late.arm, late.task]))
    assert_equal(posterior.without_pending(), computed(problem, seen))
    mean, covariance, with_cells, cells = dense(gp.fit_model(problem, seen), seen, late)
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-8)
    np.testing.assert_allclose(posterior.sd, np.sqrt(np.diag(covariance)), atol=1e-8)
    some, all_arms = np.array([3, 0, 17]), np.arange(len(problem.arms))
    np.testing.assert_allclose(posterior.covariance(some, all_arms), covariance[some], atol=1e-8)
    arms, tasks = np.array([0, 5, 5, 40]), np.array([1, 0, 4, 2])
    index = arms * len(problem.tasks) + tasks
    between, variance = of_cells(posterior, arms, tasks, some)
    np.testing.assert_allclose(between, with_cells[index][:, some], atol=1e-8)
    expected = np.diag(cells)[index] + posterior.model.noise[tasks] + gp.NOISE
    np.testing.assert_allclose(variance, expected, atol=1e-8)


def outcomes_of(world, n, seed=0, lost=()):
    outcomes = observe(world, random_cells(world, n, seed))
    outcomes.score[list(lost)] = np.nan
    return outcomes


def first(outcomes, n, known=None):
    """The first ``known`` of n outcomes, and the cells of the others, which are pending."""
    known = n if known is None else known
    pending = outcomes.take(slice(known, n))
    return outcomes.take(slice(known)), np.column_stack([pending.arm, pending.task])


def assert_equal(one, other):
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-8)
    np.testing.assert_allclose(one.sd, other.sd, atol=1e-8)


@pytest.mark.parametrize("window", [0, 9])
def test_a_posterior_that_grew_equals_one_computed_at_once(window):
    problem = make_world(revisions=5).problem
    outcomes = outcomes_of(make_world(revisions=5), 90, lost=(3, 20, 41))
    growing = gp.IncrementalPosterior(problem)
    # with fewer scores than before it starts again
    for n in (*range(0, len(outcomes) + 1, 3), 66, 50, 20):
        history = first(outcomes, n, max(n - window, 0))
        grown = growing.posterior(*history)
        if n % 15 == 0 or n in (66, 50, 20):
            assert_equal(grown, computed(problem, *history))


def test_scores_processed_early_leave_no_work_and_change_nothing(monkeypatch):
    small = make_world(revisions=5)
    outcomes = outcomes_of(small, 90, lost=(3, 20, 41))
    monkeypatch.setattr(gp, "BATCH", 8)
    early, late = gp.IncrementalPosterior(small.problem), gp.IncrementalPosterior(small.problem)
    for n in range(81):
        early.update(outcomes.take(slice(n)))
    steps = []
    monkeypatch.setattr(early, "_step", steps.append)
    actual, expected = (each.posterior(*first(outcomes, 90, 80)) for each in (early, late))
    assert not steps and early.is_used
    assert actual.model.hyperparameters == expected.model.hyperparameters
    assert_equal(actual, expected)


@pytest.mark.parametrize("scores", [gp.FEW + 3, gp.REFIT + gp.ROWS])
def test_a_task_that_is_scored_late_has_its_own_spread(scores):
    small = make_world(revisions=9)
    early = [cell for cell in random_cells(small, 5 * scores) if cell[1] < 4][:scores]
    late = [(0, 4), (30, 4), (71, 4), *random_cells(small, 340)[-40:]]
    outcomes = observe(small, dict.fromkeys(early + late))
    of_late = np.flatnonzero(outcomes.task == 4)
    outcomes.score[of_late] = 0.5 + 10 * (outcomes.score[of_late] - 0.5)
    growing = gp.IncrementalPosterior(small.problem)
    assumed = growing.posterior(*first(outcomes, len(outcomes), of_late[1])).model
    model = growing.posterior(outcomes).model
    assert not assumed.has_spread[4] and model.has_spread.all()
    assert model.spread[4] > 3 * np.median(assumed.spread)


def test_a_score_far_from_all_others_renews_a_spread():
    """Eight layers of one checkpoint had not shown how much arms differ."""
    small = make_world(revisions=8, layers=8, tasks=4)
    scores = small.scores.copy()
    scores[:8, 3] = 0.5 + 1e-3 * np.arange(8)
    known = [(arm, 3) for arm in range(8)]
    known += [cell for cell in random_cells(small, 256) if cell[1] != 3][: gp.FEW]
    rows = [(*cell, float(scores[cell]), 0.005) for cell in known]
    posterior = gp.IncrementalPosterior(small.problem)
    before = posterior.posterior(Observations.of(rows)).model
    near, far = ([*rows, (40, 3, score, 0.005)] for score in (0.503, 0.8))
    assert posterior.posterior(Observations.of(near)).model.spread[3] == before.spread[3]
    renewed = gp.IncrementalPosterior(small.problem).posterior(Observations.of(far)).model
    assert renewed.spread[3] > 3 * before.spread[3]


def test_averaging_rows_beyond_the_limit_loses_little(monkeypatch):
    small = make_world()
    seen = observe(small, random_cells(small, 200))
    apart = computed(small.problem, seen)
    monkeypatch.setattr(gp, "LIMIT", 120)
    fewer = computed(small.problem, seen)
    assert len(apart.rows) == 200 and len(fewer.rows) <= 120
    assert np.corrcoef(apart.mean, fewer.mean)[0, 1] > 0.99
    assert (fewer.sd >= apart.sd - 1e-9).all()  # averaging loses information, and says so
    # beyond one row per arm the best arms are kept
    few = make_world(revisions=3)
    seen = observe(few, np.ndindex(few.scores.shape))
    rows, _ = gp.pooled(gp.fit_model(few.problem, seen), seen, 10)
    best = np.argsort(-few.scores.mean(axis=1))[:4]
    assert len(rows) == 10 and np.isin(best, rows.arm).all()


def test_a_long_search_needs_few_rows(monkeypatch):
    small = make_world()
    monkeypatch.setattr(gp, "LIMIT", 60)
    monkeypatch.setattr(gp, "REFIT", 0)  # it would come between two of these limits
    outcomes = outcomes_of(small, 200)
    growing = gp.IncrementalPosterior(small.problem)
    posteriors = [growing.posterior(outcomes.take(slice(n))) for n in range(40, 201)]
    # and a few while they are pooled
    assert max(len(posterior.rows) for posterior in posteriors) <= 60 + 60
    assert_equal(posteriors[-1], computed(small.problem, outcomes))


def test_ties_go_to_the_first():
    assert gp.first_max(np.array([0.0, 1.0, 1.0 + 1e-13])) == 1
    assert gp.first_max(np.array([0.0, 1.0, 2.0]), np.array([True, True, False])) == 1
