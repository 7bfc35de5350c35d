"""What cells really cost, learnt while a search runs: the assumed costs, corrected by model and by task."""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit.answers import Answers
from daskmetrics.bandit.problem import Floats, Problem

DOUBT = 2.0  #: measurements that the assumed cost counts for


def correction(problem: Problem, answers: Answers) -> Floats:
    """Factors on the assumed costs of scoring (A, T), relative to each other: all ones if no seconds were told.

    The logarithm of (measured / assumed) is taken as model + task, both shrunk towards no correction. A factor is
    rounded to a power of two, so that the jitter of a machine decides nothing, and what is common to all cells is left
    out: a budget is a share of the whole.

    Examples
    --------
    >>> from daskmetrics.arms import Checkpoint, Suite
    >>> from daskmetrics.bandit.problem import Outcome, arm_features
    >>> suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    >>> cost = np.ones((4, 2))
    >>> problem = Problem(suite.arms(), ("s", "t"), arm_features([suite]), cost, cost, Checkpoint("m", "step1"), "mean")
    >>> cells = [(arm, task) for arm in range(4) for task in (0, 1)]
    >>> answers = Answers.of((cell, Outcome(0.5, seconds=10.0 * 16 ** cell[1])) for cell in cells)
    >>> correction(problem, answers)[0].tolist()
    [0.5, 2.0]
    """
    told = answers.seconds > 0
    if not told.any():
        return np.ones(problem.score_cost.shape)
    arm, task = answers.arm[told], answers.task[told]
    assumed = np.maximum(problem.score_cost[arm, task], 1e-9)
    ratio = np.log2(answers.seconds[told] / assumed)
    ratio -= np.median(ratio)
    model = problem.model_index
    by_task = _shrunk(ratio, task, len(problem.tasks))
    by_model = _shrunk(ratio - by_task[task], model[arm], len(problem.models))
    return np.asarray(2.0 ** np.round(by_model[:, None] + by_task))[model]


def _shrunk(values: Floats, group: np.ndarray, size: int) -> Floats:
    total = np.bincount(group, weights=values, minlength=size)
    return np.asarray(total / (np.bincount(group, minlength=size) + DOUBT))
