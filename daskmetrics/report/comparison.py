"""Two candidates or two runs beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from daskmetrics.answer.answer import Standing
from daskmetrics.answer.comparison import Agreement, ArmComparison, RunComparison
from daskmetrics.core.table import Table
from daskmetrics.core.text import score_text
from daskmetrics.domain.names import LayerNames, arm_name
from daskmetrics.domain.recommendation import ScoreEstimate
from daskmetrics.domain.results import Scored
from daskmetrics.report._format import Line, apart, gap_text, partly, unpaired_note
from daskmetrics.report._run import Run
from daskmetrics.report.lines import gain
from daskmetrics.report.status import status_lines


def compare_tables(run: Run, other: Run, compared: RunComparison | ArmComparison) -> list[Table]:
    """Two runs, or two candidates, of which the second may be of another run."""
    layer_names = run.plan.layer_names, other.plan.layer_names
    if isinstance(compared, ArmComparison):
        names = _names(compared, *layer_names)
        header = ("task", *names, "difference", "")
        scores = run.recorded[compared.arm], other.recorded[compared.other]
        rows = _score_rows(compared.tasks, scores, compared)
        rows = [(task, *texts, compared.tasks[task].relation) for task, *texts in rows]
        overall = run.verdict.overall if run is other and run.result else None
        title = _mean_difference(compared, names, run.weights, overall)
        return [Table(header, rows, title, unpaired_note(compared.tasks.values()))]
    shown = [answers_table({"run": run, "other": other})]
    if best := compared.best_arms:
        both = run.answer.best.scores, other.answer.best.scores
        rows = _score_rows({**run.kinds, **other.kinds}, both, best)
        title = _mean_difference(best, _names(best, *layer_names[::-1]), other.weights)
        notes = unpaired_note(best.tasks.values())
        shown.append(Table(("task", "run", "other", "other − run"), rows, title, notes))
    shown.append(_agreement(compared.shared, compared.left_out, layer_names[0]))
    shown.append(settings_table(compared.settings))
    return shown


def _score_rows(
    tasks: Iterable[str],
    scores: Sequence[Mapping[str, Scored | ScoreEstimate]],
    compared: ArmComparison,
) -> list[tuple[str, ...]]:
    """The scores of two candidates by task; those over other subsets are not subtracted."""
    rows = []
    for task in tasks:
        both = [by_task.get(task) for by_task in scores]
        texts = [score_text(score.score, score.stderr) if score else "no score" for score in both]
        gap = gap_text(compared.tasks.get(task))
        if not gap and all(both):
            gap = "other subsets"
        rows.append((task, *texts, gap))
    return rows


def _names(compared: ArmComparison, of_arm: LayerNames, of_other: LayerNames) -> tuple[str, str]:
    """What the candidates are called, of which the second may be of another run."""
    return arm_name(compared.arm, of_arm), arm_name(compared.other, of_other)


def _mean_difference(
    compared: ArmComparison,
    names: tuple[str, str],
    weights: Mapping[str, float],
    overall: Standing | None = None,
) -> str:
    """The mean difference, in the words of the verdict if known."""
    if compared.difference is None:
        return "No task of the objective was scored with both."
    relation = compared.difference.relation
    pair = [compared.arm, compared.other]
    if overall and overall.arm in pair:
        pair.remove(overall.arm)
        relation = overall.relation(pair[0], compared.difference)
    gap = apart(compared.difference)
    return (
        f"The mean score of {names[0]} minus that of {names[1]} is {gap}, {relation}"
        f"{partly(weights, compared.tasks)}."
    )


def _agreement(shared: Agreement, left_out: Sequence[str], layer_names: LayerNames) -> Table:
    lines = [Line("in common", f"{shared.cells:,}")]
    if shared.at:
        greatest = score_text(shared.greatest, sign=True)
        at = f"{arm_name(shared.at.arm, layer_names)}:{shared.at.task}"
        lines += [
            Line("mean difference", score_text(shared.mean, sign=True)),
            Line("greatest", f"{greatest} ({at})"),
        ]
    if shared.rho is not None:
        lines.append(Line("Spearman's ρ", f"{shared.rho:+.3f}"))
    if left_out:
        count = f"{len(left_out):,} of other splits or subsets"
        lines.append(Line("left out", f"{count}; for example {left_out[0]}"))
    return Table((), lines, "Scores of both")


def answers_table(runs: Mapping[str, Run]) -> Table:
    """What runs have done and recommend, one column for each run."""
    columns = []
    for run in runs.values():
        answer = run.answer if run.result else None
        column = {"candidates": f"{len(run.plan.arms):,}", **dict(status_lines(run, answer))}
        column["gain"] = gain(answer) if answer else "no answer yet"
        columns.append(column)
    labels = dict.fromkeys(chain.from_iterable(columns))
    rows = [(label, *(column.get(label, "") for column in columns)) for label in labels]
    return Table(("", *runs), rows)


def settings_table(settings: Mapping[str, Sequence[object]]) -> Table:
    """Settings that differ, which scores may depend on."""
    if not settings:
        return Table((), (), "Both runs have the same settings.")
    rows = []
    for key, values in settings.items():
        texts = ["" if value is None else str(value) for value in values]
        rows.append((key, *texts))
    return Table(("different setting", "run", "other"), rows)
