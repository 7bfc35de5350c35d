"""Rewards: from raw scores to values that can be averaged over tasks; an arm's objective is their weighted mean.

``mean``
    The score itself, so that the objective is the plain mean of the tasks' main scores, as leaderboards show it. The
    default. Tasks with a wide spread count more.
``zscore``
    (score - mean) / sd, both over the layers of the baseline checkpoint, which the search scores first. Every task
    counts equally, whatever the spread of its scores; the unit is the spread around the default arm.
``running``
    (score - mean) / sd, both over the task's scores so far. It needs no baseline sweep, and the scale settles as scores
    arrive. Once every cell is known it is the z-score over all arms.
``rank``
    The share of the task's scores so far that a score exceeds, ties counting half, in (0, 1). It ignores by how much an
    arm is better, so no outlier decides.
``harmonic``
    -1 / score. The weighted mean orders arms as the weighted harmonic mean of the scores does: good tasks do not
    compensate for one on which an arm fails.
``robust``
    (score - median) / spread over the task's scores so far, with the spread from the median absolute deviation, clipped
    at `LIMIT`. Neither a broken cell nor one task on which an arm excels can dominate the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._problem import Bools, Floats, Observations, Problem

#: Smallest standard deviation of a sweep, relative to the task's mean score. Layers that differ by less than one per
#: cent count as equal; dividing by a smaller number would let one such task decide the whole search.
FLAT = 0.01

LIMIT = 3.0  #: largest absolute value of ``robust``
LEAST = 0.01  #: smaller scores count as this before the reciprocal; a correlation can be negative
NORMAL = 1.4826  #: standard deviation of a normal distribution, in median absolute deviations
UNIFORM = 12.0**-0.5  #: standard deviation of ranks, which are uniform in (0, 1)


@dataclass(frozen=True, eq=False)
class LinearScale:
    """value = (score - centre) / spread, with a centre and a spread per task (T,) in units of the score."""

    centre: Floats
    spread: Floats
    limit: float = np.inf  # largest absolute value

    def values(self, seen: Observations) -> Floats:
        values = (seen.score - self.centre[seen.task]) / self.spread[seen.task]
        return np.clip(values, -self.limit, self.limit)

    def errors(self, seen: Observations) -> Floats:
        return np.asarray(seen.stderr / self.spread[seen.task])


@dataclass(frozen=True, eq=False)
class RankScale:
    """value = (number of the task's scores below + half of the equal ones) / number of the task's scores."""

    scores: tuple[Floats, ...]  # ascending, per task

    def values(self, seen: Observations) -> Floats:
        values = np.zeros(len(seen))
        for task, scores in enumerate(self.scores):
            here = seen.task == task
            below, up_to = (np.searchsorted(scores, seen.score[here], side) for side in ("left", "right"))
            values[here] = (below + up_to) / (2.0 * max(len(scores), 1))
        return values

    def errors(self, seen: Observations) -> Floats:
        # with the average slope sd(rank) / sd(score)
        spread = np.array([float(scores.std()) if len(scores) else 0.0 for scores in self.scores])
        slope = np.where(spread > 0, UNIFORM / np.where(spread > 0, spread, 1.0), 0.0)
        return np.minimum(seen.stderr * slope[seen.task], UNIFORM)


@dataclass(frozen=True, eq=False)
class ReciprocalScale:
    """value = -1 / score."""

    def values(self, seen: Observations) -> Floats:
        return np.asarray(-1.0 / np.maximum(seen.score, LEAST))

    def errors(self, seen: Observations) -> Floats:
        # from the derivative of the reciprocal
        return np.asarray(seen.stderr / np.maximum(seen.score, LEAST) ** 2)


RewardScale = LinearScale | RankScale | ReciprocalScale
"""Gives the values of observed cells (n,), and their standard errors (n,)."""


def reward_scale(problem: Problem, seen: Observations) -> RewardScale:
    """The scale of a problem's reward, estimated from the observations so far.

    The standard deviation of a sweep (the baseline checkpoint for ``zscore``, all observed scores for ``running``) is
    at least the typical standard error of its scores, since smaller differences are noise, and at least `FLAT` times
    their mean. A task whose sweep has fewer than two scores, for example because cells failed, takes the median spread
    of the other tasks and the mean of the scores it has.

    >>> from daskmetrics.core.names import Checkpoint, Suite
    >>> from daskmetrics.bandit import arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> cost = np.ones((4, 1))
    >>> problem = Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost, Checkpoint("m", "step1"), "zscore")
    >>> seen = Observations.of([(0, 0, 0.3, 0.01), (2, 0, 0.4, 0.01), (3, 0, 0.6, 0.01)])
    >>> reward_scale(problem, seen).values(seen).round(6).tolist()
    [-2.0, -1.0, 1.0]
    """
    if problem.reward == "mean":
        return LinearScale(np.zeros(len(problem.tasks)), np.ones(len(problem.tasks)))
    if problem.reward == "rank":
        return RankScale(tuple(np.sort(seen.score[seen.task == task]) for task in range(len(problem.tasks))))
    if problem.reward == "harmonic":
        return ReciprocalScale()
    swept = np.isin(seen.arm, problem.baseline_arms) | (problem.reward in ("running", "robust"))
    robust = problem.reward == "robust"
    sweeps = [_centre_and_spread(seen, swept, task, robust) for task in range(len(problem.tasks))]
    centre, spread = np.array(sweeps, dtype=float).T
    known = spread[np.isfinite(spread)]
    typical = float(np.median(known)) if len(known) else 1.0
    return LinearScale(centre, np.where(np.isfinite(spread), spread, typical), LIMIT if robust else np.inf)


def measured_objectives(problem: Problem, seen: Observations) -> Floats:
    """Weighted mean of every arm's values over the tasks that it has a score on (A,); NaN if it has none.

    With the reward ``mean`` this is the mean of the raw scores.
    """
    values, weights = reward_scale(problem, seen).values(seen), problem.objective_weights[seen.task]
    total, sums = (np.bincount(seen.arm, each, minlength=len(problem.arms)) for each in (weights, values * weights))
    return np.where(total > 0, sums / np.maximum(total, 1e-300), np.nan)


def _centre_and_spread(seen: Observations, swept: Bools, task: int, robust: bool) -> tuple[float, float]:
    """Centre and spread of one task over the marked scores; the spread is NaN if they do not determine it."""
    here = seen.task == task
    sweep = here & swept
    if sweep.sum() < 2:
        scores = seen.score[here]
        return (float(scores.mean()) if len(scores) else 0.0), np.nan
    scores = seen.score[sweep]
    centre = float(np.median(scores) if robust else scores.mean())
    width = float(NORMAL * np.median(np.abs(scores - centre)) if robust else scores.std())
    noise = float(np.median(seen.stderr[sweep]))
    spread = max(width, noise, FLAT * abs(centre))
    return centre, spread if spread > 0 else np.nan
