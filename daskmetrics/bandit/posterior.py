"""A Gaussian process over all cells, and what it says of every arm's objective.

The value of a cell, standardised per task, has covariance ``k_arm(a, a') * k_task(t, t')``: arms near each other in
training and depth (or with alike metrics) score alike, and what is good at one task is mostly good at the others
(coregionalisation: Bonilla et al., 2008, eq. 3). An arm's objective is a weighted sum over tasks, so its covariance
with a cell factors too, and the posterior of all A arms needs only the n x n matrix of what was observed and A x D
numbers, D being the arms that were touched.

The hyper-parameters are fixed, in units of standardised scores, and were not fitted to any table of scores: they say
no more than that neighbours are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskmetrics.bandit.problem import Bools, Floats, Ints, Observations, Problem
from daskmetrics.bandit.rewards import scale

LENGTHS = (0.25, 0.25)  #: over which scores change in training (log step) and in depth, as shares of their ranges
MODELS = 0.7  #: correlation of two models, at equal training and depth
OFFSET = 1.0  #: variance of a task's level: the observed arms need not be typical ones
SMOOTH = 1.0  #: variance explained by position
METRIC = 0.2  #: variance explained by the metrics
OWN = 0.03  #: variance of an arm that no neighbour tells
SHARED = 0.7  #: correlation of two tasks
NOISE = 1e-4  #: variance added to every observation, for a matrix that can be factored
PRIOR_COUNT = 3.0  #: how many observations the pooled spread counts for, where a task has few of its own
LIMIT = 1000  #: observations kept apart; beyond it arms with the most cells enter as one average each


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is believed of every arm's objective, in units of the reward.

    Attributes
    ----------
    mean, sd : ndarray (A,)
        Of the objective (the mean over tasks).

    The other fields are what `fit` computed on the way; `covariance` and `cells` answer from them.
    """

    problem: Problem
    mean: Floats
    task_kernel: Floats  # (T, T)
    weights: Floats  # (T,) of the objective, on standardised values
    rows: Ints  # (n,) arm of every observation, pending ones last
    mixtures: Floats  # (n, T) tasks that an observation averages
    whiten: Floats  # (n, n) inverse Cholesky factor of their covariance
    touched: Ints  # (D,) distinct arms among the rows
    to_touched: Floats  # (A, D) prior covariance of every arm with them

    @cached_property
    def sd(self) -> Floats:
        """Standard deviation of every arm's objective, pending cells taken as observed (A,)."""
        k = self.to_touched
        prior = _arm_variance(self.problem) * self._objective_variance
        return np.asarray(np.sqrt(np.maximum(prior - ((k @ self._information) * k).sum(axis=1), 0.0)))

    def covariance(self, left: Ints, right: Ints) -> Floats:
        """Covariance between some arms' objectives and some others' (L, R)."""
        prior = arm_kernel(self.problem, left, right) * self._objective_variance
        known = self.to_touched[left] @ (self._information @ self.to_touched[right].T)
        return np.asarray(prior - known)

    def cells(self, arms: Ints, tasks: Ints, targets: Ints) -> tuple[Floats, Floats]:
        """How cells relate to objectives.

        Parameters
        ----------
        arms, tasks : ndarray (c,)
            The cells.
        targets : ndarray (S,)
            Arms whose objectives are meant.

        Returns
        -------
        covariance : ndarray (c, S)
            Between a cell's standardised value and an objective.
        variance : ndarray (c,)
            Of observing the cell.
        """
        distinct, where = np.unique(arms, return_inverse=True)
        of_task = self.task_kernel @ self.mixtures.T
        known = arm_kernel(self.problem, distinct, self.rows)[where] * of_task[tasks]
        white = known @ self.whiten.T
        prior = arm_kernel(self.problem, distinct, targets)[where] * self._pull[tasks][:, None]
        covariance = prior - (white @ self._gather) @ self.to_touched[targets].T
        own = _arm_variance(self.problem)[arms] * self.task_kernel[tasks, tasks]
        return covariance, np.maximum(own - (white**2).sum(axis=1), 0.0) + NOISE

    @cached_property
    def _pull(self) -> Floats:
        """Covariance of one task with the objective, for one arm (T,)."""
        return np.asarray(self.task_kernel @ self.weights)

    @property
    def _objective_variance(self) -> float:
        return float(self.weights @ self._pull)

    @cached_property
    def _gather(self) -> Floats:
        """Whitened covariances of observations with the objectives, summed by touched arm (n, D)."""
        member = self.rows[:, None] == self.touched
        return np.asarray(self.whiten @ (member * (self.mixtures @ self._pull)[:, None]))

    @cached_property
    def _information(self) -> Floats:
        return np.asarray(self._gather.T @ self._gather)


def fit(problem: Problem, seen: Observations, pending: Observations | None = None) -> Posterior:
    """Condition on what was observed.

    Parameters
    ----------
    problem : Problem
    seen : Observations
        At least none: the prior is a posterior too.
    pending : Observations or None
        Cells whose scores are still to come (their ``score`` is not read). They lower the uncertainty and leave the
        mean as it is: what conditioning on their own expected value does.

    Examples
    --------
    >>> from daskmetrics.arms import Checkpoint, Suite
    >>> from daskmetrics.bandit.problem import arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> cost = np.ones((4, 2))
    >>> problem = Problem(suite.arms(), ("s", "t"), arm_features([suite]), cost, cost, Checkpoint("m", "step1"), "mean")
    >>> belief = fit(problem, Observations.of([(0, 0, 0.1, 0.01), (3, 0, 0.9, 0.01)]))
    >>> belief.mean.argsort().tolist()  # the unseen arms lie between, and each follows its neighbours
    [0, 1, 2, 3]
    """
    level, spread, values, noise = standardise(problem, seen)
    tasks = len(problem.tasks)
    weights = spread * problem.shares
    kernel = SHARED + (1 - SHARED) * np.eye(tasks)
    rows, mixtures, values, noise = _pooled(seen, np.maximum(weights, 1e-12 * weights.max()), values, noise)
    n = len(rows)
    if pending is not None:
        rows = np.concatenate([rows, pending.arm])
        mixtures = np.vstack([mixtures, np.eye(tasks)[pending.task]])
        noise = np.concatenate([noise, np.full(len(pending), np.median(noise) if n else 0.0)])
    whiten = _whiten(problem, kernel, rows, mixtures, noise)
    touched = np.unique(rows)
    alpha = whiten[:n, :n].T @ (whiten[:n, :n] @ values)
    pulls = alpha * (mixtures[:n] @ kernel @ weights)
    by_arm = np.bincount(np.searchsorted(touched, rows[:n]), weights=pulls, minlength=len(touched))
    to_touched = arm_kernel(problem, np.arange(len(problem.arms)), touched)
    mean = level @ problem.shares + to_touched @ by_arm
    return Posterior(problem, mean, kernel, weights, rows, mixtures, whiten, touched, to_touched)


def arm_kernel(problem: Problem, left: Ints, right: Ints) -> Floats:
    """Prior covariance of arms, before tasks: level, position, metrics (RBF) and the arm's own part (L, R).

    Position is a product of Matern 5/2 kernels of training and depth (Rasmussen and Williams, 2006, eq. 4.17) and of
    the models' correlation.
    """
    models, features = len(problem.models), problem.features
    kernel = features[left, 2 : 2 + models] @ features[right, 2 : 2 + models].T  # 1 within a model, else 0
    kernel *= SMOOTH * (1 - MODELS)
    kernel += SMOOTH * MODELS
    for column, length in enumerate(LENGTHS):
        kernel *= _axis(features[:, column], left, right, length)
    kernel += OFFSET
    metrics = features[:, 2 + models :]
    if metrics.shape[1]:
        kernel += METRIC * np.exp(_squared_distance(metrics[left], metrics[right]) / (-2.0 * metrics.shape[1]))
    kernel[left[:, None] == right] += OWN
    return np.asarray(kernel)


def _axis(feature: Floats, left: Ints, right: Ints, length: float) -> Floats:
    """Matern 5/2 correlation along one feature (L, R)."""
    # the grid has few distinct steps and depths: a small table, looked up
    rows, row = np.unique(feature[left], return_inverse=True)
    columns, column = np.unique(feature[right], return_inverse=True)
    r = np.sqrt(5.0) * np.abs(rows[:, None] - columns) / length
    table = (1.0 + r + r * r / 3.0) * np.exp(-r)
    return np.asarray(table[:, column][row])


def standardise(problem: Problem, seen: Observations) -> tuple[Floats, Floats, Floats, Floats]:
    """Observed values with mean 0 and sd 1 per task, as far as is known.

    Returns
    -------
    level, spread : ndarray (T,)
        In units of the reward. A task with few observations borrows its spread from all of them.
    values, noise : ndarray (n,)
        Standardised values and their variances.
    """
    unit = scale(problem, seen)
    values, errors = unit.values(seen), unit.errors(seen)
    tasks = len(problem.tasks)
    count = np.bincount(seen.task, minlength=tasks)
    total = np.bincount(seen.task, weights=values, minlength=tasks)
    level = np.where(count > 0, total / np.maximum(count, 1), total.sum() / max(len(values), 1))
    squares = np.bincount(seen.task, weights=(values - level[seen.task]) ** 2, minlength=tasks)
    freedom = np.maximum(count - 1, 0)
    pooled = squares.sum() / freedom.sum() if squares.sum() > 0 else 1.0
    spread = np.sqrt((squares + PRIOR_COUNT * pooled) / (freedom + PRIOR_COUNT))
    return level, spread, (values - level[seen.task]) / spread[seen.task], (errors / spread[seen.task]) ** 2


def first_max(values: Floats, among: Bools | None = None) -> int:
    """Index of the maximum (of those marked, if any is); near-ties go to the first, so that last bits do not decide."""
    if among is not None and among.any():
        values = np.where(among, values, -np.inf)
    best = float(values.max())
    return int(np.argmax(values >= best - 1e-9 * max(1.0, abs(best))))


def _whiten(problem: Problem, kernel: Floats, rows: Ints, mixtures: Floats, noise: Floats) -> Floats:
    distinct, where = np.unique(rows, return_inverse=True)
    arms = arm_kernel(problem, distinct, distinct)[where[:, None], where]
    covariance = arms * (mixtures @ kernel @ mixtures.T) + np.diag(noise + NOISE)
    return np.linalg.inv(np.linalg.cholesky(covariance))


def _pooled(seen: Observations, weights: Floats, values: Floats, noise: Floats) -> tuple[Ints, Floats, Floats, Floats]:
    """Rows of (arm, task mixture, value, variance); beyond `LIMIT` of them the fullest arms become one row each."""
    group = _groups(seen)
    size = int(group.max()) + 1 if len(group) else 0
    share = weights[seen.task]
    share = share / np.bincount(group, weights=share, minlength=size)[group]
    mixtures = np.zeros((size, len(weights)))
    np.add.at(mixtures, (group, seen.task), share)
    rows = np.zeros(size, dtype=np.intp)
    rows[group] = seen.arm
    mean = np.zeros(size)
    np.add.at(mean, group, share * values)
    variance = np.zeros(size)
    np.add.at(variance, group, share**2 * noise)
    return rows, mixtures, mean, variance


def _groups(seen: Observations) -> Ints:
    """Number of the row that an observation goes into (n,)."""
    arms, count = np.unique(seen.arm, return_counts=True)
    excess = max(len(seen) - LIMIT, 0)
    fullest = np.argsort(-count, kind="stable")
    needed = int(np.searchsorted(np.cumsum(count[fullest] - 1), excess)) + 1 if excess else 0
    pooled: Bools = np.isin(seen.arm, arms[fullest[:needed]])
    # observations are sorted by arm: a row starts wherever the arm is new or is not pooled
    starts = np.ones(len(seen), dtype=bool)
    starts[1:] = (seen.arm[1:] != seen.arm[:-1]) | ~pooled[1:]
    return np.cumsum(starts) - 1


def _squared_distance(left: Floats, right: Floats) -> Floats:
    square = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2.0 * left @ right.T
    return np.asarray(np.maximum(square, 0.0))


def _arm_variance(problem: Problem) -> Floats:
    metric = METRIC if problem.features.shape[1] > 2 + len(problem.models) else 0.0
    return np.full(len(problem.arms), OFFSET + SMOOTH + metric + OWN)
