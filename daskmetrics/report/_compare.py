"""Runs side by side, two candidates, and a run beside published scores: as tables and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from daskmetrics.answer.comparison import (
    Agreement,
    ArmComparison,
    PublishedComparison,
    RunComparison,
    compare_best,
    different_settings,
    unlike_tasks,
)
from daskmetrics.core.table import Table
from daskmetrics.report._format import apart, number, scored, unpaired
from daskmetrics.report._run import Run, status_rows
from daskmetrics.report._sections import answer_rows


def compare_tables(
    run: Run, other: Run, compared: RunComparison | ArmComparison | PublishedComparison
) -> list[Table]:
    """Two runs: their answers, costs, common scores and different settings; two candidates on every
    task, of which the second may be of another run; or a run beside published scores.
    """
    match compared:
        case ArmComparison():
            return [_arms(run, other, compared)]
        case PublishedComparison(source, shared, left_out):
            return [_agreement(f"Published: {source}", shared, left_out)]
    runs = {"run": run, "other": other}
    shown = [answers(runs)]
    if compared.best_arms:
        shown.append(replace(scores(runs), title=_mean(run, other, compared.best_arms)))
    shown.append(_agreement("Scores of both", compared.shared, compared.left_out))
    differing = settings(runs)
    if not differing.rows:
        differing = Table((), (), "Both runs have the same settings.")
    return [*shown, differing]


def _arms(run: Run, other: Run, compared: ArmComparison) -> Table:
    rows = []
    for task, gap in compared.tasks.items():
        score = scored(run.recorded[compared.arm][task])
        other_score = scored(other.recorded[compared.other][task])
        rows.append((task, score, other_score, apart(gap, " *"), gap.relation))
    header = ("task", str(compared.arm), str(compared.other), "difference", "")
    notes = unpaired(compared.tasks.values())
    return Table(header, tuple(rows), _mean(run, other, compared), notes)


def _mean(run: Run, other: Run, compared: ArmComparison) -> str:
    """The difference of the mean scores, in the words of the verdict if one of the two is its
    best.
    """
    if compared.difference is None:
        return "No task of the objective was scored with both."
    relation = compared.difference.relation
    if run is other and run.result:
        overall, pair = run.verdict.overall, [compared.arm, compared.other]
        if overall.arm in pair:
            pair.remove(overall.arm)
            relation = overall.relation(pair[0], compared.difference)
    return (
        f"{compared.arm} scores {apart(compared.difference)} more than {compared.other},"
        f" {relation}."
    )


def _agreement(title: str, shared: Agreement, left_out: Sequence[str]) -> Table:
    """How common scores differ, and what is left out."""
    rows = [("in common", f"{shared.cells:,}")]
    if shared.cells:
        greatest = f"{number(shared.greatest, sign=True)} ({shared.at})"
        rows += [("mean difference", number(shared.mean, sign=True)), ("greatest", greatest)]
    if shared.rho is not None:
        rows.append(("Spearman's ρ", f"{shared.rho:+.3f}"))
    if left_out:
        reason = f"{len(left_out):,} of other splits or subsets; for example {left_out[0]}"
        rows.append(("left out", reason))
    return Table((), tuple(rows), title)


def answers(runs: Mapping[str, Run]) -> Table:
    """What runs have done and recommend, one column for each run."""
    columns = []
    for run in runs.values():
        column = {"candidates": f"{run.start.arms:,}", **dict(status_rows(run))}
        column["gain"] = "no answer yet"
        if run.result:
            column["gain"] = answer_rows(run.answer)["Gain"]
        columns.append(column)
    labels = dict.fromkeys(chain.from_iterable(columns))
    rows = [(label, *(column.get(label, "") for column in columns)) for label in labels]
    return Table(("", *runs), tuple(rows))


def scores(runs: Mapping[str, Run]) -> Table:
    """The scores of each run's recommended arm by task, and how much each exceeds that of the first
    finished run.

    Tasks of mteb over other subsets or splits are not subtracted.
    """
    best = {name: run.answer.best.scores for name, run in runs.items() if run.result}
    base, *others = best
    gaps = {name: compare_best(runs[base], runs[name]).tasks for name in others}
    unlike = {name: unlike_tasks(runs[base], runs[name]) for name in others}
    rows = []
    for task in dict.fromkeys(chain.from_iterable(run.tasks for run in runs.values())):
        row = [task, *(scored(best.get(name, {}).get(task)) for name in runs)]
        for name in others:
            gap = apart(gaps[name].get(task), " *")
            if task in best[base] and task in best[name] and task in unlike[name]:
                gap = "other subsets"
            row.append(gap)
        rows.append(tuple(row))
    differences = chain.from_iterable(of_run.values() for of_run in gaps.values())
    header = ("task", *runs, *(f"{name} − {base}" for name in others))
    return Table(header, tuple(rows), notes=unpaired(differences))


def settings(runs: Mapping[str, Run]) -> Table:
    """Settings that differ, since scores are comparable only if these do not matter."""
    rows = []
    for key, values in different_settings(*runs.values()).items():
        rows.append((key, *("" if value is None else str(value) for value in values)))
    return Table(("different setting", *runs), tuple(rows))
