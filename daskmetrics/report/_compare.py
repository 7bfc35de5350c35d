"""Runs side by side, two candidates, and a run beside published scores: as tables and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter

from daskmetrics.answer import analysis
from daskmetrics.answer.comparison import (
    Agreement,
    PublishedComparison,
    RunComparison,
    compare_best,
    different_settings,
    unlike_tasks,
)
from daskmetrics.answer.paired import ArmComparison
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration
from daskmetrics.report._format import apart, number, percent, scored, unpaired
from daskmetrics.report._run import Run
from daskmetrics.report._sections import ReportSection


def compare_text(run: Run, other: Run, compared: RunComparison) -> str:
    """Two runs for a terminal: their answers, costs, common scores and different settings."""
    runs = {"run": run, "other": other}
    shown = [ReportSection("", table=answers(runs))]
    if compared.best_arms:
        shown.append(ReportSection("", _mean(run, other, compared.best_arms), scores(runs)))
    shown.append(ReportSection("Scores of both", _agreement(compared.shared, compared.left_out)))
    differing = settings(runs)
    same = "Both runs have the same settings."
    shown.append(ReportSection("Settings", "" if differing.rows else same, differing))
    return "\n\n".join(section.as_text() for section in shown)


def compare_published_text(compared: PublishedComparison) -> str:
    """A run beside published scores of the same models, for a terminal."""
    agreeing = _agreement(compared.shared, compared.left_out)
    return ReportSection(f"Published: {compared.source}", agreeing).as_text()


def compare_arms_text(run: Run, other: Run, compared: ArmComparison) -> str:
    """Two candidates on every task, for a terminal; the second may be of another run."""
    rows = []
    for task, gap in compared.tasks.items():
        score = scored(run.recorded[compared.arm][task])
        other_score = scored(other.recorded[compared.other][task])
        rows.append((task, score, other_score, apart(gap, " *"), gap.relation))
    header = ("task", "first", "second", "difference", "")
    table = Table(header, tuple(rows), notes=unpaired(compared.tasks.values()))
    title = f"{compared.arm} and {compared.other}"
    return ReportSection(title, _mean(run, other, compared), table).as_text()


def _mean(run: Run, other: Run, compared: ArmComparison) -> str:
    """The difference of the mean scores, in the words of the verdict if one of the two is its best."""
    if compared.difference is None:
        return "No task of the objective was scored with both."
    relation = compared.difference.relation
    if run is other and run.result:
        overall, pair = run.verdict.overall, [compared.arm, compared.other]
        if overall.arm in pair:
            pair.remove(overall.arm)
            relation = overall.relation(pair[0], compared.difference)
    return f"{compared.arm} scores {apart(compared.difference)} more than {compared.other}, {relation}."


def _agreement(shared: Agreement, left_out: Sequence[str]) -> str:
    """How the scores of common cells differ, and what is left out."""
    text = "No score in common."
    if shared.cells:
        text = (
            f"{shared.cells:,} in common, higher by {number(shared.mean, sign=True)} on average, "
            f"at most by {number(shared.greatest, sign=True)} ({shared.at})."
        )
    if shared.rho is not None:
        text += f" Spearman's ρ is {shared.rho:+.3f}."
    if left_out:
        text += (
            f" Left out: {len(left_out):,} of other splits or subsets; for example {left_out[0]}."
        )
    return text


def answers(runs: Mapping[str, Run]) -> Table:
    """What runs have done and recommend, one column for each run."""
    columns = [_answer(run) for run in runs.values()]
    rows = [(name, *map(itemgetter(name), columns)) for name in columns[0]]
    return Table(("", *runs), tuple(rows))


def _answer(run: Run) -> dict[str, str]:
    seconds = analysis.spending(run).total
    column = {
        "state": "finished" if run.finished else "unfinished",
        "candidates": f"{run.start.arms:,}",
        "tasks": str(len(run.tasks)),
        "scores": f"{run.counts['score', 'ok']:,} of {run.cells_planned:,}",
        "worker time": duration(seconds),
        "cost": "no answer yet",
        "best": "no answer yet",
        "best, mean score": "",
        "default, mean score": "",
    }
    if run.result:
        answer = run.answer
        column["cost"] = f"{percent(answer.cost.share or 0.0)} of scoring everything"
        column["best"] = str(answer.best.arm)
        column["best, mean score"] = number(answer.best.score, answer.best.stderr)
        column["default, mean score"] = number(answer.default.score, answer.default.stderr)
    return column


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
