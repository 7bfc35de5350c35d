"""Raw scores to values that tasks can be compared and averaged by; an arm's objective is the mean over tasks.

``zscore``
    (score - mean) / sd, both over the layers of the baseline checkpoint. Every task weighs alike, whatever the spread
    of its scores; the default arm's neighbourhood is the unit.
``mean``
    The score itself: needs no baseline sweep, and tasks with a wide spread weigh more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit.problem import Bools, Floats, Observations, Problem

#: Smallest sd of a baseline sweep, relative to the task's mean score. Layers that differ by less than one per cent are
#: flat for our purpose, and dividing by less would let one such task decide the whole search.
FLAT = 0.01


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


def scale(problem: Problem, seen: Observations) -> Scale:
    """The scale that a problem's reward asks for, from what has been observed so far.

    The sd of a baseline sweep is never taken smaller than the typical standard error of its scores (differences below
    it are noise) nor than `FLAT` of their mean. A task whose baseline has fewer than two scores, for example because
    they failed, borrows: the median spread of the other tasks, and the mean of whatever it has.

    Examples
    --------
    >>> from daskmetrics.arms import Checkpoint, Suite
    >>> from daskmetrics.bandit.problem import arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> cost = np.ones((4, 1))
    >>> problem = Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost, Checkpoint("m", "step1"), "zscore")
    >>> seen = Observations.of([(0, 0, 0.3, 0.01), (2, 0, 0.4, 0.01), (3, 0, 0.6, 0.01)])
    >>> scale(problem, seen).values(seen).round(6).tolist()
    [-2.0, -1.0, 1.0]
    """
    if problem.reward == "mean":
        return Scale(np.zeros(len(problem.tasks)), np.ones(len(problem.tasks)))
    layers = np.isin(seen.arm, problem.baseline_arms)
    sweeps = [_sweep(seen, layers, task) for task in range(len(problem.tasks))]
    centre, spread = np.array(sweeps, dtype=float).T
    known = spread[np.isfinite(spread)]
    typical = float(np.median(known)) if len(known) else 1.0
    return Scale(centre, np.where(np.isfinite(spread), spread, typical))


def _sweep(seen: Observations, layers: Bools, task: int) -> tuple[float, float]:
    """Centre and spread of one task; the spread is NaN where the baseline does not tell it."""
    here = seen.task == task
    base = here & layers
    if base.sum() < 2:
        some = seen.score[here]
        return (float(some.mean()) if len(some) else 0.0), np.nan
    scores = seen.score[base]
    centre = float(scores.mean())
    noise = float(np.median(seen.stderr[base]))
    spread = max(float(scores.std()), noise, FLAT * abs(centre))
    return centre, spread if spread > 0 else np.nan
