"""Two candidates beside each other, and two runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING

from daskmetrics.answer.analysis import rank_correlation
from daskmetrics.answer.posterior import arm_named
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.status import RunStatus, status_of
from daskmetrics.core.errors import DataError
from daskmetrics.domain.names import Arm, Cell
from daskmetrics.domain.outcomes import Difference, mean_difference
from daskmetrics.domain.results import Scored
from daskmetrics.domain.scores import Scores

if TYPE_CHECKING:
    from daskmetrics.tasks.task import Selection


@dataclass(frozen=True)
class ArmComparison:
    """By how much an arm is better than another, by task.

    ``difference`` is that of the mean raw scores, with the weights of the objective; None if no
    task of the objective scored both.
    """

    arm: Arm
    other: Arm
    difference: Difference | None
    tasks: Mapping[str, Difference]

    @classmethod
    def of(
        cls, arm: Arm, other: Arm, tasks: Mapping[str, Difference], weights: Mapping[str, float]
    ) -> ArmComparison:
        return cls(arm, other, mean_difference(tasks, weights), tasks)


@dataclass(frozen=True)
class Agreement:
    """How the scores that two runs share differ: the second's minus the first's."""

    cells: int
    mean: float | None = None
    greatest: float | None = None
    at: Cell | None = None  # where the difference is the greatest
    rho: float | None = None  # Spearman's; None for few or equal scores


@dataclass(frozen=True)
class RunComparison:
    """Two runs: their states, best arms, common scores and different settings."""

    runs: Mapping[str, RunStatus]
    best_arms: ArmComparison | None  # None if a search is not finished
    shared: Agreement
    left_out: Sequence[str]  # why scores were not compared
    settings: Mapping[str, Sequence[object]]


def compare_named(
    run: RecordedRun, name: str, other_name: str, elsewhere: RecordedRun | None = None
) -> ArmComparison:
    """Compare arms ``MODEL@REVISION/LAYER``; the second may be of another run.

    Raises
    ------
    ConfigError
        If an arm was not scored.
    DataError
        If they have no common task.
    """
    beside = elsewhere or run
    kind = "scored candidate"
    arm = arm_named(name, run.recorded, kind, run.plan.layer_names)
    other = arm_named(other_name, beside.recorded, kind, beside.plan.layer_names)
    gaps = run.differences(arm, other, elsewhere)
    compared = ArmComparison.of(arm, other, gaps, run.weights)
    if not compared.tasks:
        raise DataError(
            f"{name} and {other_name} have no scored task in common. Score both with"
            " search.policy=sweep."
        )
    return compared


def compare_runs(run: RecordedRun, other: RecordedRun) -> RunComparison:
    """Compare two runs, and their best arms on the tasks with the same subsets."""
    shared, left_out = _agreement(run.recorded, other.recorded)
    best_arms = None
    if run.recommendation and other.recommendation:
        arm, other_arm = run.recommendation.arm, other.recommendation.arm
        mine, theirs = run.recorded.get(arm, {}), other.recorded.get(other_arm, {})
        common = mine.keys() & theirs
        unlike = {task for task in common if _selection(mine[task]) != _selection(theirs[task])}
        gaps = other.differences(other_arm, arm, run)
        alike = {task: gap for task, gap in gaps.items() if task not in unlike}
        best_arms = ArmComparison.of(other_arm, arm, alike, other.weights)
    return RunComparison(
        runs={"run": status_of(run), "other": status_of(other)},
        best_arms=best_arms,
        shared=shared,
        left_out=left_out,
        settings=different_settings(run, other),
    )


def _agreement(scores_of_run: Scores, scores_of_other: Scores) -> tuple[Agreement, list[str]]:
    scores, left_out = {}, []
    mine, theirs = _cells(scores_of_run), _cells(scores_of_other)
    for cell in sorted(mine.keys() & theirs):
        try:
            other_score = _score_over(_selection(mine[cell]), theirs[cell])
        except DataError as error:
            left_out.append(f"{cell}: the score of other {error}")
        else:
            scores[cell] = mine[cell].score, other_score
    if not scores:
        return Agreement(0), left_out
    gaps = {cell: other - score for cell, (score, other) in scores.items()}
    at = max(gaps, key=lambda cell: abs(gaps[cell]))
    rho = rank_correlation(scores.values())
    agreement = Agreement(
        cells=len(gaps),
        mean=fmean(gaps.values()),
        greatest=gaps[at],
        at=at,
        rho=None if math.isnan(rho) else rho,
    )
    return agreement, left_out


def _cells(scores: Scores) -> dict[Cell, Scored]:
    rows = scores.items()
    return {Cell(arm, task): score for arm, by_task in rows for task, score in by_task.items()}


def _selection(score: Scored) -> Selection | None:
    """The splits and subsets of a score of mteb."""
    # tasks need pandas, which `status` of a run does not
    from daskmetrics.tasks import mteb_results

    if not (score.detail and score.detail.get("scores")):
        return None
    return mteb_results.selection_of(score.detail)


def _score_over(wanted: Selection | None, score: Scored) -> float:
    """The mean over these splits and subsets; DataError if it lacks one."""
    from daskmetrics.tasks import mteb_results

    if score.detail is None or wanted in (None, _selection(score)):
        return score.score
    return mteb_results.mean(mteb_results.select(score.detail, wanted))


def different_settings(*runs: RecordedRun) -> dict[str, tuple[object, ...]]:
    """The settings that differ, by key; None where a run has none."""
    import pandas

    settings = [pandas.json_normalize(dict(run.config)).to_dict("records")[0] for run in runs]
    differing = {}
    for key in map(str, dict.fromkeys(chain.from_iterable(settings))):
        values = tuple(of_run.get(key) for of_run in settings)
        if any(value != values[0] for value in values) and not key.startswith("name"):
            differing[key] = values
    return differing
