"""Two candidates beside each other, two runs, and a run beside published scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING

from daskmetrics.answer.analysis import rank_correlation
from daskmetrics.answer.posterior import arm_named
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.status import RunStatus, status_of
from daskmetrics.core.errors import DataError
from daskmetrics.core.events import scored
from daskmetrics.core.names import Arm, Cell
from daskmetrics.core.outcomes import Difference, mean_difference

if TYPE_CHECKING:
    from daskmetrics.experiment.score_tables import KnownScore


@dataclass(frozen=True)
class ArmComparison:
    """By how much an arm is better than another, on the tasks on which both were scored.

    ``difference`` is that of the mean raw scores, with the weights of the objective; None if no
    task of the objective was scored with both.
    """

    arm: Arm
    other: Arm
    difference: Difference | None
    tasks: Mapping[str, Difference]


@dataclass(frozen=True)
class Agreement:
    """How the scores of the cells that two sources share differ: those of the second minus those of
    the first.
    """

    cells: int
    mean: float | None = None
    greatest: float | None = None
    at: Cell | None = None  # where the difference is the greatest
    rho: float | None = None  # Spearman's; None for few or equal scores


@dataclass(frozen=True)
class RunComparison:
    """Two runs: how far they are, their best arms, the scores of common cells, and the settings
    that differ.
    """

    runs: Mapping[str, RunStatus]
    best_arms: ArmComparison | None  # None if a search is not finished
    shared: Agreement
    left_out: Sequence[str]  # why scores were not compared
    settings: Mapping[str, Sequence[object]]


@dataclass(frozen=True)
class PublishedComparison:
    """A run beside published scores."""

    source: str
    shared: Agreement
    left_out: Sequence[str]


def compare_arms(
    run: RecordedRun,
    arm: Arm,
    other: Arm,
    elsewhere: RecordedRun | None = None,
    left_out: Collection[str] = (),
) -> ArmComparison:
    """Compare an arm of a run with another arm of it, or of another run; the weights are those of
    `run`.
    """
    differences = run.differences(arm, other, elsewhere)
    tasks = {task: gap for task, gap in differences.items() if task not in left_out}
    weights = {task: weight for task, weight in run.weights.items() if task in tasks}
    mean = mean_difference([tasks[task] for task in weights], list(weights.values()))
    return ArmComparison(arm, other, mean, tasks)


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
    arm = arm_named(name, run.recorded, "scored candidate")
    other = arm_named(other_name, (elsewhere or run).recorded, "scored candidate")
    compared = compare_arms(run, arm, other, elsewhere)
    if not compared.tasks:
        raise DataError(
            f"{arm} and {other} have no scored task in common. Score both with search.policy=sweep."
        )
    return compared


def compare_runs(run: RecordedRun, other: RecordedRun) -> RunComparison:
    """Compare a run with another one."""
    shared, left_out = _agreement(run, known_scores(other), "other")
    best_arms = None
    if run.result and other.result:
        best_arms = compare_best(run, other)
    return RunComparison(
        runs={"run": status_of(run), "other": status_of(other)},
        best_arms=best_arms,
        shared=shared,
        left_out=left_out,
        settings=different_settings(run, other),
    )


def compare_published(
    run: RecordedRun, published: Mapping[Cell, KnownScore], source: str
) -> PublishedComparison:
    """Compare a run with published scores of the same models; `DataError` if they share no cell."""
    shared, left_out = _agreement(run, published, "published")
    if shared.cells:
        return PublishedComparison(source, shared, left_out)
    if left_out:
        raise DataError(
            f"'{source}' has no score like those of the run. {len(left_out):,} are of other splits "
            f"or subsets; for example {left_out[0]}"
        )
    models = sorted({cell.arm.model for cell in published})
    raise DataError(
        f"'{source}' and the run in '{run.folder.path}' share no score. The table has the models "
        f"{', '.join(models)}; the run has {', '.join(run.models)}, with the tasks "
        f"{', '.join(run.tasks)}."
    )


def compare_best(run: RecordedRun, other: RecordedRun) -> ArmComparison:
    """The recommended arm of the other run beside that of the first, on the tasks over the same
    subsets.
    """
    arm = run.finished_search().best_arm
    other_arm = other.finished_search().best_arm
    mine, theirs = map(_selections, (run, other))
    unlike = [task for task in mine.keys() & theirs if mine[task] != theirs[task]]
    return compare_arms(other, other_arm, arm, run, unlike)


def _selections(run: RecordedRun) -> dict[str, object]:
    """Over which splits and subsets the scores of each task of mteb are."""
    from daskmetrics.tasks import mteb_results

    scores = known_scores(run).items()
    contents = {cell.task: score.content for cell, score in scores if score.content}
    return {task: mteb_results.selection_of(content) for task, content in contents.items()}


def known_scores(run: RecordedRun) -> dict[Cell, KnownScore]:
    """Raw score of every scored cell of a run, for a task of mteb with what mteb returned."""
    # tasks need pandas, which `status` of a run does not
    from daskmetrics.experiment.score_tables import KnownScore

    scores = {}
    for record, result in scored(run.records):
        detail = result.detail or {}
        content = detail if detail.get("scores") else None
        scores[run.cells[record.key]] = KnownScore(result.score, content)
    return scores


def different_settings(*runs: RecordedRun) -> dict[str, tuple[object, ...]]:
    """The settings of runs that differ, by key; None where a run has none."""
    import pandas

    settings = [pandas.json_normalize(run.config).to_dict("records")[0] for run in runs]
    differing = {}
    for key in map(str, dict.fromkeys(chain.from_iterable(settings))):
        values = tuple(of_run.get(key) for of_run in settings)
        if any(value != values[0] for value in values) and not key.startswith("name"):
            differing[key] = values
    return differing


def _agreement(
    run: RecordedRun, others: Mapping[Cell, KnownScore], name: str
) -> tuple[Agreement, list[str]]:
    """Compare other scores over the same splits and subsets with those of a run; and why others are
    left out.

    Where the others do not have the same name, names of models are compared without upper case and
    organisation, those of tasks of mteb without ``mteb:``, if that leaves no two alike.
    """
    scores = known_scores(run)
    alike = Counter(map(_plain, others)) | Counter(map(_plain, scores))
    by_name = {_plain(cell): score for cell, score in others.items() if alike[_plain(cell)] == 1}
    pairs = {}
    left_out: list[str] = []
    for cell, known_score in scores.items():
        detail = known_score.content
        other = others.get(cell) or by_name.get(_plain(cell))
        if other is None and detail:
            # a variant of the task, in a table that says which
            other = by_name.get(_plain(Cell(cell.arm, detail["task_name"])))
            if other and not other.says_what:
                continue
        if other is None or (other.content and not detail):
            continue
        other_score = other.score
        if detail:
            try:
                other_score = other.over(detail)
            except DataError as error:
                left_out.append(f"{cell}: the score of {name} {error}")
                continue
        pairs[cell] = known_score.score, other_score
    if not pairs:
        return Agreement(0), left_out
    gaps = {cell: other - score for cell, (score, other) in sorted(pairs.items())}
    at = max(gaps, key=lambda cell: abs(gaps[cell]))
    rho = rank_correlation(pairs.values())
    agreement = Agreement(
        cells=len(pairs),
        mean=fmean(gaps.values()),
        greatest=gaps[at],
        at=at,
        rho=None if math.isnan(rho) else rho,
    )
    return agreement, left_out


def _plain(cell: Cell) -> tuple[str, str, int, str, str]:
    """A cell without what differs between sources: case and organisation of the model, ``mteb:``
    before the task.
    """
    arm = cell.arm
    model = arm.model.rpartition("/")[2].lower()
    return model, arm.revision, arm.layer, arm.readout, cell.task.removeprefix("mteb:")
