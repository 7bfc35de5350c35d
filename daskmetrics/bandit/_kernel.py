"""The Gaussian process prior: covariances between arms and between tasks, and how they are estimated.

The standardised score of a cell is the sum ``common(arm) + of_kind(kind, arm) + of_task(task, arm) + level(task)``: a
part that all tasks share, a deviation of the task's kind, one of the task alone, and an offset of the task
(coregionalisation; Bonilla, Chai and Williams, "Multi-task Gaussian process prediction", NIPS 2007). The three
functions of the arm have the same kernel: arms that are near each other in training and depth, or that have similar
metrics, are correlated. Readouts of one layer are correlated, too, by how many parts differ and by how much
(`readout_distances`). The offset has a large variance (`LEVEL`), so the choice of the arms on which a task was
scored carries no information about these arms.

How much kinds and tasks deviate differs between families of models by a factor of ten and more, so their variances have
wide priors. The default `Hyperparameters` have one significant digit; they and the form of the kernel were chosen after
looking at published scores of several families (docs/figures/policies.md). `fit_model` estimates the hyperparameters of
a search by their maximum a posteriori value on a grid with factors of `STEP`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import cast

import numpy as np

from daskmetrics.bandit._problem import Bools, Floats, Ints, Observations, Problem
from daskmetrics.bandit._rewards import RewardScale, reward_scale
from daskmetrics.core._readouts import Readout

METRIC = 0.2  #: variance explained by the metrics; the variance explained by the position is 1
NUGGET = 0.03  #: variance, on each axis of the position, that a value does not share with its neighbours
LEVEL = 10.0  #: prior variance of a task's level: vague
NOISE = 1e-4  #: variance added to every observation, so that the covariance matrix can be factored
PRIOR_COUNT = 1.0  #: observations that the pooled spread counts for in the spread of each task
UNSEEN = 0.1  #: greatest noise variance that is assumed of a task without a score
ROUNDS = 6  #: estimates of the spreads where errors are stated; each uses the one before
STEP = 2.0  #: factor by which a hyperparameter changes at a time ...
PRIOR_SD = (1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 3.0, 2.0)  #: ... and the prior sd of the logarithm of each, in such steps
POOLING = 0.5  #: distance of readouts with different poolings
JOIN = 0.2  #: ... of which one reads layers together, or reads them together in another way
HALVING = 0.1  #: ... of which one keeps half the dimensions of the other
PRINCIPAL = 0.1  #: ... of which one keeps principal components
WHITENING = 0.4  #: ... of which one is whitened
STORAGE = {"float32": 0.0, "float16": 0.01, "int8": 0.05, "binary": 0.4}  #: places on a line
TRIALS = 6  #: hyperparameters tried at a time
FEW = 16  #: with fewer scores the hyperparameters keep their defaults


@dataclass(frozen=True)
class Hyperparameters:
    """Length scales, and variances relative to the one that position explains in all tasks."""

    time_scale: float = 0.3  # length scale in training, as a share of log steps
    depth_scale: float = 0.3  # length scale in depth, as a share of the layers
    model_variance: float = 0.4  # of one model's own part, relative to what all models share
    arm_variance: float = 0.01  # that all tasks share in one arm alone
    task_variance: float = 0.5  # of one task's deviation, smooth over arms
    kind_variance: float = 1.0  # of one kind's deviation, relative to that of one task
    cell_variance: float = 0.01  # of the deviations of kinds and tasks in one arm alone
    readout_scale: float = 1.0  # distance at which readouts of an arm have the correlation 1/e

    def parts(self, near: Floats, same: Bools) -> tuple[Floats, Floats, Floats]:
        """Prior covariances of cells from their arms' kernel and identity: of all tasks, of a kind, and of a task."""
        own = self.task_variance * near + self.cell_variance / (1 + self.kind_variance) * same
        return near + self.arm_variance * same, self.kind_variance * own, own + LEVEL

    @property
    def of_arms(self) -> tuple[float, float, float, float]:
        """The hyperparameters of the arms' kernel."""
        return self.time_scale, self.depth_scale, self.model_variance, self.readout_scale

    @property
    def total(self) -> float:
        """Variance of a cell relative to the part that all tasks share, as far as it is smooth over arms."""
        return 1 + (1 + self.kind_variance) * self.task_variance

    @property
    def alone(self) -> float:
        """Variance of a cell that its arm shares with no other arm."""
        return self.arm_variance + self.cell_variance

    @property
    def surprise(self) -> float:
        """Squared distance from the defaults, in prior standard deviations."""
        steps = (np.log(getattr(self, f.name) / cast(float, f.default)) / np.log(STEP) for f in fields(self))
        return float(sum((step / sd) ** 2 for step, sd in zip(steps, PRIOR_SD, strict=True)))


@dataclass(frozen=True, eq=False)
class ArmKernel:
    """Covariance function of arms: of their position (Matern 5/2) plus of their metrics (squared exponential).

    The part of the position is a product of two Matern 5/2 kernels (Rasmussen and Williams, 2006, eq. 4.17), of
    training and of depth, each with a nugget, and of the correlation between models. Both parts are multiplied by the
    correlation of the arms' readouts, ``exp(-distance / readout_scale)``.
    """

    problem: Problem
    time_scale: float
    depth_scale: float
    model_variance: float
    readout_scale: float

    def __call__(self, left: Ints, right: Ints) -> Floats:
        """Covariance matrix of two sets of arms (L, R)."""
        models, index = 1 + self.model_variance * np.eye(len(self.problem.models)), self.problem.model_index
        kernel = models[:, index[right]][index[left]] / (1 + self.model_variance)
        (training, at_training), (depth, at_depth) = self.problem.axes
        angle = np.arccos(1 - 2 * depth) / np.pi  # the first and the last layers differ the most from their neighbours
        kernel *= _matern(training / self.time_scale, at_training[left], at_training[right])
        kernel *= _matern(angle / self.depth_scale, at_depth[left], at_depth[right])
        metrics = self._metrics
        if metrics.shape[1]:
            a, b = metrics[left], metrics[right]
            square = np.maximum((a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T, 0.0)
            kernel += METRIC * np.exp(square / (-2.0 * metrics.shape[1]))
        if len(self.problem.readouts) > 1:
            index = self.problem.readout_index
            kernel *= self._readouts[:, index[right]][index[left]]
        return np.asarray(kernel)

    @cached_property
    def _readouts(self) -> Floats:
        """Correlations of the readouts (R, R)."""
        return np.exp(-readout_distances(self.problem.readouts) / self.readout_scale)

    @property
    def variance(self) -> float:
        """Variance of every single arm."""
        return (1 + NUGGET) ** 2 + (METRIC if self._metrics.shape[1] else 0.0)

    @property
    def _metrics(self) -> Floats:
        return self.problem.features[:, 2 + len(self.problem.models) :]


def readout_distances(names: Sequence[str]) -> Floats:
    """How far readouts are apart (R, R): the sum over their parts, each a distance of its own.

    Each part is a metric on a line or between labels, so that ``exp(-distance)`` is a covariance function. Dimensions
    are on a line, too, in powers of two; all of them count as twice the greatest number that another readout keeps.

    >>> readout_distances(["", "int8", "last", "last,int8"]).round(2).tolist()[0]
    [0.0, 0.05, 0.5, 0.55]
    """
    read = [Readout.parse(name) for name in names]
    most = 2 * max((each.kept or 1 for each in read), default=1)
    labels = (
        (POOLING, [each.pooling for each in read]),
        (JOIN, [each.join for each in read]),
        (PRINCIPAL, [each.principal for each in read]),
        (WHITENING, [each.whitening for each in read]),
    )
    lines = (
        HALVING * np.log2([each.kept or most for each in read]),
        np.array([STORAGE[each.storage] for each in read]),
    )
    apart = np.zeros((len(read), len(read)))
    for distance, values in labels:
        number = np.unique(np.array(values), return_inverse=True)[1]
        apart += distance * (number[:, None] != number)
    return np.asarray(apart + sum(np.abs(line[:, None] - line) for line in lines))


def _matern(values: Floats, left: Ints, right: Ints) -> Floats:
    """Matern 5/2 with a nugget between two sets of indices of the values (L, R); equal pairs are computed once."""
    (rows, left), (columns, right) = (np.unique(each, return_inverse=True) for each in (left, right))
    r = np.sqrt(5.0) * np.abs(values[rows][:, None] - values[columns])
    table = (1.0 + r + r * r / 3.0) * np.exp(-r) + NUGGET * (rows[:, None] == columns)
    return np.asarray(table[:, right][left])  # copying whole rows is faster than single numbers


@dataclass(frozen=True, eq=False)
class CovarianceModel:
    """Everything that stays fixed while a posterior grows by one observation after the other."""

    problem: Problem
    hyperparameters: Hyperparameters
    scale: RewardScale  # from raw scores to values of the reward
    level: Floats  # (T,), mean of each task's values
    spread: Floats  # (T,), their sd: standardised value = (value - level) / spread
    noise: Floats  # (T,), variance of a standardised score about the true value of its cell
    freedom: float  # degrees of freedom of the spreads

    @cached_property
    def kernel(self) -> ArmKernel:
        return ArmKernel(self.problem, *self.hyperparameters.of_arms)

    @cached_property
    def weights(self) -> Floats:
        """Weights of the standardised values in the objective (T,)."""
        return np.asarray(self.spread * self.problem.objective_weights)

    def values(self, seen: Observations) -> Floats:
        """Standardised values of observed cells (n,)."""
        return np.asarray((self.scale.values(seen) - self.level[seen.task]) / self.spread[seen.task])

    def parts(self, left: Ints, right: Ints) -> tuple[Floats, Floats, Floats]:
        """Prior covariances of two sets of arms' cells (L, R): of all tasks, of a kind, and of a task."""
        return self.hyperparameters.parts(self.kernel(left, right), left[:, None] == right)

    @property
    def _variances(self) -> tuple[float, float, float]:
        """The three parts of the prior variance of a cell."""
        parts = self.hyperparameters.parts(np.array(self.kernel.variance), np.array(True))
        return float(parts[0]), float(parts[1]), float(parts[2])

    def cells(self, left: Ints, left_mix: Floats, right: Ints, right_mix: Floats) -> Floats:
        """Prior covariance of two sets of rows (L, R); a row averages an arm's tasks with the shares (T,) in mix."""
        return self._mixed(self.parts(left, right), left_mix, right_mix)

    def with_objectives(self, targets: Ints, arms: Ints, mix: Floats) -> Floats:
        """Prior covariance of the targets' objectives with rows (S, n)."""
        return self._mixed(self.parts(targets, arms), self.weights, mix)

    def objectives(self, left: Ints, right: Ints) -> Floats:
        """Prior covariance of two sets of arms' objectives (L, R)."""
        return self._mixed(self.parts(left, right), self.weights, self.weights)

    @property
    def cell_variance(self) -> float:
        """Prior variance of a standardised score."""
        return sum(self._variances)

    @property
    def objective_variance(self) -> float:
        """Prior variance of an objective."""
        squares = [((self.weights @ group) ** 2).sum() for group in self.problem.task_groups]
        return float(np.dot(self._variances, squares))

    def _mixed(self, parts: Sequence[Floats], left_mix: Floats, right_mix: Floats) -> Floats:
        """Sum of the parts, each times what the mixtures of tasks, (L, T) or (T,), share of its groups (L, R)."""
        groups = self.problem.task_groups
        return np.asarray(
            sum(part * (left_mix @ of @ (right_mix @ of).T) for part, of in zip(parts, groups, strict=True))
        )


class _TrainingScores:
    """The scores from which the hyperparameters are estimated, and what many hyperparameters share."""

    def __init__(self, problem: Problem, seen: Observations) -> None:
        self.problem, self.seen, self.scale = problem, seen, reward_scale(problem, seen)
        self.same_arm, self.same_task = (index[:, None] == index for index in (seen.arm, seen.task))  # (n, n)
        columns, column = problem.related
        self.likeness = columns[seen.task][:, column[seen.task]]  # of the tasks (n, n)
        self.count = np.bincount(seen.task, minlength=len(problem.tasks))  # of every task's scores (T,)
        self.values, errors = self.scale.values(seen), self.scale.errors(seen)  # in units of the reward (n,)
        # variance of a task's values about the true values of their cells (T,); NaN without a score
        self.noise = np.full(len(self.count), np.nan)
        for task in np.unique(seen.task):
            self.noise[task] = np.median(errors[seen.task == task]) ** 2
        self.of_task = np.eye(len(self.count))[seen.task]  # (n, T)
        self._kernels: dict[tuple[float, ...], Floats] = {}

    def covariance(self, h: Hyperparameters) -> Floats:
        """Prior covariance of the observed cells (n, n)."""
        common, of_kind, of_task = h.parts(self.kernel(h), self.same_arm)
        return np.asarray(common + of_kind * self.likeness + of_task * self.same_task)

    def kernel(self, hyperparameters: Hyperparameters) -> Floats:
        """Covariance of the observed arms (n, n)."""
        of_arms = hyperparameters.of_arms
        if of_arms not in self._kernels:
            self._kernels[of_arms] = ArmKernel(self.problem, *of_arms)(self.seen.arm, self.seen.arm)
        return self._kernels[of_arms]


def fit_model(problem: Problem, seen: Observations) -> CovarianceModel:
    """The maximum a posteriori scale and hyperparameters, given the observations."""
    *_, best = fit_model_steps(problem, seen)
    return best


def fit_model_steps(problem: Problem, seen: Observations) -> Iterator[CovarianceModel]:
    """Coordinate ascent: the best model so far, after every `TRIALS` trials of one changed hyperparameter."""
    scores = _TrainingScores(problem, seen)
    (best,) = _standardised(scores, [Hyperparameters()])
    yield best
    if len(seen) < FEW:
        return
    (greatest,), tried = _log_posteriors(scores, [best]), {best.hyperparameters}
    improved = True
    names = [f.name for f in fields(Hyperparameters) if f.name != "readout_scale" or len(problem.readouts) > 1]
    while improved:
        h, improved = best.hyperparameters, False
        changed = [replace(h, **{name: getattr(h, name) * by}) for name in names for by in (1 / STEP, STEP)]
        options = [option for option in changed if option not in tried]
        tried.update(options)
        for first in range(0, len(options), TRIALS):
            models = _standardised(scores, options[first : first + TRIALS])
            for model, density in zip(models, _log_posteriors(scores, models), strict=True):
                if density > greatest + 1e-6:
                    best, greatest, improved = model, density, True
            yield best


def _standardised(scores: _TrainingScores, options: Sequence[Hyperparameters]) -> list[CovarianceModel]:
    """Estimate levels and spreads by generalised least squares, since correlated arms tell little of a spread.

    Errors count relative to the spread that is estimated: it is estimated again where they are stated. The differences
    of a task whose scores vary no more than their errors then count as noise, and the search soon leaves it.
    """
    task, values, count, untold = scores.seen.task, scores.values, scores.count, scores.noise == 0
    each = np.arange(len(task))
    overall = float(values.var()) if len(values) and np.ptp(values) > 0 else 1.0  # any scale fits equal values
    freedom = np.maximum(count - 1, 0)
    free, noise = float(freedom.sum()), np.zeros((len(options), len(count)))
    # block diagonal: each task has a scale of its own
    covariance = np.stack([h.total * scores.kernel(h) + h.alone * scores.same_arm for h in options]) * scores.same_task
    deviation = np.array([[h.cell_variance] for h in options])
    for _ in range(ROUNDS if np.nansum(scores.noise) else 1):
        observed = covariance.copy()
        observed[:, each, each] += noise[:, task] + NOISE
        precision = np.linalg.inv(observed)
        weight = np.maximum(precision.sum(axis=1) @ scores.of_task, 1e-300)
        level = (precision @ values) @ scores.of_task / weight
        residual = values - level[:, task]
        square = (residual * np.einsum("hij,hj->hi", precision, residual)) @ scores.of_task
        pooled = (square.sum(axis=1, keepdims=True) + overall) / (free + 1.0)
        spread = np.sqrt((square + PRIOR_COUNT * pooled) / (freedom + PRIOR_COUNT))
        # an error that nobody told is taken to be as large as the deviations of single cells
        noise = np.where(untold, deviation, scores.noise / spread**2)
    if count.any():
        level[:, count == 0] = level[:, count > 0].mean(axis=1, keepdims=True)
        # a task that was not seen yet may differ between arms even if those that were seen do not
        noise[:, count == 0] = np.minimum(np.median(noise[:, count > 0], axis=1, keepdims=True), UNSEEN)
    else:
        level[:], noise[:] = 0.0, 0.0
    return [
        CovarianceModel(scores.problem, h, scores.scale, level[i], spread[i], noise[i], max(free, 1.0))
        for i, h in enumerate(options)
    ]


def _log_posteriors(scores: _TrainingScores, models: Sequence[CovarianceModel]) -> Floats:
    """Log marginal likelihood of the scores plus the log prior of the hyperparameters of each, up to a constant."""
    seen, each = scores.seen, np.arange(len(scores.seen))
    covariance = np.stack([scores.covariance(model.hyperparameters) for model in models])
    covariance[:, each, each] += np.stack([model.noise for model in models])[:, seen.task] + NOISE
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, np.stack([model.values(seen) for model in models])[..., None])[..., 0]
    spread = np.log(np.stack([model.spread for model in models]))[:, seen.task]
    likelihood = -0.5 * (white**2).sum(axis=1) - np.log(factor[:, each, each]).sum(axis=1) - spread.sum(axis=1)
    return np.asarray(likelihood - 0.5 * np.array([model.hyperparameters.surprise for model in models]))
