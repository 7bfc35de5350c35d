"""The Gaussian process of a search: the prior, how its parameters are estimated, and the posterior
of every arm.

An arm's objective is the weighted mean of its main scores, as leaderboards show it: tasks with a
wide spread count more.

**The prior.** The standardised score of a cell is the sum ``common(arm) + of_kind(kind, arm) +
of_task(task, arm) + level(task)``: a part that all tasks share, a deviation of the task's kind, one
of the task alone, and an offset of the task (coregionalisation; Bonilla, Chai and Williams,
"Multi-task Gaussian process prediction", NIPS 2007). The three functions of the arm have the same
kernel: arms that are near each other in training and depth are correlated. Readouts of one layer
are correlated, too, by how many parts differ and by how much (`readout_distances`). The offset has
a large variance (`LEVEL`), so the choice of the arms on which a task was scored carries no
information about these arms.

How much kinds and tasks deviate differs between families of models by a factor of ten and more, so
their variances have wide priors. The default `Hyperparameters` have one significant digit; they and
the form of the kernel were chosen after looking at published scores of several families
(docs/figures/search.md). `fit_model` estimates the hyperparameters of a search among several models
or readouts by their maximum a posteriori value on a grid with factors of `STEP`.

**The posterior.** The covariance matrix of the observed cells is factored once (Cholesky) and grows
by a row per cell; every posterior quantity is then a sum over rows. A pending cell is a row without
a score: it reduces the variance and leaves the mean unchanged, which is the same as conditioning on
its expected value. When its score arrives, no row changes.

**A growing search** reuses the factored covariance of the state before. With few scores the
hyperparameters are estimated again after each score. Later that costs too much: they are estimated
once more at `REFIT` scores, and old rows are pooled from `LIMIT` scores on. The spreads are
estimated again as soon as a further task has `LOOKS` scores, since until then its own is assumed to
be that of the others, and when its scores have doubled, up to `ENOUGH`: the spread of a task that
decides would keep the uncertainty of three scores to the end otherwise. A new basis of many rows is
built in small steps, one per score, while decisions use the old basis. So which basis a posterior
uses depends on the outcomes alone, and no decision takes long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

import numpy as np

from daskmetrics.bandit.problem import (
    Bools,
    Floats,
    Ints,
    Observations,
    Problem,
    Rows,
)
from daskmetrics.domain.readouts import Readout


def measured_objectives(problem: Problem, seen: Observations) -> Floats:
    """Weighted mean of every arm's scores so far (A,), NaN without any."""
    arms = len(problem.arms)
    weights = problem.objective_weights[seen.task]
    total_weight = np.bincount(seen.arm, weights, arms)
    total_score = np.bincount(seen.arm, seen.score * weights, arms)
    mean = total_score / np.maximum(total_weight, 1e-300)
    return np.where(total_weight > 0, mean, np.nan)


# --- the prior

#: variance, on each axis of the position, that a value does not share with its neighbours
NUGGET = 0.03
ARM_VARIANCE = (1 + NUGGET) ** 2  #: of the arms' kernel
LEVEL = 10.0  #: prior variance of a task's level: vague
NOISE = 1e-4  #: variance added to every observation, so that the covariance matrix can be factored
PRIOR_COUNT = 1.0  #: observations that the pooled spread counts for in the spread of each task
UNSEEN = 0.1  #: greatest noise variance that is assumed of a task without a score
ROUNDS = 6  #: estimates of the spreads where errors are stated; each uses the one before
STEP = 2.0  #: factor by which a hyperparameter changes at a time ...
#: ... and the prior sd of the logarithm of each, in such steps
PRIOR_SD = (1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 2.0, 3.0, 2.0)
HALVING = 0.1  #: distance of readouts of which one keeps half the dimensions of the other
POOLED_OTHERWISE = 0.5  #: ... and of those that differ in their pooling
TRIALS = 6  #: hyperparameters tried at a time
FEWEST = 16  #: with fewer scores the hyperparameters keep their defaults
LOOKS = 3  #: scores from which on the spread of a task counts as known ...
ENOUGH = 12  #: ... and up to which it is estimated again whenever their number has doubled ...
FAR = 4.0  #: ... or a score is so many standard deviations from the level


@dataclass(frozen=True)
class Hyperparameters:
    """Length scales, and variances relative to that of position."""

    time_scale: float = 0.3  # length scale in training, as a share of log steps
    depth_scale: float = 0.3  # length scale in depth, as a share of the layers
    model_variance: float = 0.4  # of one model's own part, relative to what all models share
    arm_variance: float = 0.01  # that all tasks share in one arm alone
    task_variance: float = 0.5  # of one task's deviation, smooth over arms
    kind_variance: float = 1.0  # of one kind's deviation, relative to that of one task
    cost_variance: float = 0.1  # of what changes with the cost of tasks, smooth over arms
    cell_variance: float = 0.01  # of the deviations of kinds and tasks in one arm alone
    readout_scale: float = 1.0  # distance at which readouts of an arm have the correlation 1/e

    def parts(self, near: Floats, same: Bools) -> tuple[Floats, Floats, Floats, Floats]:
        """Prior covariances that all tasks, tasks of like cost, a kind and a task have.

        They follow from the covariance ``near`` of the arms by position, and from their identity.
        """
        cell_variance = self.cell_variance / (1 + self.kind_variance)
        common = near + self.arm_variance * same
        of_cost = self.cost_variance * near
        deviation = self.task_variance * near + cell_variance * same
        of_kind = self.kind_variance * deviation
        of_task = deviation + LEVEL
        return common, of_cost, of_kind, of_task

    def within_task(self, near: Floats, same: Bools, trend: Floats) -> Floats:
        """Prior covariances of cells of one task, without its level."""
        smooth = 1 + (1 + self.kind_variance) * self.task_variance + self.cost_variance * trend
        alone = self.arm_variance + self.cell_variance
        return smooth * near + alone * same

    @property
    def surprise(self) -> float:
        """Squared distance from the defaults, in prior standard deviations."""
        ratios = np.divide([*vars(self).values()], [*vars(Hyperparameters()).values()])
        steps = np.log(ratios) / np.log(STEP)
        distances = steps / PRIOR_SD
        return float(sum(distances**2))


def arm_covariance(problem: Problem, h: Hyperparameters, left: Ints, right: Ints) -> Floats:
    """Prior covariance of two sets of arms (L, R).

    It is the product of two Matern 5/2 kernels (Rasmussen and Williams, 2006, eq. 4.17), of
    training and of depth, each with a nugget, and of the correlations between models and between
    readouts, ``exp(-distance / readout_scale)``.
    """
    same_model = np.eye(len(problem.models))
    correlation = (1 + h.model_variance * same_model) / (1 + h.model_variance)
    model = problem.model_index
    kernel = correlation[:, model[right]][model[left]]
    (training, at_training), (depth, at_depth) = problem.axes
    # the first and the last layers differ the most from their neighbours
    angle = np.arccos(1 - 2 * depth) / np.pi
    kernel *= _matern(training / h.time_scale, at_training[left], at_training[right])
    kernel *= _matern(angle / h.depth_scale, at_depth[left], at_depth[right])
    if len(problem.readouts) > 1:
        distance = readout_distances(problem.readouts)
        correlation = np.exp(-distance / h.readout_scale)
        readout = problem.readout_index
        kernel *= correlation[:, readout[right]][readout[left]]
    return kernel


@lru_cache(maxsize=2)  # of a search and of its champions
def readout_distances(names: tuple[str, ...]) -> Floats:
    """Distances of readouts (R, R), summed over their parts.

    Each part is a metric on a line or between labels, so that ``exp(-distance)`` is a covariance
    function. Dimensions are on a line, in powers of two; all of them count as twice the
    greatest number that another readout keeps.

    >>> readout_distances(("", "64d", "last", "last,64d")).round(2).tolist()[0]
    [0.0, 0.1, 0.5, 0.6]
    """
    readouts = [Readout.parse(name) for name in names]
    poolings = np.array([readout.pooling for readout in readouts])
    kept = [readout.dimensions for readout in readouts]
    all_dimensions = 2 * max(filter(None, kept), default=1)
    halvings = np.log2([count or all_dimensions for count in kept])
    position = HALVING * halvings
    distance: Floats = np.abs(position[:, None] - position)
    distance += POOLED_OTHERWISE * (poolings[:, None] != poolings)
    return distance


def _matern(values: Floats, left: Ints, right: Ints) -> Floats:
    """Matern 5/2 with a nugget between two sets of indices (L, R).

    Equal pairs are computed once.
    """
    rows, row_of = np.unique(left, return_inverse=True)
    columns, column_of = np.unique(right, return_inverse=True)
    distance = np.abs(values[rows][:, None] - values[columns])
    r = np.sqrt(5.0) * distance
    matern = (1.0 + r + r * r / 3.0) * np.exp(-r)
    is_same = rows[:, None] == columns
    table = matern + NUGGET * is_same
    # copying whole rows is faster than single numbers
    return np.asarray(table[:, column_of][row_of])


@dataclass(frozen=True, eq=False)
class CovarianceModel:
    """What stays fixed while a posterior grows."""

    problem: Problem
    hyperparameters: Hyperparameters
    level: Floats  # (T,), mean of each task's scores
    spread: Floats  # (T,), their sd: standardised value = (score - level) / spread
    noise: Floats  # (T,), variance of a standardised score about the true value of its cell
    count: Ints  # (T,), scores of each task from which its spread was estimated

    @property
    def has_spread(self) -> Bools:
        """Tasks whose spread was estimated from their own scores (T,)."""
        return self.count >= min(LOOKS, len(self.problem.arms))

    @cached_property
    def weights(self) -> Floats:
        """Weights of the standardised values in the objective (T,)."""
        return self.spread * self.problem.objective_weights

    @cached_property
    def freedom(self) -> float:
        """Degrees of freedom of the objective's spread (Satterthwaite, 1946).

        They are few if a task with few scores varies the most.
        """
        of_task = np.maximum(self.count - 1, 0)
        variance = self.weights**2
        squares = variance**2 / (of_task + PRIOR_COUNT)
        of_objective = variance.sum() ** 2 / squares.sum()
        # what all tasks share has no more than theirs together
        freedom = min(of_objective, of_task.sum())
        return float(max(freedom, 1.0))

    def values(self, seen: Observations) -> Floats:
        """Standardised values of observed cells (n,)."""
        deviations = seen.score - self.level[seen.task]
        return deviations / self.spread[seen.task]

    def parts(self, left: Ints, right: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """Prior covariances of cells (L, R); see `Hyperparameters.parts`."""
        kernel = arm_covariance(self.problem, self.hyperparameters, left, right)
        return self.hyperparameters.parts(kernel, left[:, None] == right)

    @property
    def _variances(self) -> Floats:
        """The parts of the prior variance of a cell (4,)."""
        variance = np.array(ARM_VARIANCE)
        return np.array(self.hyperparameters.parts(variance, np.array(True)))

    def cells(self, left: Ints, left_mix: Floats, right: Ints, right_mix: Floats) -> Floats:
        """Prior covariance of two sets of rows (L, R).

        A row averages an arm's tasks with the shares in mix, (L, T), or (T,) for all rows. With the
        `weights` it is the arm's objective.
        """
        mixed = np.zeros(())
        covariances = self.parts(left, right)
        for covariance, group in zip(covariances, self.problem.task_groups, strict=True):
            left_shares = left_mix @ group
            right_shares = right_mix @ group
            mixed = mixed + covariance * (left_shares @ right_shares.T)
        return mixed

    @property
    def cell_variance(self) -> Floats:
        """Prior variance of a standardised score of each task (T,)."""
        squares = [(group**2).sum(axis=1) for group in self.problem.task_groups]
        return np.asarray(self._variances @ squares)

    @property
    def objective_variance(self) -> float:
        """Prior variance of an objective."""
        squares = [((self.weights @ group) ** 2).sum() for group in self.problem.task_groups]
        return float(np.dot(self._variances, squares))


class _TrainingScores:
    """Scores to estimate hyperparameters from, and what many of these share."""

    def __init__(self, problem: Problem, seen: Observations) -> None:
        self.problem = problem
        self.seen = seen
        kind = problem.kind_index[seen.task]
        self.same_arm = seen.arm[:, None] == seen.arm  # (n, n)
        self.same_task = seen.task[:, None] == seen.task
        self.same_kind = kind[:, None] == kind
        trend = problem.cost_trend[seen.task]
        self.cost_trend = np.outer(trend, trend)
        self.count = problem.cells_per_task(seen)
        self.freedom = np.maximum(self.count - 1, 0)  # left by the level of each task (T,)
        # variance of a task's scores about the true values of their cells (T,); NaN without a score
        self.noise = np.full(len(self.count), np.nan)
        for task in np.unique(seen.task):
            self.noise[task] = np.median(seen.stderr[seen.task == task]) ** 2
        self.of_task = np.eye(len(self.count))[seen.task]  # (n, T)
        self._kernels: dict[tuple[float, ...], Floats] = {}

    @property
    def variance(self) -> float:
        """Variance of the values within tasks.

        A task's level says nothing of the differences of arms. If it is 0, the variance of all
        values; 1 for equal values, which any scale fits.
        """
        if not len(self.seen.score) or np.ptp(self.seen.score) == 0:
            return 1.0
        level = (self.seen.score @ self.of_task) / np.maximum(self.count, 1)
        deviations = self.seen.score - level[self.seen.task]
        squares = (deviations**2).sum()
        if squares > 0:
            return float(squares / self.freedom.sum())
        return float(self.seen.score.var())

    def covariance(self, h: Hyperparameters) -> Floats:
        """Prior covariance of the observed cells (n, n)."""
        common, of_cost, of_kind, of_task = h.parts(self.kernel(h), self.same_arm)
        over_tasks = common + of_cost * self.cost_trend
        return np.asarray(over_tasks + of_kind * self.same_kind + of_task * self.same_task)

    def kernel(self, h: Hyperparameters) -> Floats:
        """Covariance of the observed arms (n, n)."""
        of_arms = h.time_scale, h.depth_scale, h.model_variance, h.readout_scale
        if of_arms not in self._kernels:
            arms = self.seen.arm
            self._kernels[of_arms] = arm_covariance(self.problem, h, arms, arms)
        return self._kernels[of_arms]


def fit_model(problem: Problem, seen: Observations) -> CovarianceModel:
    """The maximum a posteriori hyperparameters, given the observations."""
    *_, best = fit_model_steps(problem, seen)
    return best


def fit_model_steps(problem: Problem, seen: Observations) -> Iterator[CovarianceModel]:
    """The best model so far, after every `TRIALS` trials.

    This is a coordinate ascent: a trial changes one hyperparameter. Scores without an error may be
    noisy, and by how much is one of the hyperparameters.
    """
    scores = _TrainingScores(problem, seen)
    (best,) = _standardised(scores, [Hyperparameters()])
    yield best
    if len(seen) < FEWEST:
        return
    (greatest,) = _log_posteriors(scores, [best])
    names = [field.name for field in fields(Hyperparameters)]
    if len(problem.readouts) == 1:
        names.remove("readout_scale")
    options = _scaled(best.hyperparameters, names)
    if not (seen.stderr > 0).all():
        # Short length scales explain noise as well, and an ascent that begins with them ends there.
        factors = [STEP**i for i in range(1, TRIALS + 1)]
        options = _scaled(best.hyperparameters, ["cell_variance"], factors) + options
    tried = {best.hyperparameters}
    while options:
        tried.update(options)
        before = best
        for start in range(0, len(options), TRIALS):
            models = _standardised(scores, options[start : start + TRIALS])
            densities = _log_posteriors(scores, models)
            for model, density in zip(models, densities, strict=True):
                if density > greatest + 1e-6:
                    best = model
                    greatest = density
            yield best
        if best is before:
            return
        neighbours = _scaled(best.hyperparameters, names)
        options = [neighbour for neighbour in neighbours if neighbour not in tried]


def _scaled(
    h: Hyperparameters, names: Iterable[str], factors: Sequence[float] = (1 / STEP, STEP)
) -> list[Hyperparameters]:
    return [replace(h, **{name: getattr(h, name) * factor}) for name in names for factor in factors]


def _standardised(
    scores: _TrainingScores, options: Sequence[Hyperparameters]
) -> list[CovarianceModel]:
    """Estimate levels and spreads by generalised least squares.

    Correlated arms tell little of a spread. Errors count relative to the spread that is estimated:
    it is estimated again where they are stated. The differences of a task whose scores vary no more
    than their errors then count as noise, and the search soon leaves it.
    """
    task = scores.seen.task
    values = scores.seen.score
    count = scores.count
    freedom = scores.freedom
    overall = scores.variance
    no_error = scores.noise == 0  # of the tasks (T,)
    diagonal = np.arange(len(task))
    noise = np.zeros((len(options), len(count)))
    # block diagonal: each task has a scale of its own
    of_cells = [
        h.within_task(scores.kernel(h), scores.same_arm, scores.cost_trend) for h in options
    ]
    covariance = np.stack(of_cells) * scores.same_task
    deviation = np.array([[h.cell_variance] for h in options])
    rounds = 1
    if np.nansum(scores.noise):
        rounds = ROUNDS
    for _ in range(rounds):
        observed = covariance.copy()
        observed[:, diagonal, diagonal] += noise[:, task] + NOISE
        precision = np.linalg.inv(observed)
        weight = np.maximum(precision.sum(axis=1) @ scores.of_task, 1e-300)
        level = (precision @ values) @ scores.of_task / weight
        residual = values - level[:, task]
        whitened = np.einsum("hij,hj->hi", precision, residual)
        square = (residual * whitened) @ scores.of_task
        total = square.sum(axis=1, keepdims=True)
        pooled = (total + overall) / (freedom.sum() + 1.0)
        variance = (square + PRIOR_COUNT * pooled) / (freedom + PRIOR_COUNT)
        spread = np.sqrt(variance)
        # an error that is not stated is taken to be as large as the deviations of single cells
        noise = np.where(no_error, deviation, scores.noise / spread**2)
    is_seen = count > 0
    if is_seen.any():
        level[:, ~is_seen] = level[:, is_seen].mean(axis=1, keepdims=True)
        # a task that was not seen yet may differ between arms even if those that were seen do not
        typical = np.median(noise[:, is_seen], axis=1, keepdims=True)
        noise[:, ~is_seen] = np.minimum(typical, UNSEEN)
    else:
        level[:] = 0.0
        noise[:] = 0.0
    return [
        CovarianceModel(
            problem=scores.problem,
            hyperparameters=h,
            level=level[i],
            spread=spread[i],
            noise=noise[i],
            count=count,
        )
        for i, h in enumerate(options)
    ]


def _log_posteriors(scores: _TrainingScores, models: Sequence[CovarianceModel]) -> Floats:
    """Log posterior density of each model, up to a constant.

    It is the log marginal likelihood plus the log prior of the hyperparameters.
    """
    seen = scores.seen
    diagonal = np.arange(len(seen))
    noise = np.stack([model.noise for model in models])
    spread = np.stack([model.spread for model in models])
    values = np.stack([model.values(seen) for model in models])
    covariance = np.stack([scores.covariance(model.hyperparameters) for model in models])
    covariance[:, diagonal, diagonal] += noise[:, seen.task] + NOISE
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, values[..., None])[..., 0]
    distance = (white**2).sum(axis=1)
    determinant = np.log(factor[:, diagonal, diagonal]).sum(axis=1)
    scaling = np.log(spread)[:, seen.task].sum(axis=1)
    likelihood = -0.5 * distance - determinant - scaling
    surprise = np.array([model.hyperparameters.surprise for model in models])
    return np.asarray(likelihood - 0.5 * surprise)


# --- the posterior

#: largest number of rows; with more scores, the arms with the most cells become one averaged row
#: each
LIMIT = 750
RESERVE = LIMIT + LIMIT // 2  #: rows for which a factor allocates memory at a time
LEAST_SD = 1e-6  #: of the difference of two arms; with a smaller one they are equal


@dataclass(frozen=True, eq=False)
class ObservationRows(Rows):
    """The observations of a posterior: cells, and averages of an arm's cells."""

    arm: Ints  # (n,)
    # (n, T), weights of the tasks in the row, with sum 1; a single cell has one weight of 1
    mix: Floats
    noise: Floats  # (n,), noise variance of the row's standardised value

    @classmethod
    def of(cls, model: CovarianceModel, arms: Ints, tasks: Ints) -> ObservationRows:
        """One row per cell."""
        mix = np.eye(len(model.problem.tasks))[tasks]
        noise = model.noise[tasks] + NOISE
        return cls(arms, mix, noise)


class CholeskyFactor:
    """Inverse Cholesky factor of growing rows, and their covariances with objectives.

    For n rows and A objectives, whose covariances are whitened, it has n (n + A) numbers.
    """

    def __init__(self, model: CovarianceModel) -> None:
        arms = len(model.problem.arms)
        no_cells = np.zeros(0, dtype=np.intp)
        self.model = model
        self._rows = ObservationRows.of(model, no_cells, no_cells)
        self._inverse = np.zeros((0, 0))
        self._cross = np.zeros((0, arms))  # whitened covariances of the rows with the objectives
        self._explained = np.zeros(arms)  # variance of every objective that the rows explain
        self._white = np.zeros(0)  # whitened values of the first rows
        # posterior mean of every objective given these values, less the prior mean
        self._mean = np.zeros(arms)

    def __len__(self) -> int:
        return len(self._rows)

    def change(self, rows: ObservationRows) -> None:
        """Replace the rows; leading ones that are equal are kept.

        The new rows begin with those that have values.
        """
        n = min(len(self), len(rows))
        same_arm = self._rows.arm[:n] == rows.arm[:n]
        same_mix = self._rows.mix[:n] == rows.mix[:n]
        is_equal = same_arm & same_mix.all(axis=1)
        kept = int(np.append(is_equal, False).argmin())  # the index of the first False
        removed = self._cross[kept : len(self)]
        self._explained -= (removed**2).sum(axis=0)
        self._rows = rows.take(slice(kept))
        self.extend(rows.take(slice(kept, None)))

    def extend(self, more: ObservationRows) -> None:
        """Append rows: a block update of the inverse factor."""
        if not len(more):
            return
        model = self.model
        rows = self._rows
        n = len(self)
        added = slice(n, n + len(more))
        self._reserve(added.stop)
        inverse = self._inverse[:n, :n]
        cross = model.cells(more.arm, more.mix, rows.arm, rows.mix) @ inverse.T
        prior = model.cells(more.arm, more.mix, more.arm, more.mix)
        schur = prior + np.diag(more.noise) - cross @ cross.T
        root = np.linalg.inv(np.linalg.cholesky(schur))
        arms = np.arange(len(model.problem.arms))
        with_objectives = model.cells(arms, model.weights, more.arm, more.mix).T
        unexplained = with_objectives - cross @ self._cross[:n]
        self._cross[added] = root @ unexplained
        self._inverse[added, :n] = -root @ (cross @ inverse)
        self._inverse[added, added] = root
        self._inverse[:n, added] = 0.0
        self._explained += (self._cross[added] ** 2).sum(axis=0)
        self._rows = rows.append(more)

    def posterior(self, values: Floats) -> Posterior:
        """Condition on the values of the first rows.

        The values of an earlier call must be the first of these.
        """
        old = len(self._white)
        n = len(values)
        new = self._inverse[old:n, :n] @ values
        self._white = np.append(self._white, new)
        self._mean = self._mean + new @ self._cross[old:n]
        model = self.model
        size = len(self)
        level = model.problem.objective_weights @ model.level
        return Posterior(
            model=model,
            mean=level + self._mean,
            variance=model.objective_variance - self._explained,
            rows=self._rows,
            scored=n,
            inverse=self._inverse[:size, :size],
            cross=self._cross[:size],
        )

    def _reserve(self, n: int) -> None:
        size = len(self._inverse)
        if n > size:
            # memory is only taken when written to; copying takes time
            capacity = max(n, size + RESERVE)
            inverse = np.empty((capacity, capacity))
            cross = np.empty((capacity, self._cross.shape[1]))
            inverse[:size, :size] = self._inverse
            cross[:size] = self._cross
            self._inverse = inverse
            self._cross = cross


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior of every arm's objective.

    It is valid until its search computes the next one. Its variances are for comparing arms; the
    `value_sd` is that of an objective by itself.
    """

    model: CovarianceModel
    mean: Floats  # (A,), of the weighted mean over tasks
    variance: Floats  # (A,); pending cells count as observed
    rows: ObservationRows  # the observations, pending cells last
    scored: int  # number of rows with a value; they come first
    inverse: Floats  # (n, n), inverse Cholesky factor of the rows' covariance matrix
    cross: Floats  # (n, A), whitened covariances of the rows with the objectives
    level_variance: float = 0.0  # that all arms share, see `level_variance`

    def without_pending(self) -> Posterior:
        """The posterior given the known scores only."""
        n = self.scored
        explained_by_pending = (self.cross[n:] ** 2).sum(axis=0)
        return replace(
            self,
            variance=self.variance + explained_by_pending,
            rows=self.rows.take(slice(n)),
            inverse=self.inverse[:n, :n],
            cross=self.cross[:n],
        )

    @property
    def problem(self) -> Problem:
        return self.model.problem

    @cached_property
    def sd(self) -> Floats:
        """Standard deviation of every arm's objective, for comparing them (A,)."""
        return np.sqrt(np.maximum(self.variance, 0.0))

    @property
    def value_sd(self) -> Floats:
        """Standard deviation of every arm's objective by itself (A,).

        It counts that the levels of tasks without a score are unknown, which all arms share.
        """
        return np.sqrt(np.maximum(self.variance + self.level_variance, 0.0))

    def covariance(self, left: Ints, right: Ints) -> Floats:
        """Covariance matrix of two sets of arms' objectives (L, R)."""
        model = self.model
        prior = model.cells(left, model.weights, right, model.weights)
        explained = self.cross[:, left].T @ self.cross[:, right]
        return prior - explained

    def difference_variance(self, arms: Ints, other: int) -> Floats:
        """Variance of the differences of objectives to another's (a,)."""
        covariance = self.covariance(arms, np.array([other]))[:, 0]
        variances = self.variance[arms] + self.variance[other]
        return np.asarray(variances - 2 * covariance)

    def whitened(self, arms: Ints) -> Iterator[tuple[Ints, Floats]]:
        """A task, and whitened covariances of the arms' cells with the rows (a, n).

        They come one by one, since all together they do not fit in a processor's cache.
        """
        mix = self.rows.mix
        membership = self.problem.kind_membership
        trend = self.problem.cost_trend
        common, of_cost, of_kind, of_task = self.model.parts(arms, self.rows.arm)
        shared = common @ self.inverse.T
        with_cost = (of_cost * (mix @ trend)) @ self.inverse.T
        # the part of a kind or of a task is correlated with rows of it alone
        for kind, share in enumerate((mix @ membership).T):
            of_its_kind = shared + self._whitened_part(of_kind, share)
            for task in np.flatnonzero(membership[:, kind]):
                of_its_task = self._whitened_part(of_task, mix[:, task])
                yield np.array([task]), of_its_kind + trend[task] * with_cost + of_its_task

    def _whitened_part(self, part: Floats, share: Floats) -> Floats:
        """Whitened covariances (a, n) of a part with its tasks' rows.

        The rows have a share (n,) of its tasks.
        """
        sharing = np.flatnonzero(share)
        covariance = part[:, sharing] * share[sharing]
        return covariance @ self.inverse[:, sharing].T


def level_variance(model: CovarianceModel, seen: Observations) -> float:
    """What the unknown levels of tasks without a score add to the variance of an objective.

    Such a task is assumed to have the mean level of the scored ones. The variance of the error is
    estimated by leaving each of these out, and one more error of half their mean. The part of the
    prior that stands for these levels is taken off, so the result may be negative.

    >>> from daskmetrics.domain.names import Suite
    >>> from daskmetrics.bandit import arm_features
    >>> suite = Suite("m", ("step0",), (0, 1), 1)
    >>> cost = np.ones((2, 3))
    >>> problem = Problem(suite.arms(), ("s", "t", "u"), arm_features([suite]), cost, cost)
    >>> seen = Observations.of([(0, 0, 0.4, 0.0), (0, 1, 0.6, 0.0)])
    >>> model = fit_model(problem, seen)
    >>> prior = LEVEL * model.weights[2] ** 2
    >>> error = (0.2**2 + 0.2**2 + 0.25**2) / 3  # of the level of "u"
    >>> bool(np.isclose(level_variance(model, seen) + prior, error * (1 + 1 / 2) / 9))
    True
    """
    problem = model.problem
    count = problem.cells_per_task(seen)
    is_scored = count > 0
    if not is_scored.any():
        return 0.0
    total = np.bincount(seen.task, seen.score, len(count))
    levels = total[is_scored] / count[is_scored]
    tasks = len(levels)
    errors = levels - levels.mean()
    if tasks > 1:
        errors *= tasks / (tasks - 1)  # of the mean of the others
    variance = ((errors**2).sum() + (levels.mean() / 2) ** 2) / (tasks + 1)
    weights = problem.objective_weights[~is_scored]
    of_levels = variance * ((weights**2).sum() + weights.sum() ** 2 / tasks)
    of_prior = LEVEL * (model.weights[~is_scored] ** 2).sum()
    return float(of_levels - of_prior)


def pooled(
    model: CovarianceModel, seen: Observations, limit: int
) -> tuple[ObservationRows, Floats]:
    """At most ``limit`` rows and their values, some averaged.

    If needed, the arms with the most cells become one averaged row each. If there are still too
    many rows, those of the worst arms are thinned out, since the best arm is what matters.
    """
    if len(seen) <= limit:
        return ObservationRows.of(model, seen.arm, seen.task), model.values(seen)
    group = _groups(seen, limit)
    size = int(group.max()) + 1
    smallest = 1e-12 * model.weights.max()
    weights = np.maximum(model.weights, smallest)
    weight = weights[seen.task]
    total_weight = np.bincount(group, weight)
    share = weight / total_weight[group]
    mix = np.zeros((size, len(model.weights)))
    np.add.at(mix, (group, seen.task), share)
    owner = np.zeros(size, dtype=np.intp)
    owner[group] = seen.arm
    values = np.zeros(size)
    np.add.at(values, group, share * model.values(seen))
    noise = np.full(size, NOISE)
    np.add.at(noise, group, share**2 * model.noise[seen.task])
    kept = _thinned(values, limit)
    rows = ObservationRows(owner, mix, noise)
    return rows.take(kept), values[kept]


def _groups(seen: Observations, limit: int) -> Ints:
    """Number of the row that each observation becomes (n,).

    All cells of an arm become one row, for as many arms as it takes to have at most ``limit`` rows,
    those with the most cells first.
    """
    arms, arm, count = np.unique(seen.arm, return_inverse=True, return_counts=True)
    fullest = np.argsort(-count, kind="stable")
    removable = np.cumsum(count[fullest] - 1)
    excess = len(seen) - limit
    needed = int(np.searchsorted(removable, excess)) + 1
    is_pooled = np.isin(arm, fullest[:needed])
    of_single = len(arms) + np.arange(len(seen))
    group = np.where(is_pooled, arm, of_single)
    _, consecutive = np.unique(group, return_inverse=True)
    return consecutive


def _thinned(values: Floats, limit: int) -> Ints:
    """Indices of the best ``limit`` / 2 rows, and an even choice of others."""
    if len(values) <= limit:
        return np.arange(len(values))
    best_first = np.argsort(-values, kind="stable")
    half = limit // 2
    others = np.linspace(half, len(values) - 1, limit - half)
    ranks = np.append(np.arange(half), others.astype(np.intp))
    return np.sort(best_first[ranks])


def first_max(values: Floats, among: Bools | None = None) -> int:
    """Index of the maximum, of the marked values if any are.

    It is the first of values that differ by rounding.
    """
    if among is not None and among.any():
        values = np.where(among, values, -np.inf)
    best = float(values.max())
    rounding = 1e-9 * max(1.0, abs(best))
    is_best = values >= best - rounding
    return int(is_best.argmax())


def greatest(values: Floats, n: int) -> Ints:
    """Indices of the n greatest values, ascending; the first of equal ones.

    >>> greatest(np.array([0.0, 2.0, 1.0, 1.0]), 2).tolist()
    [1, 2]
    """
    best_first = np.argsort(-values, kind="stable")
    return np.sort(best_first[:n])


# --- the posterior of a growing search

FEW = 64  #: up to this number of scores the model is estimated again for every posterior ...
REFIT = 128  #: ... and for the last time with this number
ROWS = 32  #: rows of a new basis that are factored per score
BATCH = 64  #: rows that may wait to be factored before a posterior is requested
NO_CELLS = np.zeros((0, 2), dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Basis:
    """A factor whose first rows are the first ``pooled`` scores, with values."""

    factor: CholeskyFactor
    rows: ObservationRows
    values: Floats
    pooled: int


class IncrementalPosterior:
    """Posteriors of one search; ``is_used`` is True once one was requested.

    Up to `FEW` scores a posterior uses a model estimated from all of them. Building a basis with a
    model estimated from more scores begins at `REFIT`. From `LIMIT` scores on a new basis, with the
    scores so far pooled, begins at every `LIMIT` / 2 further scores.

    >>> from daskmetrics.domain.names import Suite
    >>> from daskmetrics.bandit import arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> cost = np.ones((4, 2))
    >>> problem = Problem(suite.arms(), ("s", "t"), arm_features([suite]), cost, cost)
    >>> seen = Observations.of([(0, 0, 0.1, 0.01), (3, 0, 0.9, 0.01)])
    >>> posterior = IncrementalPosterior(problem).posterior(seen)
    >>> posterior.mean.argsort().tolist()  # each arm without a score is close to its neighbour
    [0, 1, 2, 3]
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.is_used = False
        self._reset()

    def _reset(self) -> None:
        self._seen: Observations = Observations.of([])
        self._begin(self._seen)
        self._building: Iterator[Basis | None] | None = None
        self._scores = 0  # number of scores processed

    def update(self, finished: Observations) -> Observations:
        """Process new outcomes and return all scores.

        Doing so early leaves less work to the next posterior.
        """
        seen = finished.scores
        # start again unless these scores extend the earlier ones
        if not seen.take(slice(len(self._seen))).equals(self._seen):
            self._reset()
        while self._scores < len(seen):
            self._scores += 1
            if self._scores >= FEW:
                self._step(seen.take(slice(self._scores)))
        self._seen = seen
        basis = self._basis
        new = seen.take(slice(basis.pooled, None))
        if len(basis.rows) + len(new) - len(basis.factor) >= BATCH:
            self._factor_rows(new)
        return seen

    def posterior(self, finished: Observations, pending: Ints = NO_CELLS) -> Posterior:
        """The posterior given the outcomes and pending cells (n, 2).

        Failures are ignored.
        """
        self.is_used = True
        seen = self.update(finished)
        # with few scores the model is estimated from all of them
        if self._basis.factor.model.count.sum() < len(seen) <= FEW:
            self._begin(seen)
        basis = self._basis
        new = seen.take(slice(basis.pooled, None))  # scores that are not pooled
        self._factor_rows(new, pending)
        values = np.append(basis.values, basis.factor.model.values(new))
        posterior = basis.factor.posterior(values)
        unknown_levels = level_variance(basis.factor.model, seen)
        return replace(posterior, level_variance=unknown_levels)

    def _factor_rows(self, new: Observations, pending: Ints = NO_CELLS) -> None:
        factor = self._basis.factor
        arms = np.append(new.arm, pending[:, 0])
        tasks = np.append(new.task, pending[:, 1])
        added = ObservationRows.of(factor.model, arms, tasks)
        factor.change(self._basis.rows.append(added))

    def _begin(self, seen: Observations, model: CovarianceModel | None = None) -> None:
        model = model or fit_model(self._problem, seen)
        no_rows, no_values = pooled(model, Observations.of([]), LIMIT)
        self._basis = Basis(CholeskyFactor(model), no_rows, no_values, pooled=0)

    def _step(self, seen: Observations) -> None:
        scores = len(seen)
        if scores == FEW:
            self._begin(seen)
        elif scores == REFIT or (scores >= LIMIT and scores % (LIMIT // 2) == 0):
            model = None
            if scores > REFIT:
                model = self._basis.factor.model
            self._building = _build_basis(self._problem, seen, model)
        if self._building is not None:
            basis = next(self._building)
            if basis is not None:
                self._basis = basis
                self._building = None
        if self._building is None or scores < 2 * REFIT:
            self._update_spreads(seen)

    def _update_spreads(self, seen: Observations) -> None:
        """Renew the spreads once a task that was scored late has enough scores.

        That is also when its scores have doubled, or when one is so far from the others that these,
        perhaps layers of one checkpoint, have not shown how much arms differ.
        """
        model = self._basis.factor.model
        has_few = model.count < ENOUGH
        if not has_few.any():
            return
        early_scores = self._problem.cells_per_task(seen.take(slice(FEW)))
        scores = self._problem.cells_per_task(seen)
        needed = np.where(model.has_spread, 2 * model.count, LOOKS)
        is_outdated = (early_scores < LOOKS) & (scores >= needed)
        is_far = np.abs(model.values(seen)) > FAR * np.sqrt(model.cell_variance[seen.task])
        has_far = self._problem.cells_per_task(seen.take(is_far)) > 0
        is_outdated |= has_far & (scores > model.count)
        if not (is_outdated & has_few).any():
            return
        # from the first scores, and from all those of tasks that have few of them
        first_scores = self._problem.cells_per_task(seen.take(slice(REFIT)))
        is_used = (first_scores < ENOUGH)[seen.task]
        is_used[:REFIT] = True
        scores_used = _TrainingScores(self._problem, seen.take(is_used))
        (updated,) = _standardised(scores_used, [model.hyperparameters])
        if len(seen) < 2 * REFIT:
            self._begin(seen, updated)
        else:
            self._building = _build_basis(self._problem, seen, updated)


def _build_basis(
    problem: Problem, seen: Observations, model: CovarianceModel | None
) -> Iterator[Basis | None]:
    """Build a basis in steps: None after each step, then the basis."""
    if model is None:
        for model in fit_model_steps(problem, seen):  # noqa: B007
            yield None
    assert model is not None
    count = 0  # of the scores to pool
    if len(seen) >= LIMIT:
        count = len(seen)
    rows, values = pooled(model, seen.take(slice(count)), LIMIT // 2)
    single = ObservationRows.of(model, seen.arm[count:], seen.task[count:])
    all_rows = rows.append(single)
    factor = CholeskyFactor(model)
    for start in range(0, len(all_rows), ROWS):
        if start:
            yield None
        factor.extend(all_rows.take(slice(start, start + ROWS)))
    yield Basis(factor, rows, values, count)
