"""Which arms are within the error of the best one: a test of all pairs, corrected for having chosen
among many.

The set begins with all arms. An arm leaves it if a rival in the set is better by more than c paired
standard errors of their difference; c is the 95 % quantile of the greatest standardised difference
of any two arms of the set, if all are equally good, drawn with the covariance of their errors over
the same items. This is repeated with the remaining arms, and the smaller c that belongs to them,
until none leaves. The set then contains every arm that is as good as the best with a probability of
at least 95 %, whatever was chosen after looking: the model confidence set of Hansen, Lunde and
Nason (2011), a step-down form of multiple comparisons with the best (Hsu, 1984). Testing each arm
alone would keep the best one as often, but all of several equal arms less often, and would take
ties for differences.

Tasks are independent. The error of a difference is itself estimated from the n items of each task,
so every drawn difference is divided by such an estimate, with the degrees of freedom of Welch and
Satterthwaite; these estimates count as independent, which is cautious. A clustering, which has
eight draws, therefore decides little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist

import numpy as np

from daskmetrics.bandit.problem import Floats, Ints, Singles
from daskmetrics.domain.names import Arm
from daskmetrics.domain.outcomes import Difference, JointError, joint_error
from daskmetrics.domain.scores import Scores

FEW = 64  #: arms of which all pairs are drawn at once
LEVEL = 0.05  #: the probability that the best arm is not in the set
MOST = 128  #: arms of which all pairs are tested: those with the greatest means
#: of the errors; at a level of 5 % the critical value then has a standard error of about 0.02
DRAWS = 8192
#: a smaller error of a difference, relative to those of the two scores, is one of rounding
EXACT = 1e-6
MANY = 200.0  #: degrees of freedom with which an error counts as known
LARGE = 1e9  #: in place of infinitely many
EQUAL = 1e-6  #: of means that differ by less, none is the greater


@dataclass(frozen=True, eq=False)
class MeanScores:
    """Weighted means of arms, with their errors' joint distribution."""

    mean: Floats  # (A,)
    covariance: Floats  # what each task adds to the covariance of the errors (T, A, A)
    # degrees of freedom of each task's covariance (T,); infinite where scores are not paired
    freedom: Floats
    paired: bool  # whether all tasks are

    @classmethod
    def of(cls, values: Floats, weights: Floats, errors: Sequence[JointError]) -> MeanScores:
        """From values (A, T), weights (T,), and joint errors by task."""
        shares = weights / weights.sum()
        covariances = np.array([error.covariance for error in errors])
        return cls(
            mean=values @ shares,
            covariance=(shares**2)[:, None, None] * covariances,
            freedom=np.array([error.freedom for error in errors]),
            paired=all(error.paired for error in errors),
        )

    def difference(self, arm: int, other: int) -> Difference:
        """By how much the first arm exceeds the second."""
        gap = float(self.mean[arm] - self.mean[other])
        error = float(self._errors[other, arm])
        return Difference(gap, error, self.paired)

    def tied(self, level: float = LEVEL) -> tuple[Ints, float, float]:
        """The arms within the error of the best.

        Also the critical values of their differences, and of those of all arms, in standard errors
        of a difference.
        """
        arms = np.arange(len(self.mean))
        if len(arms) > FEW:
            # a bound rejects what is clearly worse, so that fewer pairs are drawn
            of_all = self._bound(level)
            arms = np.flatnonzero(self._ahead.max(axis=1) <= of_all)
            critical = self._critical(arms, level)
        else:
            critical = of_all = self._critical(arms, level)
        while True:
            among_these = np.ix_(arms, arms)
            is_tied = self._ahead[among_these].max(axis=1) <= critical
            if is_tied.all():
                return arms, critical, of_all
            arms = arms[is_tied]
            critical = self._critical(arms, level)

    def most_lost(self, arm: int, tied: Ints, critical: float) -> float:
        """By how much the best of the tied is better than an arm at most.

        It is the upper bound of Hsu (1984) at the level of a test with this critical value.
        """
        gap = self.mean - self.mean[arm]
        bound = gap + critical * self._errors[arm]
        return float(max(0.0, bound[tied].max()))

    def _bound(self, level: float) -> float:
        """An upper bound of `_critical` of all arms, by Bonferroni."""
        from scipy.special import stdtrit

        pairs = len(self.mean) * (len(self.mean) - 1)
        freedom = min(float(self.freedom.min()), LARGE)
        return -float(stdtrit(freedom, level / pairs))

    def _critical(self, arms: Ints, level: float) -> float:
        """A quantile of the greatest studentised difference.

        It is of two of these arms, if all are equally good.
        """
        rng = np.random.default_rng(1)
        greatest = np.zeros(DRAWS, np.float32)
        for i, arm in enumerate(arms):
            others = arms[i + 1 :]
            others = others[self._errors[arm, others] > 0]
            errors = self._errors[arm, others].astype(np.float32)
            gaps = np.abs(self._draws[:, others] - self._draws[:, [arm]])
            gaps /= errors
            gaps /= _estimated(rng, self._freedom[arm, others])
            greatest = np.maximum(greatest, gaps.max(axis=1, initial=0.0))
        return float(np.quantile(greatest, 1 - level, method="higher"))

    @cached_property
    def _draws(self) -> Singles:
        """Errors drawn from their joint normal distribution (DRAWS, A)."""
        covariance = self.covariance.sum(axis=0)
        scale = float(np.diag(covariance).max(initial=0.0))
        root: Floats = np.zeros_like(covariance)
        if scale:
            # equal arms make it singular, so a negligible variance is added
            negligible = 1e-10 * scale * np.eye(len(covariance))
            root = np.linalg.cholesky(covariance + negligible)
        return _normal(len(self.mean)) @ root.astype(np.float32).T

    @cached_property
    def _variance(self) -> Floats:
        """What each task adds to the variances (T, A, A).

        These are of the differences of all pairs; zero for equal outcomes.
        """
        of_arms = np.diagonal(self.covariance, axis1=1, axis2=2)
        unpaired = of_arms[:, :, None] + of_arms[:, None, :]
        variance = unpaired - 2 * self.covariance
        return np.where(variance > EXACT**2 * unpaired, variance, 0.0)

    @cached_property
    def _errors(self) -> Floats:
        """Standard errors of the differences of all pairs (A, A)."""
        return np.asarray(np.sqrt(self._variance.sum(axis=0)))

    @cached_property
    def _freedom(self) -> Floats:
        """Degrees of freedom of these errors (A, A), by Welch and Satterthwaite."""
        total = self._variance.sum(axis=0)
        of_task = np.minimum(self.freedom, LARGE)
        per_task = self._variance**2 / of_task[:, None, None]
        divisor = per_task.sum(axis=0)
        has_no_error = ~(total > 0)
        total[has_no_error] = 1.0
        divisor[has_no_error] = 1 / LARGE
        return np.asarray(total**2 / divisor)

    @cached_property
    def _ahead(self) -> Floats:
        """Standard errors by which rows are behind columns (A, A)."""
        errors = self._errors
        gaps = self.mean - self.mean[:, None]
        rounding = EXACT * np.abs(self.mean).max()
        ahead = np.where(gaps > rounding, np.inf, 0.0)
        return np.divide(gaps, errors, out=ahead, where=errors > 0)


@lru_cache(maxsize=2)  # the parts of a verdict mostly compare equally many arms
def _normal(arms: int) -> Singles:
    rng = np.random.default_rng(0)
    return rng.standard_normal((DRAWS, arms), dtype=np.float32)


def _estimated(rng: np.random.Generator, freedom: Floats) -> Singles:
    """Estimated standard deviations of one (DRAWS, n).

    By the cube root of Wilson and Hilferty (1931).
    """
    if freedom.min(initial=LARGE) > MANY:
        return np.ones((1, len(freedom)), np.float32)
    spread = (2 / (9 * freedom)).astype(np.float32)
    normal = rng.standard_normal((DRAWS, len(freedom)), dtype=np.float32)
    root = 1 - spread + np.sqrt(spread) * normal
    return np.asarray(np.maximum(root, 1e-2) ** 1.5)


@dataclass(frozen=True, eq=False)
class TestedArms:
    """Arms scored on all tasks, and those tied with the best.

    ``arms`` are those of which all pairs are tested, with the indices of those that are ``equal``
    and the critical values of the differences of these, and of all of them; ``beyond`` are the
    others, compared with the best alone: ``as_good`` are those of them that this finds no worse.
    """

    arms: Sequence[Arm]
    means: MeanScores
    equal: Ints
    critical: float
    critical_of_all: float
    best: int
    beyond: Sequence[Arm]
    as_good: frozenset[Arm]

    @property
    def best_arm(self) -> Arm:
        return self.arms[self.best]

    @property
    def equal_arms(self) -> list[Arm]:
        return [self.arms[i] for i in self.equal]

    @property
    def tied(self) -> set[Arm]:
        """All arms within the error of the best."""
        return {*self.equal_arms, *self.as_good}

    def most_lost(self, i: int) -> float:
        """By how much the best arm, whichever it is, exceeds one of the arms at most (95 %)."""
        critical = self.critical if i in self.equal else self.critical_of_all
        return self.means.most_lost(i, self.equal, critical)


def tested(
    scores: Scores,
    weights: Mapping[str, float],
    level: float = LEVEL,
    chosen: Arm | None = None,
) -> TestedArms | None:
    """Test which arms are within the error of the best, by weighted means.

    The arms are those scored on all of these tasks; None if there are none. Of equal means, but for
    `EQUAL`, ``chosen`` is the best.
    """
    complete = scores.complete(weights)
    if not complete:
        return None
    shares = np.array([*weights.values()])
    row_of = {arm: row for row, arm in enumerate(scores.arms)}
    columns = [scores.tasks.index(task) for task in weights]
    places = np.ix_([row_of[arm] for arm in complete], columns)
    values = scores.value[places]
    best_first = np.argsort(-values @ shares, kind="stable")
    leading = np.sort(best_first[:MOST])
    others = np.sort(best_first[MOST:])
    arms = [complete[i] for i in leading]
    joint_errors = [joint_error([scores[arm][task] for arm in arms]) for task in weights]
    means = MeanScores.of(values[leading], shares, joint_errors)
    best = int(means.mean.argmax())
    if chosen in arms:
        row = arms.index(chosen)
        if means.mean[row] >= means.mean[best] - EQUAL:
            best = row
    # the others are compared with the best alone, unpaired, by Bonferroni over all pairs
    compared = [leading[best], *others]
    stderr = scores.stderr[places][compared]
    variance = ((shares * stderr) ** 2).sum(axis=1)
    mean = values[compared] @ shares
    bound = -NormalDist().inv_cdf(level / len(mean) ** 2)
    is_as_good = mean[0] - mean[1:] <= bound * np.sqrt(variance[0] + variance[1:])
    equal, critical, critical_of_all = means.tied(level)
    return TestedArms(
        arms=arms,
        means=means,
        equal=equal,
        critical=critical,
        critical_of_all=critical_of_all,
        best=best,
        beyond=[complete[i] for i in others],
        as_good=frozenset(complete[i] for i in others[is_as_good]),
    )
