"""Candidates in the order of their mean score, and which of them are within the error of the best."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import compress

import numpy as np

from daskmetrics.answer.ties import LEVEL, MOST, MeanScores, not_worse
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import joint_error, means_of
from daskmetrics.core.results import Scored

Scores = Mapping[str, Scored]  # of an arm, by task


@dataclass(frozen=True)
class RankedArm:
    """A row of a `Leaderboard`.

    Attributes
    ----------
    arm : Arm
    scores : mapping
        Raw score and standard error by task, of the tasks that the arm was scored on.
    rank : int or None
        Place by the mean score, from 1; None, as the following, for an arm that lacks tasks of the
        objective.
    mean, stderr : float or None
        Weighted mean of the raw scores over the tasks of the objective, and its standard error.
    tied : bool or None
        Whether the arm is within the error of the best one; the best arm itself is True.
    """

    arm: Arm
    scores: Mapping[str, tuple[float, float]]
    rank: int | None = None
    mean: float | None = None
    stderr: float | None = None
    tied: bool | None = None


def ranked_arms(
    recorded: Mapping[Arm, Scores],
    weights: Mapping[str, float],
    tied: Collection[Arm] | None = None,
) -> tuple[RankedArm, ...]:
    """Recorded scores in the order of their means; those that lack a task come last.

    ``tied`` are the arms within the error of the best; by default they are tested by raw scores.
    """
    counted = {task: weight for task, weight in weights.items() if weight}
    means = means_of(recorded, counted)
    complete = sorted(means, key=lambda arm: (-means[arm][0], arm))
    partial = sorted(recorded.keys() - means.keys(), key=lambda arm: (-len(recorded[arm]), arm))
    if tied is None:
        tied = _tied({arm: recorded[arm] for arm in complete}, counted)
    scores = {}
    for arm, by_task in recorded.items():
        common = [(task, by_task[task]) for task in weights if task in by_task]
        scores[arm] = {task: (result.score, result.stderr) for task, result in common}
    ranked = [
        RankedArm(arm, scores[arm], rank, *means[arm], tied=arm in tied)
        for rank, arm in enumerate(complete, 1)
    ]
    return (*ranked, *(RankedArm(arm, scores[arm]) for arm in partial))


def _tied(complete: Mapping[Arm, Scores], weights: Mapping[str, float]) -> set[Arm]:
    """The arms, best first, that are within the error of the best by their raw scores."""
    if not complete:
        return set()
    arms = list(complete)
    tested, beyond = arms[:MOST], arms[MOST:]
    shares = np.array(list(weights.values())) / math.fsum(weights.values())
    scores = np.empty((len(arms), len(weights)))
    errors = np.empty_like(scores)
    joint = []
    for column, task in enumerate(weights):
        results = [by_task[task] for by_task in complete.values()]
        scores[:, column] = [result.score for result in results]
        errors[:, column] = [result.stderr for result in results]
        joint.append(joint_error(results[:MOST]))
    tie = MeanScores.of(scores[: len(tested)], shares, joint).tied(LEVEL)
    compared = [0, *range(len(tested), len(arms))]
    as_good = not_worse(scores[compared] @ shares, errors[compared] ** 2 @ shares**2, LEVEL)
    return {tested[i] for i in tie.arms} | set(compress(beyond, as_good))
