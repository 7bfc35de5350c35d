"""Runs side by side, two candidates, and a run beside published scores: as tables and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter

from daskmetrics.answer import analysis
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
from daskmetrics.core.text import duration
from daskmetrics.report._format import WIDTH, apart, number, percent, scored, unpaired
from daskmetrics.report._run import Run, state_word


def compare_text(run: Run, other: Run, compared: RunComparison) -> str:
    """Two runs for a terminal: their answers, costs, common scores and different settings."""
    runs = {"run": run, "other": other}
    shown = [answers(runs)]
    if compared.best_arms:
        shown.append(replace(scores(runs), title=_mean(run, other, compared.best_arms)))
    shown.append(_agreement("Scores of both", compared.shared, compared.left_out))
    differing = settings(runs)
    if differing.rows:
        shown.append(differing)
    texts = [table.as_text(WIDTH) for table in shown]
    if not differing.rows:
        texts.append("Both runs have the same settings.")
    return "\n\n".join(texts)


def compare_published_text(compared: PublishedComparison) -> str:
    """A run beside published scores of the same models, for a terminal."""
    title = f"Published: {compared.source}"
    return _agreement(title, compared.shared, compared.left_out).as_text(WIDTH)


def compare_arms_text(run: Run, other: Run, compared: ArmComparison) -> str:
    """Two candidates on every task, for a terminal; the second may be of another run."""
    rows = []
    for task, gap in compared.tasks.items():
        score = scored(run.recorded[compared.arm][task])
        other_score = scored(other.recorded[compared.other][task])
        rows.append((task, score, other_score, apart(gap, " *"), gap.relation))
    header = ("task", str(compared.arm), str(compared.other), "difference", "")
    title = _mean(run, other, compared)
    notes = unpaired(compared.tasks.values())
    return Table(header, tuple(rows), title, notes).as_text(WIDTH)


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
    columns = [_answer(run) for run in runs.values()]
    rows = [(name, *map(itemgetter(name), columns)) for name in columns[0]]
    return Table(("", *runs), tuple(rows))


def _answer(run: Run) -> dict[str, str]:
    seconds = analysis.spending(run).total
    column = {
        "state": state_word(run),
        "candidates": f"{run.start.arms:,}",
        "tasks": str(len(run.tasks)),
        "scored": f"{run.counts['score', 'ok']:,} of {run.cells_planned:,}",
        "worker time": duration(seconds),
        "cost": "no answer yet",
        "best": "no answer yet",
        "its score": "",
        "without a search": "",
    }
    if run.result:
        answer = run.answer
        column["cost"] = f"{percent(answer.cost.share or 0.0)} of the time of all scores"
        column["best"] = str(answer.best.arm)
        column["its score"] = number(answer.best.score, answer.best.stderr)
        column["without a search"] = number(answer.default.score, answer.default.stderr)
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
