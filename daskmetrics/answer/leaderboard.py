"""Candidates in the order of their mean score, and which of them are within the error of the
best.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from daskmetrics.answer.ties import LEVEL, ScoreMatrix
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import means_of
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
    if tied is None and complete:
        shares = np.array(list(counted.values())) / math.fsum(counted.values())
        tested = ScoreMatrix(recorded, tuple(counted)).tested(tuple(counted), shares, LEVEL)
        if tested:
            tied = tested.tied
    scores = {}
    for arm, by_task in recorded.items():
        common = [task for task in weights if task in by_task]
        scores[arm] = {task: (by_task[task].score, by_task[task].stderr) for task in common}
    ranked = [
        RankedArm(arm, scores[arm], rank, *means[arm], tied=arm in (tied or ()))
        for rank, arm in enumerate(complete, 1)
    ]
    return (*ranked, *(RankedArm(arm, scores[arm]) for arm in partial))
