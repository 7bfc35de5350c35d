"""What a score says of every item, kept compactly beside it, and the paired difference of two
scores.

Two arms are scored on the same items, so most of the chance in their scores is common to both. The
standard error of their difference is therefore that of the differences item by item, std(a_i - b_i)
/ sqrt(n), which is usually much smaller than that of two independent scores.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskmetrics.core.errors import DataError
from daskmetrics.core.keys import Key
from daskmetrics.domain.recommendation import ScoreEstimate
from daskmetrics.domain.results import Outcomes, Scored

Floats = NDArray[np.float64]
Estimate = tuple[float, float]  # a value and its standard error; NaN where there is none
MOST_BYTES = 4096  #: of the outcomes of one score, before base64: 32,768 bits or 2,048 numbers
TOLERANCE = 1e-4  #: of the mean of outcomes; the benchmark rounds its scores to five decimals
#: greatest rounding of outcomes, in their standard deviations, with which they are kept as they are
COARSE = 0.02
FRESH_SHARE = 0.3  #: of the items of a task that `search.confirm: fresh` keeps back
WITHIN_ERROR = "within the error"
BEYOND_ERROR = "beyond the error"
#: standard errors of a single difference that count as its error (95 %), where no test of several
#: arms is possible
PAIR = 2.0


@dataclass(frozen=True)
class Difference:
    """By how much one score exceeds another, with its standard error.

    If it is ``paired``, the error is std(a_i - b_i) / sqrt(n) over the outcomes of n items
    (Student's paired comparison). Otherwise it is that of independent scores, sqrt(se_a^2 +
    se_b^2), which is mostly too large for two arms on the same items.
    """

    value: float
    stderr: float
    paired: bool

    @property
    def probability(self) -> float:
        """Probability that the difference is positive, if it is normal.

        It is 1/2 for equal scores.

        >>> round(Difference(1.96, 1.0, paired=True).probability, 3), Difference(0.0, 0.0, paired=True).probability
        (0.975, 0.5)
        """
        if self.stderr <= 0:
            return 0.5 * (1 + float(np.sign(self.value)))
        standardised = self.value / self.stderr
        return 0.5 * math.erfc(-standardised / math.sqrt(2))

    @property
    def relation(self) -> str:
        """Whether it is within or beyond the error: two standard errors.

        >>> Difference(0.03, 0.01, paired=True).relation, Difference(-0.02, 0.01, paired=True).relation
        ('beyond the error', 'within the error')
        """
        if abs(self.value) <= PAIR * self.stderr:
            return WITHIN_ERROR
        return BEYOND_ERROR


def pack(outcomes: ArrayLike, score: float, items: Key) -> Outcomes:
    """Pack outcomes (n,) as bits or as compressed float16.

    Bits are for right or wrong; others are in units of their spread about their mean where that
    rounds less. ``items`` names the items and their order: only outcomes of the same items can be
    paired. If the outcomes exceed `MOST_BYTES`, random groups of items are kept instead: of each
    the sum of its deviations from the mean, scaled so that the mean and its standard error stay the
    same, whatever the sizes of the groups.

    >>> pack([True, False, True, True], 0.75, "task")
    Outcomes(items='task', n=4, bits='sA==', float16=None, centre=None, unit=None)
    """
    values = np.asarray(outcomes)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise DataError(
            f"Outcomes must be an array (n,) of finite numbers, got one of shape {values.shape}."
        )
    tolerance = TOLERANCE * max(1.0, abs(score))
    if len(values) and abs(values.mean() - score) > tolerance:
        raise DataError(
            f"The mean of the outcomes is {values.mean():.6g}, but the score is {score:.6g}. "
            "Return outcomes whose mean is the score, or none."
        )
    if values.dtype == bool and len(values) <= 8 * MOST_BYTES:
        content = np.packbits(values).tobytes()
        return Outcomes(items, len(values), bits=base64.b64encode(content).decode())
    kept = values.astype(np.float64)
    groups = min(len(kept), MOST_BYTES // 2)
    if groups < len(kept):
        # random groups that depend on the number of values alone
        order = np.random.default_rng(0).permutation(len(kept))
        mean = kept.mean()
        sums = np.bincount(order % groups, kept - mean, groups)
        kept = mean + sums * groups / len(kept)
    centre = unit = None
    with np.errstate(over="ignore"):
        numbers = kept.astype("<f2")
    if len(kept):
        spread = float(kept.std()) or 1.0
        if np.abs(numbers - kept).max() > COARSE * spread:  # infinite beyond float16
            centre, unit = float(kept.mean()), spread
            numbers = ((kept - centre) / unit).astype("<f2")
    content = zlib.compress(numbers.tobytes(), 9)
    encoded = base64.b64encode(content).decode()
    return Outcomes(items, groups, float16=encoded, centre=centre, unit=unit)


def unpack(packed: Outcomes) -> Floats:
    """The outcomes, or those of groups, that `pack` kept."""
    if packed.bits is not None:
        content = base64.b64decode(packed.bits)
        bits = np.unpackbits(np.frombuffer(content, np.uint8), count=packed.n)
        return bits.astype(np.float64)
    content = zlib.decompress(base64.b64decode(packed.float16 or ""))
    numbers = np.frombuffer(content, "<f2").astype(np.float64)
    if packed.unit is None:
        return numbers
    return (packed.centre or 0.0) + packed.unit * numbers


def difference(one: Scored, other: Scored) -> Difference:
    """By how much the first of two recorded scores exceeds the second.

    It is unpaired if the items differ or are unknown.

    >>> one = Scored(0.75, 0.22, outcomes=pack([True, False, True, True], 0.75, "task"))
    >>> difference(one, one)
    Difference(value=0.0, stderr=0.0, paired=True)
    """
    if one is other:
        return Difference(0.0, 0.0, paired=True)
    return mean_of_pairs([(one, other)])


def mean_of_pairs(pairs: Sequence[tuple[Scored, Scored]]) -> Difference:
    """Mean by which the first score of a pair exceeds the second.

    All scores are of the same task. All pairs share the items of the task, so their differences are
    not independent, and the error must not shrink with the number of pairs. The differences are
    therefore averaged over the pairs item by item, and the standard error is that of the mean of
    these averages over the items, std(mean_p (a_pi - b_pi)) / sqrt(n). Pairs without outcomes, or
    with those of other items, count as perfectly correlated: their error is the mean of the errors
    of single pairs.

    If the averages of all n items are equal, those of other items need not be. By Laplace's rule of
    succession a share of 1 / (n + 2) of these are as those of independent scores, and so is this
    share of the variance.

    >>> one = Scored(0.75, 0.22, outcomes=pack([True, False, True, True], 0.75, "task"))
    >>> two = Scored(0.5, 0.25, outcomes=pack([True, False, False, True], 0.5, "task"))
    >>> mean_of_pairs([(one, two)] * 9) == difference(one, two)  # nine equal pairs say no more than one
    True
    """
    errors = []
    paired = True
    differences = defaultdict[tuple[Key, int], list[Floats]](list)
    independent_errors = defaultdict[tuple[Key, int], list[float]](list)
    for one, other in pairs:
        independent = math.hypot(one.stderr, other.stderr)
        items, outcomes = _outcomes_of_same_items([one, other])
        if not items:
            paired = False
            errors.append(independent)
            continue
        _, n = outcomes.shape
        differences[items, n].append(outcomes[0] - outcomes[1])
        independent_errors[items, n].append(independent)
    for (items, n), of_pairs in differences.items():
        by_item = np.mean(of_pairs, axis=0)
        error = float(by_item.std(ddof=1)) / math.sqrt(n)
        if np.ptp(by_item) == 0:
            independent = float(np.mean(independent_errors[items, n]))
            error = independent / math.sqrt(n + 2)
        errors += [error] * len(of_pairs)
    total = math.fsum(one.score - other.score for one, other in pairs)
    total_error = math.fsum(errors)
    return Difference(total / len(pairs), total_error / len(pairs), paired)


def _outcomes_of_same_items(scores: Sequence[Scored]) -> tuple[Key, Floats]:
    """The items' common key, and the outcomes (A, n).

    Both are empty if the items differ, are unknown, or are only one.
    """
    packed = [score.outcomes for score in scores if score.outcomes]
    items = {(outcomes.items, outcomes.n) for outcomes in packed}
    if len(packed) < len(scores) or len(items) != 1 or packed[0].n < 2:
        return "", np.empty(0)
    return packed[0].items, np.array([unpack(outcomes) for outcomes in packed])


@dataclass(frozen=True, eq=False)
class JointError:
    """The joint distribution of several scores' errors on one task."""

    # (A, A), in squared units of the score; diagonal where scores are not paired
    covariance: Floats
    # degrees of freedom of this estimate: items less one; infinite where scores are not paired
    freedom: float
    paired: bool  # whether it comes from the outcomes of the same items


def joint_error(scores: Sequence[Scored]) -> JointError:
    """The joint error of recorded scores of the same task.

    Errors are independent if items differ or are unknown.

    >>> one = Scored(0.75, 0.25, outcomes=pack([True, False, True, True], 0.75, "task"))
    >>> joint_error([one, one]).covariance.tolist(), joint_error([Scored(0.1, 0.5)]).covariance.tolist()
    ([[0.0625, 0.0625], [0.0625, 0.0625]], [[0.25]])
    """
    items, outcomes = _outcomes_of_same_items(scores)
    if items:
        _, n = outcomes.shape
        of_item = np.atleast_2d(np.cov(outcomes))
        return JointError(of_item / n, n - 1, paired=True)
    variances = [score.stderr**2 for score in scores]
    return JointError(np.diag(variances), math.inf, paired=False)


def mean_difference(
    by_task: Mapping[str, Difference], weights: Mapping[str, float]
) -> Difference | None:
    """The weighted mean of differences by task, which are independent.

    It is over the tasks with a difference and a weight, and None without any; it is paired if all
    of them are.
    """
    tasks = [task for task in weights if task in by_task]
    shares = np.array([weights[task] for task in tasks], dtype=float)
    if not shares.sum() > 0:
        return None
    shares /= shares.sum()
    values = [by_task[task].value for task in tasks]
    errors = [by_task[task].stderr for task in tasks]
    error = np.linalg.norm(shares * errors)
    paired = all(by_task[task].paired for task in tasks)
    return Difference(float(shares @ values), float(error), paired)


def mean_score(
    values: Mapping[str, Scored] | Mapping[str, ScoreEstimate], weights: Mapping[str, float]
) -> Estimate | None:
    """The weighted mean of scores by task, and its error.

    The tasks are independent; None if one has no score.

    >>> mean_score({"s": Scored(0.2, 0.03), "t": Scored(0.6, 0.04)}, {"s": 1.0, "t": 1.0})
    (0.4, 0.025)
    """
    if not weights or not weights.keys() <= values.keys():
        return None
    total = math.fsum(weights.values())
    scores = [weight * values[task].score for task, weight in weights.items()]
    errors = [weight * values[task].stderr for task, weight in weights.items()]
    return math.fsum(scores) / total, math.hypot(*errors) / total
