"""What is believed of every arm's objective, given a list of cells and some of their scores.

The covariance of the cells is factored once and grows by a row per cell; whatever is asked of an arm or a cell is then
a sum over rows. A pending cell is a row without a score: it lowers the uncertainty and leaves the mean as it is, which
is what conditioning on its own expected value does. When its score comes, no row changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskmetrics.bandit._kernel import NOISE, Model, learn
from daskmetrics.bandit._problem import Bools, Floats, Ints, Observations, Problem

LIMIT = 1000  #: rows kept apart; beyond half of it, arms with the most cells enter as one average each

ROOM = LIMIT + LIMIT // 2  #: rows for which a factor sets memory aside at a time


@dataclass(frozen=True, eq=False)
class Rows:
    """What a posterior rests on: each row a cell, or the average of several cells of one arm.

    Attributes
    ----------
    arm : ndarray (n,)
    mix : ndarray (n, T)
        Shares of the tasks in it; a single cell has one share of 1.
    noise : ndarray (n,)
        Variance of the row's value, which is standardised.
    """

    arm: Ints
    mix: Floats
    noise: Floats

    def __len__(self) -> int:
        return len(self.arm)

    def part(self, first: int, last: int) -> Rows:
        return Rows(self.arm[first:last], self.mix[first:last], self.noise[first:last])

    def with_more(self, more: Rows) -> Rows:
        return Rows(np.append(self.arm, more.arm), np.vstack([self.mix, more.mix]), np.append(self.noise, more.noise))

    @classmethod
    def of(cls, model: Model, arms: Ints, tasks: Ints) -> Rows:
        """One row per cell."""
        return cls(arms, np.eye(len(model.problem.tasks))[tasks], model.noise[tasks] + NOISE)


class Factor:
    """Inverse Cholesky factor of growing rows, and the rows' whitened covariances with all objectives.

    Memory: n x (n + A) numbers for n rows and A arms.
    """

    def __init__(self, model: Model) -> None:
        arms, tasks = len(model.problem.arms), len(model.problem.tasks)
        self.model = model
        self._rows = Rows(np.zeros(0, dtype=np.intp), np.zeros((0, tasks)), np.zeros(0))
        self._inverse = np.zeros((0, 0))
        self._pulls = np.zeros((0, arms))
        self._told = np.zeros(arms)  # variance that the rows took from every objective
        self._white = np.zeros(0)  # values of the first rows, whitened
        self._mean = np.zeros(arms)  # what these say of every objective

    def __len__(self) -> int:
        return len(self._rows)

    def cut(self, n: int) -> None:
        """Keep the first n rows."""
        if n >= len(self):
            return
        self._told -= (self._pulls[n : len(self)] ** 2).sum(axis=0)
        self._rows = self._rows.part(0, n)
        if len(self._white) > n:
            self._white = self._white[:n]
            self._mean = self._white @ self._pulls[:n]

    def extend(self, more: Rows) -> None:
        """Append rows."""
        if not len(more):
            return
        model, rows, n, m = self.model, self._rows, len(self), len(more)
        self._reserve(n + m)
        inverse = self._inverse[:n, :n]
        cross = model.cells(more.arm, more.mix, rows.arm, rows.mix) @ inverse.T
        own = model.cells(more.arm, more.mix, more.arm, more.mix) + np.diag(more.noise) - cross @ cross.T
        root = np.linalg.inv(np.linalg.cholesky(own))
        every = np.arange(len(model.problem.arms))
        fresh = model.with_objectives(every, more.arm, more.mix).T - cross @ self._pulls[:n]
        self._pulls[n : n + m] = root @ fresh
        self._inverse[n : n + m, :n] = -root @ (cross @ inverse)
        self._inverse[n : n + m, n : n + m] = root
        self._inverse[:n, n : n + m] = 0.0
        self._told += (self._pulls[n : n + m] ** 2).sum(axis=0)
        self._rows = rows.with_more(more)

    def agrees(self, rows: Rows) -> int:
        """How many of the first rows are the given ones already."""
        n = min(len(self), len(rows))
        same = (self._rows.arm[:n] == rows.arm[:n]) & (self._rows.mix[:n] == rows.mix[:n]).all(axis=1)
        return n if same.all() else int(np.argmin(same))

    def posterior(self, values: Floats) -> Posterior:
        """What follows from the values of the first rows; those of an earlier call must not have changed."""
        old, n = len(self._white), len(values)
        if n < old:
            self._white, self._mean, old = np.zeros(0), np.zeros_like(self._mean), 0
        new = self._inverse[old:n, :n] @ values
        self._white = np.append(self._white, new)
        self._mean = self._mean + new @ self._pulls[old:n]
        model, size = self.model, len(self)
        return Posterior(
            model=model,
            mean=model.problem.shares @ model.level + self._mean,
            variance=model.objective_variance - self._told,
            rows=self._rows,
            known=n,
            whiten=self._inverse[:size, :size],
            pulls=self._pulls[:size],
        )

    def _reserve(self, n: int) -> None:
        held = len(self._inverse)
        if n > held:
            room = max(n, held + ROOM)  # takes no memory until it is written to; copies take time
            inverse, pulls = np.empty((room, room)), np.empty((room, self._pulls.shape[1]))
            inverse[:held, :held], pulls[:held] = self._inverse, self._pulls
            self._inverse, self._pulls = inverse, pulls


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is believed of every arm's objective, in units of the reward; good until the next one is asked for.

    Attributes
    ----------
    model : Model
    mean, variance : ndarray (A,)
        Of the objective (the weighted mean over tasks), pending cells taken as observed.
    rows : Rows
        What it rests on, pending cells last.
    known : int
        How many rows, the first ones, have a value.
    whiten : ndarray (n, n)
        Inverse Cholesky factor of the rows' covariance.
    pulls : ndarray (n, A)
        The rows' whitened covariances with the objectives.
    """

    model: Model
    mean: Floats
    variance: Floats
    rows: Rows
    known: int
    whiten: Floats
    pulls: Floats

    def without_pending(self) -> Posterior:
        """The same with pending cells as if they had not been asked for: what is known by now."""
        n = self.known
        return Posterior(
            model=self.model,
            mean=self.mean,
            variance=self.variance + (self.pulls[n:] ** 2).sum(axis=0),
            rows=self.rows.part(0, n),
            known=n,
            whiten=self.whiten[:n, :n],
            pulls=self.pulls[:n],
        )

    @property
    def problem(self) -> Problem:
        return self.model.problem

    @cached_property
    def sd(self) -> Floats:
        """Standard deviation of every arm's objective (A,)."""
        return np.asarray(np.sqrt(np.maximum(self.variance, 0.0)))

    def covariance(self, left: Ints, right: Ints) -> Floats:
        """Covariance between some arms' objectives and some others' (L, R)."""
        return np.asarray(self.model.objectives(left, right) - self.pulls[:, left].T @ self.pulls[:, right])

    @cached_property
    def sort(self) -> Ints:
        """Where in `whitened` a task is found (T,): those without a row are all alike, and come first."""
        tried = self.rows.mix.any(axis=0)
        return np.where(tried, np.cumsum(tried), 0)

    def whitened(self, arms: Ints) -> Iterator[Floats]:
        """Whitened covariances of some arms' cells with the rows, what the rows say of them: (a, n) per sort of task.

        One after the other, since all together they do not fit in a processor's cache.
        """
        rows = self.rows
        common, own = self.model.parts(arms, rows.arm)
        shared = common @ self.whiten.T
        yield shared
        for mix in rows.mix.T[np.flatnonzero(self.sort)]:
            about = np.flatnonzero(mix)  # a task's own part is told by its own rows alone
            yield shared + (own[:, about] * mix[about]) @ self.whiten[:, about].T

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
        model = self.model
        cells = Rows.of(model, arms, tasks)
        distinct, where = np.unique(arms, return_inverse=True)
        white = np.stack(list(self.whitened(distinct)))[self.sort[tasks], where]
        prior = model.with_objectives(targets, arms, cells.mix).T
        own = model.common_variance + model.own_variance
        variance = np.maximum(own - (white**2).sum(axis=1), 0.0) + cells.noise
        return prior - white @ self.pulls[:, targets], variance


def fit(problem: Problem, seen: Observations, pending: Observations | None = None) -> Posterior:
    """Condition on what was observed.

    Parameters
    ----------
    problem : Problem
    seen : Observations
        At least none: the prior is a posterior too.
    pending : Observations or None
        Cells whose scores are still to come (their ``score`` is not read).

    Examples
    --------
    >>> from daskmetrics.core.names import Checkpoint, Suite
    >>> from daskmetrics.bandit._problem import arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> cost = np.ones((4, 2))
    >>> problem = Problem(suite.arms(), ("s", "t"), arm_features([suite]), cost, cost, Checkpoint("m", "step1"), "mean")
    >>> belief = fit(problem, Observations.of([(0, 0, 0.1, 0.01), (3, 0, 0.9, 0.01)]))
    >>> belief.mean.argsort().tolist()  # the unseen arms lie between, and each follows its neighbours
    [0, 1, 2, 3]
    """
    model = learn(problem, seen)
    rows, values = pooled(model, seen, LIMIT)
    factor = Factor(model)
    factor.extend(rows)
    if pending is not None:
        factor.extend(Rows.of(model, pending.arm, pending.task))
    return factor.posterior(values)


def pooled(model: Model, seen: Observations, limit: int) -> tuple[Rows, Floats]:
    """Rows and their values; where they are more than the limit, arms with the most cells become one row each.

    Should that not be enough, the worst arms' rows are thinned out: what matters is who is best.
    """
    if len(seen) <= limit:
        return Rows.of(model, seen.arm, seen.task), model.values(seen)
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
    return Rows(owner[kept], mix[kept], noise[kept]), values[kept]


def _thinned(values: Floats, limit: int) -> Ints:
    """All rows, or the better half of the limit and an even choice of the others."""
    if len(values) <= limit:
        return np.arange(len(values))
    order = np.argsort(-values, kind="stable")
    others = np.linspace(limit // 2, len(order) - 1, limit - limit // 2).astype(np.intp)
    return np.sort(np.append(order[: limit // 2], order[others]))


def first_max(values: Floats, among: Bools | None = None) -> int:
    """Index of the maximum (of those marked, if any is); near-ties go to the first, so that last bits do not decide."""
    if among is not None and among.any():
        values = np.where(among, values, -np.inf)
    best = float(values.max())
    return int(np.argmax(values >= best - 1e-9 * max(1.0, abs(best))))


def greatest(values: Floats, n: int) -> Ints:
    """Indices of the n greatest values, ascending; of equal ones the first.

    Examples
    --------
    >>> greatest(np.array([0.0, 2.0, 1.0, 1.0]), 2).tolist()
    [1, 2]
    """
    if n >= len(values):
        return np.arange(len(values))
    least = np.partition(values, -n)[-n] if n else np.inf
    above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
    return np.sort(np.append(above, equal[: n - len(above)]))
