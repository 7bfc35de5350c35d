"""What cells really cost, learnt while a search runs: the assumed costs, corrected by model and by task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskmetrics.bandit.problem import Floats, Outcome, Problem

DOUBT = 2.0  #: measurements that the assumed cost counts for


def correction(problem: Problem, cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> Floats:
    """Factors on the assumed costs of scoring (A, T), relative to each other: all ones if no seconds were told.

    The logarithm of (measured / assumed) is taken as model + task, both shrunk towards no correction. A factor is
    rounded to a power of two, so that the jitter of a machine decides nothing, and what is common to all cells is left
    out: a budget is a share of the whole.

    Examples
    --------
    >>> from daskmetrics.arms import Checkpoint, Suite
    >>> from daskmetrics.bandit.problem import arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> cost = np.ones((4, 2))
    >>> problem = Problem(suite.arms(), ("s", "t"), arm_features([suite]), cost, cost, Checkpoint("m", "step1"), "mean")
    >>> cells = [(arm, task) for arm in range(4) for task in (0, 1)]
    >>> outcomes = [Outcome(0.5, seconds=10.0 * 16**task) for _, task in cells]
    >>> correction(problem, cells, outcomes)[0].tolist()
    [0.5, 2.0]
    """
    told = [(*cell, one.seconds) for cell, one in zip(cells, outcomes, strict=False) if one.seconds]
    if not told:
        return np.ones(problem.score_cost.shape)
    arm, task = np.array([row[:2] for row in told], dtype=np.intp).T
    assumed = np.maximum(problem.score_cost[arm, task], 1e-9)
    ratio = np.log2(np.array([row[2] for row in told], dtype=float) / assumed)
    ratio -= np.median(ratio)
    model = problem.model_index
    by_task = _shrunk(ratio, task, len(problem.tasks))
    by_model = _shrunk(ratio - by_task[task], model[arm], len(problem.models))
    return np.asarray(2.0 ** np.round(by_model[model][:, None] + by_task))


def _shrunk(values: Floats, group: np.ndarray, size: int) -> Floats:
    total = np.bincount(group, weights=values, minlength=size)
    return np.asarray(total / (np.bincount(group, minlength=size) + DOUBT))
