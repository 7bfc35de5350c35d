"""Raw scores to values that tasks can be compared and averaged by; their weighted mean is an arm's objective.

``zscore``
    (score - mean) / sd, both over the layers of the baseline checkpoint. Every task weighs alike, whatever the spread
    of its scores; the default arm's neighbourhood is the unit.
``mean``
    The score itself: needs no baseline sweep, and tasks with a wide spread weigh more.
``running``
    (score - mean) / sd, both over all scores of the task seen so far: needs no baseline sweep either, and the unit
    settles as scores come in. Once every cell is known it is the z-score over all arms.
``rank``
    The share of the task's scores seen so far that a score beats, ties counting half, in (0, 1): by how many arms an
    arm is better and not by how much, so that no outlier decides.
``harmonic``
    -1 / score, so that the weighted mean orders arms as the weighted harmonic mean of the scores does: an arm that
    fails on one task is not saved by the others.
``robust``
    (score - median) / spread over all scores of the task seen so far, the spread by the median deviation, and no value
    beyond `LIMIT`: a mean that neither a broken cell nor one task on which an arm excels can carry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._problem import Bools, Floats, Observations, Problem

#: Smallest sd of a baseline sweep, relative to the task's mean score. Layers that differ by less than one per cent are
#: flat for our purpose, and dividing by less would let one such task decide the whole search.
FLAT = 0.01

LIMIT = 3.0  #: values of ``robust`` lie between this and its negative
LEAST = 0.01  #: scores below count as this where their reciprocal is taken: a correlation can be negative
NORMAL = 1.4826  #: standard deviation of a normal distribution, in median absolute deviations

UNIFORM = 12.0**-0.5  #: standard deviation of ranks, which are spread evenly over (0, 1)


@dataclass(frozen=True, eq=False)
class Scale:
    """Per-task centre and spread (T,) in units of the score: value = (score - centre) / spread."""

    centre: Floats
    spread: Floats

    def values(self, seen: Observations) -> Floats:
        """Values of the observed cells (n,)."""
        return np.asarray((seen.score - self.centre[seen.task]) / self.spread[seen.task])

    def errors(self, seen: Observations) -> Floats:
        """Their standard errors (n,)."""
        return np.asarray(seen.stderr / self.spread[seen.task])


@dataclass(frozen=True, eq=False)
class Ranks:
    """Per-task ranks: value = (number of the task's scores below + half of those equal) / number of its scores."""

    scores: tuple[Floats, ...]  # of each task, ascending

    def values(self, seen: Observations) -> Floats:
        """Values of the observed cells (n,)."""
        values = np.zeros(len(seen))
        for task, scores in enumerate(self.scores):
            here = seen.task == task
            below, up_to = (np.searchsorted(scores, seen.score[here], side) for side in ("left", "right"))
            values[here] = (below + up_to) / (2.0 * max(len(scores), 1))
        return values

    def errors(self, seen: Observations) -> Floats:
        """Their standard errors (n,), as if ranks rose evenly with scores: by sd(rank) / sd(score)."""
        spread = np.array([float(scores.std()) if len(scores) else 0.0 for scores in self.scores])
        slope = np.where(spread > 0, UNIFORM / np.where(spread > 0, spread, 1.0), 0.0)
        return np.minimum(seen.stderr * slope[seen.task], UNIFORM)


@dataclass(frozen=True, eq=False)
class Reciprocals:
    """value = -1 / score."""

    def values(self, seen: Observations) -> Floats:
        """Values of the observed cells (n,)."""
        return np.asarray(-1.0 / np.maximum(seen.score, LEAST))

    def errors(self, seen: Observations) -> Floats:
        """Their standard errors (n,), at the slope of the reciprocal."""
        return np.asarray(seen.stderr / np.maximum(seen.score, LEAST) ** 2)


@dataclass(frozen=True, eq=False)
class Clipped:
    """Values of a scale, none of them beyond `LIMIT`."""

    scale: Scale

    def values(self, seen: Observations) -> Floats:
        """Values of the observed cells (n,)."""
        return np.clip(self.scale.values(seen), -LIMIT, LIMIT)

    def errors(self, seen: Observations) -> Floats:
        """Their standard errors (n,)."""
        return self.scale.errors(seen)


Unit = Scale | Ranks | Reciprocals | Clipped
"""From raw scores to values."""


def scale(problem: Problem, seen: Observations) -> Unit:
    """The scale that a problem's reward asks for, from what has been observed so far.

    The sd of a sweep (of the baseline checkpoint for ``zscore``, of all scores seen for ``running``) is never taken
    smaller than the typical standard error of its scores (differences below it are noise) nor than `FLAT` of their
    mean. A task whose sweep has fewer than two scores, for example because they failed, borrows: the median spread of
    the other tasks, and the mean of whatever it has.

    Examples
    --------
    >>> from daskmetrics.core.names import Checkpoint, Suite
    >>> from daskmetrics.bandit._problem import arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> cost = np.ones((4, 1))
    >>> problem = Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost, Checkpoint("m", "step1"), "zscore")
    >>> seen = Observations.of([(0, 0, 0.3, 0.01), (2, 0, 0.4, 0.01), (3, 0, 0.6, 0.01)])
    >>> scale(problem, seen).values(seen).round(6).tolist()
    [-2.0, -1.0, 1.0]
    """
    if problem.reward == "mean":
        return Scale(np.zeros(len(problem.tasks)), np.ones(len(problem.tasks)))
    if problem.reward == "rank":
        return Ranks(tuple(np.sort(seen.score[seen.task == task]) for task in range(len(problem.tasks))))
    if problem.reward == "harmonic":
        return Reciprocals()
    layers = np.isin(seen.arm, problem.baseline_arms) | (problem.reward in ("running", "robust"))
    robust = problem.reward == "robust"
    sweeps = [_sweep(seen, layers, task, robust) for task in range(len(problem.tasks))]
    centre, spread = np.array(sweeps, dtype=float).T
    known = spread[np.isfinite(spread)]
    typical = float(np.median(known)) if len(known) else 1.0
    found = Scale(centre, np.where(np.isfinite(spread), spread, typical))
    return Clipped(found) if robust else found


def _sweep(seen: Observations, layers: Bools, task: int, robust: bool = False) -> tuple[float, float]:
    """Centre and spread of one task over the marked scores; the spread is NaN where they do not tell it."""
    here = seen.task == task
    base = here & layers
    if base.sum() < 2:
        some = seen.score[here]
        return (float(some.mean()) if len(some) else 0.0), np.nan
    scores = seen.score[base]
    centre = float(np.median(scores) if robust else scores.mean())
    width = float(NORMAL * np.median(np.abs(scores - centre)) if robust else scores.std())
    noise = float(np.median(seen.stderr[base]))
    spread = max(width, noise, FLAT * abs(centre))
    return centre, spread if spread > 0 else np.nan
