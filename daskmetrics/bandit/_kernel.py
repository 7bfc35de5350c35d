"""What is believed before a score is seen: how alike arms are, how alike tasks are, and on which scale.

A cell's standardised value is ``common(arm) + taste(task, arm) + level(task)``: what all tasks find in an arm, what
this one finds beyond it, and where the task lies as a whole (coregionalisation: Bonilla et al., 2008). Arms near each
other in training and depth, or with alike metrics, are alike in both. The level is vague, so that the choice of the
arms which a task was tried on says nothing about them.

The expected numbers (`Likeness`) have one significant digit and come from no fit; the form was chosen with published
scores of one family in view. What a search has seen moves the numbers by factors of `STEP`, by marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import cast

import numpy as np

from daskmetrics.bandit._problem import Bools, Floats, Ints, Observations, Problem
from daskmetrics.bandit._rewards import Unit, scale

MODELS = 0.7  #: correlation of two models at equal training and depth
METRIC = 0.2  #: variance explained by the metrics; that by position is 1
QUIRK = 0.03  #: variance of what one layer has at all steps, or one checkpoint at all layers, and its neighbours lack
LEVEL = 10.0  #: variance of a task's level: vague
NOISE = 1e-4  #: variance added to every observation, for a matrix that can be factored
PRIOR_COUNT = 3.0  #: how many observations the pooled spread counts for, where a task has few of its own
STEP = 2.0  #: factor by which a likeness is moved at a time ...
DOUBT = 1.0  #: ... and the standard deviation of the true one about the expected one, in such steps
FEW = 16  #: scores before which nothing is moved


@dataclass(frozen=True)
class Likeness:
    """How alike arms and tasks are; variances in units of what position tells of all tasks together.

    Attributes
    ----------
    time, depth : float
        Lengths over which scores change, as shares of training (log step) and of the depth.
    own : float
        Variance of what all tasks find in an arm and not in its neighbours.
    taste : float
        Variance of what one task finds beyond the others in an arm and its neighbours.
    cell : float
        Variance of what one task finds in one arm alone.
    """

    time: float = 0.3
    depth: float = 0.3
    own: float = 0.01
    taste: float = 0.3
    cell: float = 0.01

    def parts(self, near: Floats, same: Bools) -> tuple[Floats, Floats]:
        """Prior covariances of cells, by how near their arms are and which are the same: the common and the own."""
        return near + self.own * same, self.taste * near + self.cell * same + LEVEL


@dataclass(frozen=True, eq=False)
class ArmKernel:
    """Prior covariance of arms by their position and their metrics (RBF).

    Position is a product of two Matern 5/2 kernels (Rasmussen and Williams, 2006, eq. 4.17), of training and of depth,
    each with a small part that no neighbour shares, and of the models' correlation.
    """

    problem: Problem
    time: float
    depth: float

    def __call__(self, left: Ints, right: Ints) -> Floats:
        """Covariance of some arms with some others (L, R)."""
        kernel = self._models[:, self.problem.model_index[right]][self.problem.model_index[left]]
        for table, (_, place) in zip(self._tables, self.problem.axes, strict=True):
            kernel *= table[:, place[right]][place[left]]  # whole rows are copied faster than single numbers
        metrics = self._metrics
        if metrics.shape[1]:
            kernel += METRIC * np.exp(_squared_distance(metrics[left], metrics[right]) / (-2.0 * metrics.shape[1]))
        return np.asarray(kernel)

    @property
    def variance(self) -> float:
        """Of every single arm."""
        return (1 + QUIRK) ** 2 + (METRIC if self._metrics.shape[1] else 0.0)

    @property
    def _metrics(self) -> Floats:
        return self.problem.features[:, 2 + len(self.problem.models) :]

    @cached_property
    def _models(self) -> Floats:
        return MODELS + (1 - MODELS) * np.eye(len(self.problem.models))

    @cached_property
    def _tables(self) -> list[Floats]:
        """Per axis the covariances of its distinct values."""
        tables = []
        for (values, _), length in zip(self.problem.axes, (self.time, self.depth), strict=True):
            r = np.sqrt(5.0) * np.abs(values[:, None] - values) / length
            tables.append((1.0 + r + r * r / 3.0) * np.exp(-r) + QUIRK * np.eye(len(values)))
        return tables


@dataclass(frozen=True, eq=False)
class Model:
    """Everything that is held fixed while a posterior grows by one observation after the other.

    Attributes
    ----------
    problem : Problem
    likeness : Likeness
    unit : Unit
        Raw scores to values of the reward.
    level, spread : ndarray (T,)
        Of the values, per task; standardised value = (value - level) / spread.
    noise : ndarray (T,)
        Variance of a standardised score about its cell's true one.
    freedom : float
        Degrees of freedom behind the spreads.
    """

    problem: Problem
    likeness: Likeness
    unit: Unit
    level: Floats
    spread: Floats
    noise: Floats
    freedom: float

    @cached_property
    def near(self) -> ArmKernel:
        """How alike arms are by where they lie."""
        return ArmKernel(self.problem, self.likeness.time, self.likeness.depth)

    @cached_property
    def weights(self) -> Floats:
        """Of the objective, on standardised values (T,)."""
        return np.asarray(self.spread * self.problem.shares)

    def values(self, seen: Observations) -> Floats:
        """Standardised values of observed cells (n,)."""
        return np.asarray((self.unit.values(seen) - self.level[seen.task]) / self.spread[seen.task])

    def parts(self, left: Ints, right: Ints) -> tuple[Floats, Floats]:
        """Prior covariances of two arms' cells: of what all tasks find, and of what one finds beyond it (L, R)."""
        return self.likeness.parts(self.near(left, right), left[:, None] == right)

    def cells(self, left: Ints, left_mix: Floats, right: Ints, right_mix: Floats) -> Floats:
        """Prior covariance of rows (L, R): a row is an arm and the shares (T,) of the tasks that it averages."""
        common, own = self.parts(left, right)
        return np.asarray(common + own * (left_mix @ right_mix.T))

    @property
    def common_variance(self) -> float:
        """Prior variance of what all tasks find in an arm."""
        return self.near.variance + self.likeness.own

    @property
    def own_variance(self) -> float:
        """Prior variance of one task's part of a cell."""
        return self.likeness.taste * self.near.variance + self.likeness.cell + LEVEL

    def with_objectives(self, targets: Ints, arms: Ints, mix: Floats) -> Floats:
        """Prior covariance of some arms' objectives with rows (S, n)."""
        like, whole, part = self.likeness, float(self.weights.sum()), mix @ self.weights
        found = self.near(targets, arms) * (whole + like.taste * part) + LEVEL * part
        target, row = np.nonzero(targets[:, None] == arms)
        found[target, row] += like.own * whole + like.cell * part[row]
        return np.asarray(found)

    def objectives(self, left: Ints, right: Ints) -> Floats:
        """Prior covariance of some arms' objectives with some others' (L, R)."""
        whole, square = float(self.weights.sum()), float(self.weights @ self.weights)
        common, own = self.parts(left, right)
        return np.asarray(common * whole**2 + own * square)

    @property
    def objective_variance(self) -> float:
        """Prior variance of an objective."""
        whole, square = float(self.weights.sum()), float(self.weights @ self.weights)
        return self.common_variance * whole**2 + self.own_variance * square


@dataclass(frozen=True, eq=False)
class _Sight:
    """The scores that likenesses are tried on, and what many of these share."""

    problem: Problem
    seen: Observations
    unit: Unit
    _near: dict[tuple[float, float], Floats] = field(default_factory=dict)

    def near(self, likeness: Likeness) -> Floats:
        """How near the arms seen are to each other (n, n)."""
        lengths = likeness.time, likeness.depth
        if lengths not in self._near:
            self._near[lengths] = ArmKernel(self.problem, *lengths)(self.seen.arm, self.seen.arm)
        return self._near[lengths]

    @cached_property
    def same(self) -> Bools:
        """Which of the arms seen are the same (n, n)."""
        return np.asarray(self.seen.arm[:, None] == self.seen.arm)

    @cached_property
    def same_task(self) -> Bools:
        """Which of the tasks seen are the same (n, n)."""
        return np.asarray(self.seen.task[:, None] == self.seen.task)

    @cached_property
    def count(self) -> Ints:
        """Scores of every task (T,)."""
        return np.bincount(self.seen.task, minlength=len(self.problem.tasks))

    @cached_property
    def values(self) -> Floats:
        """Of the reward (n,)."""
        return self.unit.values(self.seen)

    @cached_property
    def noise(self) -> Floats:
        """Variance of a task's value about its cell's true one (T,); NaN where nothing was seen."""
        errors = self.unit.errors(self.seen)
        found = np.full(len(self.count), np.nan)
        for task in np.unique(self.seen.task):
            found[task] = np.median(errors[self.seen.task == task]) ** 2
        return found


def learn(problem: Problem, seen: Observations) -> Model:
    """The most likely scale and likeness given what was seen."""
    *_, best = learning(problem, seen)
    return best


def learning(problem: Problem, seen: Observations) -> Iterator[Model]:
    """The most likely model so far, after each likeness tried; one number of a likeness is moved at a time."""
    sight = _Sight(problem, seen, scale(problem, seen))
    best = _standardised(sight, Likeness())
    yield best
    if len(seen) < FEW:
        return
    most, known = _log_posterior(sight, best), {best.likeness}
    moved = True
    while moved:
        moved = False
        for option in _neighbours(best.likeness):
            if option in known:
                continue
            known.add(option)
            model = _standardised(sight, option)
            score = _log_posterior(sight, model)
            if score > most + 1e-6:
                best, most, moved = model, score, True
            yield best


def _neighbours(likeness: Likeness) -> Iterator[Likeness]:
    for one in fields(Likeness):
        value = getattr(likeness, one.name)
        for factor in (1 / STEP, STEP):
            yield replace(likeness, **{one.name: value * factor})


def _standardised(sight: _Sight, likeness: Likeness) -> Model:
    """Levels and spreads by generalised least squares, task by task: arms that are alike say little of a spread."""
    task, values, count, tasks = sight.seen.task, sight.values, sight.count, len(sight.count)
    alike = (1 + likeness.taste) * sight.near(likeness) + (likeness.own + likeness.cell) * sight.same
    alike[np.diag_indices(len(task))] += NOISE
    precision = np.linalg.inv(alike * sight.same_task)  # block by block: no task says anything of another's scale
    weight = np.maximum(np.bincount(task, precision.sum(axis=0), tasks), 1e-300)
    level = np.bincount(task, precision @ values, tasks) / weight
    rest = values - level[task]
    square = np.bincount(task, rest * (precision @ rest), tasks)
    freedom = np.maximum(count - 1, 0)
    overall = float(values.var()) if len(values) and np.ptp(values) > 0 else 1.0  # before two differ, any scale will do
    free = float(freedom.sum())
    pooled = (square.sum() + overall) / (free + 1.0)
    spread = np.sqrt((square + PRIOR_COUNT * pooled) / (freedom + PRIOR_COUNT))
    noise = sight.noise / spread**2
    level[count == 0] = level[count > 0].mean() if count.any() else 0.0
    noise[count == 0] = np.median(noise[count > 0]) if count.any() else 0.0
    return Model(sight.problem, likeness, sight.unit, level, spread, noise, max(free, 1.0))


def _log_posterior(sight: _Sight, model: Model) -> float:
    """Of a likeness, up to a constant: marginal likelihood of the scores, and its distance from the expected one."""
    seen = sight.seen
    common, own = model.likeness.parts(sight.near(model.likeness), sight.same)
    covariance = common + own * sight.same_task
    covariance[np.diag_indices(len(seen))] += model.noise[seen.task] + NOISE
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, model.values(seen))
    scores = -0.5 * white @ white - np.log(np.diag(factor)).sum() - np.log(model.spread[seen.task]).sum()
    steps = [np.log(getattr(model.likeness, f.name) / cast(float, f.default)) / np.log(STEP) for f in fields(Likeness)]
    return float(scores - 0.5 * sum(step**2 for step in steps) / DOUBT**2)


def _squared_distance(left: Floats, right: Floats) -> Floats:
    square = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2.0 * left @ right.T
    return np.asarray(np.maximum(square, 0.0))
