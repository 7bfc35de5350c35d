"""How alike tasks are, learned from the scores of other models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from daskmetrics.bandit._problem import Floats
from daskmetrics.bandit.replay._tables import ScoreTable
from daskmetrics.core.errors import DataError

SHARE = 0.5  #: of the correlations of other models in the likeness; the kinds have the rest
LEAST_TASKS = 3  #: the deviations of two tasks from their mean always have the correlation -1
LEAST_ARMS = 8  #: with fewer arms a correlation is mostly chance
NUGGET = 1e-6  #: variance of its own that every task has, so that equal scores have a correlation


def task_likeness(earlier: ScoreTable, kinds: Mapping[str, str]) -> Floats:
    """Likeness of tasks, half from their kinds and half from what they had in common in other models.

    Of each earlier model, the scores of every task are standardised over the arms, the mean over the tasks is
    subtracted, and the rest is correlated; the correlations of several models are averaged. Scores of an arm count for
    nothing but that: which arms were good elsewhere is not part of the result.

    Parameters
    ----------
    earlier : ScoreTable
        Scores of other models on some of the tasks; arms without a score on each of these are left out.
    kinds : mapping of str to str, length T
        Kind of each task of the search, in order; an empty string is a kind of its own.

    Returns
    -------
    ndarray (T, T)
        As `daskmetrics.bandit.Problem.likeness`. Tasks that were not scored earlier are related by kind.

    Raises
    ------
    DataError
        If fewer than three tasks are in common, or no model has eight arms with a score on each of them.

    Examples
    --------
    >>> from daskmetrics.bandit.replay import ScoreRow, score_table
    >>> from daskmetrics.core.names import Arm
    >>> scores = [(Arm("m", "main", i), task, i if task < "c" else -i) for i in range(8) for task in "abc"]
    >>> earlier = score_table(ScoreRow(*each) for each in scores)
    >>> task_likeness(earlier, {"a": "pairs", "b": "classes", "c": "classes", "new": "classes"}).round(1) + 0
    array([[ 1. ,  0.5, -0.5,  0. ],
           [ 0.5,  1. ,  0. ,  0.5],
           [-0.5,  0. ,  1. ,  0.5],
           [ 0. ,  0.5,  0.5,  1. ]])
    """
    names = np.array([kind or task for task, kind in kinds.items()])
    same = (names[:, None] == names).astype(float)
    common = [task for task in kinds if task in earlier.kinds]
    if len(common) < LEAST_TASKS:
        raise DataError(
            f"The earlier scores are of {len(earlier.tasks)} tasks, {len(common)} of which are among the {len(kinds)} "
            f"tasks of the search. The likeness of tasks needs {LEAST_TASKS} or more: name a run on the same tasks."
        )
    scores = earlier.scores[:, [earlier.tasks.index(task) for task in common]]
    complete, models = earlier.is_complete(common), np.array([arm.model for arm in earlier.arms])
    each = [scores[complete & (models == suite.model)] for suite in earlier.suites]
    enough = [_correlation(own) for own in each if len(own) >= LEAST_ARMS]
    if not enough:
        raise DataError(
            f"No earlier model has {LEAST_ARMS} arms with a score on each of the {len(common)} common tasks; the most "
            f"is {max(map(len, each))}. Name a run that scored more arms on every task."
        )
    known = np.array([task in earlier.kinds for task in kinds])
    found = np.where(known[:, None] == known, same, 0.0)  # no entry between known and new tasks: it stays a correlation
    found[np.ix_(known, known)] = np.mean(enough, axis=0)
    return np.asarray((1 - SHARE) * same + SHARE * found)


def _correlation(scores: Floats) -> Floats:
    """Correlation over the arms of what is particular to each task (T, T), of scores (A, T)."""
    sd = scores.std(axis=0)
    standing = (scores - scores.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    own = standing - standing.mean(axis=1, keepdims=True)
    covariance = own.T @ own + NUGGET * len(own) * np.eye(len(sd))
    sd = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / np.outer(sd, sd))
