"""Posterior of every arm's objective, given the chosen cells and the scores of some of them.

The covariance matrix of the observed cells is factored once (Cholesky) and grows by a row per cell; every posterior
quantity is then a sum over rows. A pending cell is a row without a score: it reduces the variance and leaves the mean
unchanged, which is the same as conditioning on its expected value. When its score arrives, no row changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from daskmetrics.bandit._kernel import NOISE, CovarianceModel, fit_model
from daskmetrics.bandit._problem import Bools, Floats, Ints, Observations, Problem, Rows

LIMIT = 750  #: largest number of rows; with more scores, the arms with the most cells become one averaged row each
RESERVE = LIMIT + LIMIT // 2  #: rows for which a factor allocates memory at a time


@dataclass(frozen=True, eq=False)
class ObservationRows(Rows):
    """The observations that a posterior conditions on: each row is a cell, or the average of cells of one arm."""

    arm: Ints  # (n,)
    mix: Floats  # (n, T), weights of the tasks in the row, with sum 1; a single cell has one weight of 1
    noise: Floats  # (n,), noise variance of the row's standardised value

    @classmethod
    def of(cls, model: CovarianceModel, arms: Ints, tasks: Ints) -> ObservationRows:
        """One row per cell."""
        return cls(arms, np.eye(len(model.problem.tasks))[tasks], model.noise[tasks] + NOISE)


class CholeskyFactor:
    """Inverse Cholesky factor of n growing rows and their whitened covariances with A objectives: n (n + A) numbers."""

    def __init__(self, model: CovarianceModel) -> None:
        arms, tasks = len(model.problem.arms), len(model.problem.tasks)
        self.model = model
        self._rows = ObservationRows(np.zeros(0, dtype=np.intp), np.zeros((0, tasks)), np.zeros(0))
        self._inverse = np.zeros((0, 0))
        self._cross = np.zeros((0, arms))  # whitened covariances of the rows with the objectives
        self._explained = np.zeros(arms)  # variance of every objective that the rows explain
        self._white = np.zeros(0)  # whitened values of the first rows
        self._mean = np.zeros(arms)  # posterior mean of every objective given these values, less the prior mean

    def __len__(self) -> int:
        return len(self._rows)

    def truncate(self, n: int) -> None:
        """Keep the first n rows."""
        if n >= len(self):
            return
        self._explained -= (self._cross[n : len(self)] ** 2).sum(axis=0)
        self._rows = self._rows.take(slice(n))
        if len(self._white) > n:
            self._white = self._white[:n]
            self._mean = self._white @ self._cross[:n]

    def extend(self, more: ObservationRows) -> None:
        """Append rows: a block update of the inverse factor."""
        if not len(more):
            return
        model, rows, n, m = self.model, self._rows, len(self), len(more)
        self._reserve(n + m)
        inverse = self._inverse[:n, :n]
        cross = model.cells(more.arm, more.mix, rows.arm, rows.mix) @ inverse.T
        schur = model.cells(more.arm, more.mix, more.arm, more.mix) + np.diag(more.noise) - cross @ cross.T
        root = np.linalg.inv(np.linalg.cholesky(schur))
        every = np.arange(len(model.problem.arms))
        new = model.with_objectives(every, more.arm, more.mix).T - cross @ self._cross[:n]
        self._cross[n : n + m] = root @ new
        self._inverse[n : n + m, :n] = -root @ (cross @ inverse)
        self._inverse[n : n + m, n : n + m] = root
        self._inverse[:n, n : n + m] = 0.0
        self._explained += (self._cross[n : n + m] ** 2).sum(axis=0)
        self._rows = rows.append(more)

    def common_rows(self, rows: ObservationRows) -> int:
        """The number of leading rows that equal the given ones."""
        n = min(len(self), len(rows))
        same = (self._rows.arm[:n] == rows.arm[:n]) & (self._rows.mix[:n] == rows.mix[:n]).all(axis=1)
        return n if same.all() else int(np.argmin(same))

    def posterior(self, values: Floats) -> Posterior:
        """Condition on the values of the first rows; the values of an earlier call must be the first of these."""
        old, n = len(self._white), len(values)
        if n < old:
            self._white, self._mean, old = np.zeros(0), np.zeros_like(self._mean), 0
        new = self._inverse[old:n, :n] @ values
        self._white = np.append(self._white, new)
        self._mean = self._mean + new @ self._cross[old:n]
        model, size = self.model, len(self)
        return Posterior(
            model=model,
            mean=model.problem.objective_weights @ model.level + self._mean,
            variance=model.objective_variance - self._explained,
            rows=self._rows,
            known=n,
            inverse=self._inverse[:size, :size],
            cross=self._cross[:size],
        )

    def _reserve(self, n: int) -> None:
        size = len(self._inverse)
        if n > size:
            room = max(n, size + RESERVE)  # memory is only taken when written to; copying takes time
            inverse, cross = np.empty((room, room)), np.empty((room, self._cross.shape[1]))
            inverse[:size, :size], cross[:size] = self._inverse, self._cross
            self._inverse, self._cross = inverse, cross


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior of every arm's objective, in units of the reward; valid until its search computes the next one."""

    model: CovarianceModel
    mean: Floats  # (A,), of the weighted mean over tasks
    variance: Floats  # (A,); pending cells count as observed
    rows: ObservationRows  # the observations, pending cells last
    known: int  # number of rows with a value; they come first
    inverse: Floats  # (n, n), inverse Cholesky factor of the rows' covariance matrix
    cross: Floats  # (n, A), whitened covariances of the rows with the objectives

    def without_pending(self) -> Posterior:
        """The posterior given the known scores only."""
        n = self.known
        variance = self.variance + (self.cross[n:] ** 2).sum(axis=0)
        rows, inverse, cross = self.rows.take(slice(n)), self.inverse[:n, :n], self.cross[:n]
        return replace(self, variance=variance, rows=rows, inverse=inverse, cross=cross)

    @property
    def problem(self) -> Problem:
        return self.model.problem

    @cached_property
    def sd(self) -> Floats:
        """Standard deviation of every arm's objective (A,)."""
        return np.asarray(np.sqrt(np.maximum(self.variance, 0.0)))

    def covariance(self, left: Ints, right: Ints) -> Floats:
        """Covariance matrix of two sets of arms' objectives (L, R)."""
        return np.asarray(self.model.objectives(left, right) - self.cross[:, left].T @ self.cross[:, right])

    @cached_property
    def task_group(self) -> Ints:
        """The element of `whitened` that belongs to each task (T,): tasks without a row share that of their kind."""
        observed, (columns, kind) = self.rows.mix.any(axis=0), self.problem.related
        seen = (self.rows.mix @ columns).any(axis=0)
        of_kind = np.where(seen, np.cumsum(seen), 0)[kind]
        return np.where(observed, seen.sum() + np.cumsum(observed), of_kind)

    def whitened(self, arms: Ints) -> Iterator[Floats]:
        """Whitened covariances of some arms' cells with the rows: a matrix (a, n) per group of tasks.

        First that of tasks that are like none with a row, then of each kind with a row, then of each task with a row.
        With a likeness, each task is a kind of its own, which has the rows of all tasks that it is like. They come one
        by one, since all together they do not fit in a processor's cache.
        """
        rows, (columns, kind) = self.rows, self.problem.related
        common, of_kind, of_task = self.model.parts(arms, rows.arm)
        tasks = np.flatnonzero(rows.mix.any(axis=0))
        shares = rows.mix @ columns
        shared = common @ self.inverse.T
        yield shared
        # the part of a kind or of a task is correlated with rows of it alone
        kinds = {
            int(k): shared + self._whitened_part(of_kind, shares[:, k]) for k in np.flatnonzero(shares.any(axis=0))
        }
        yield from kinds.values()
        for task in tasks:
            yield kinds.get(int(kind[task]), shared) + self._whitened_part(of_task, rows.mix[:, task])

    def _whitened_part(self, part: Floats, share: Floats) -> Floats:
        """Whitened covariances (a, n) of a part of cells (a, n) with rows that have a share (n,) of its tasks."""
        own = np.flatnonzero(share)
        return np.asarray((part[:, own] * share[own]) @ self.inverse[:, own].T)


def fit_posterior(problem: Problem, seen: Observations, pending: Observations | None = None) -> Posterior:
    """Estimate the model and condition on the observations, if any; the scores of pending cells are not read.

    >>> from daskmetrics.core.names import Checkpoint, Suite
    >>> from daskmetrics.bandit import arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> cost = np.ones((4, 2))
    >>> problem = Problem(suite.arms(), ("s", "t"), arm_features([suite]), cost, cost, Checkpoint("m", "step1"), "mean")
    >>> posterior = fit_posterior(problem, Observations.of([(0, 0, 0.1, 0.01), (3, 0, 0.9, 0.01)]))
    >>> posterior.mean.argsort().tolist()  # each arm without a score is close to its neighbour
    [0, 1, 2, 3]
    """
    model = fit_model(problem, seen)
    rows, values = pooled(model, seen, LIMIT)
    factor = CholeskyFactor(model)
    factor.extend(rows)
    if pending is not None:
        factor.extend(ObservationRows.of(model, pending.arm, pending.task))
    return factor.posterior(values)


def pooled(model: CovarianceModel, seen: Observations, limit: int) -> tuple[ObservationRows, Floats]:
    """At most ``limit`` rows and their values: if needed, the arms with the most cells become one averaged row each.

    If there are still too many rows, those of the worst arms are thinned out, since the best arm is what matters.
    """
    if len(seen) <= limit:
        return ObservationRows.of(model, seen.arm, seen.task), model.values(seen)
    arms, arm, count = np.unique(seen.arm, return_inverse=True, return_counts=True)
    fullest = np.argsort(-count, kind="stable")
    needed = int(np.searchsorted(np.cumsum(count[fullest] - 1), len(seen) - limit)) + 1
    alone = ~np.isin(arm, fullest[:needed])
    group = np.where(alone, len(arms) + np.arange(len(seen)), arm)
    _, group = np.unique(group, return_inverse=True)
    share = np.maximum(model.weights, 1e-12 * model.weights.max())[seen.task]
    share = share / np.bincount(group, weights=share)[group]
    size = int(group.max()) + 1
    mix, owner = np.zeros((size, len(model.weights))), np.zeros(size, dtype=np.intp)
    np.add.at(mix, (group, seen.task), share)
    owner[group] = seen.arm
    values, noise = np.zeros(size), np.full(size, NOISE)
    np.add.at(values, group, share * model.values(seen))
    np.add.at(noise, group, share**2 * model.noise[seen.task])
    kept = _thinned(values, limit)
    return ObservationRows(owner, mix, noise).take(kept), values[kept]


def _thinned(values: Floats, limit: int) -> Ints:
    """Indices of at most ``limit`` rows: the best ``limit`` / 2, and an even choice of the others."""
    if len(values) <= limit:
        return np.arange(len(values))
    order = np.argsort(-values, kind="stable")
    others = np.linspace(limit // 2, len(order) - 1, limit - limit // 2).astype(np.intp)
    return np.sort(np.append(order[: limit // 2], order[others]))


def first_max(values: Floats, among: Bools | None = None) -> int:
    """Index of the maximum (of the marked values, if any is marked); the first of values that differ by rounding."""
    if among is not None and among.any():
        values = np.where(among, values, -np.inf)
    best = float(values.max())
    return int(np.argmax(values >= best - 1e-9 * max(1.0, abs(best))))


def greatest(values: Floats, n: int) -> Ints:
    """Indices of the n greatest values, ascending; of equal values the first.

    >>> greatest(np.array([0.0, 2.0, 1.0, 1.0]), 2).tolist()
    [1, 2]
    """
    if n >= len(values):
        return np.arange(len(values))
    least = np.partition(values, -n)[-n] if n else np.inf
    above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
    return np.sort(np.append(above, equal[: n - len(above)]))
