"""Two runs side by side, and a run beside published scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import fsum
from typing import Any

import numpy as np

from daskmetrics.core._table import Table
from daskmetrics.core._text import duration
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Cell
from daskmetrics.execution._score_tables import KnownScore
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._analysis import FEWEST, rank_correlation
from daskmetrics.report._format import UNPAIRED, WIDTH, apart, fact, number, percent, probability
from daskmetrics.report._paired import compare_arms
from daskmetrics.report._run import Run
from daskmetrics.tasks import _mteb_results as results
from daskmetrics.tasks._mteb_subsets import Selection

NAMES = "run", "other"
Scores = Mapping[Cell, float]


def compare_text(one: Run, other: Run) -> str:
    """Two runs for a terminal: their answers, costs, common scores and different settings."""
    lines = [line for name, run in zip(NAMES, (one, other), strict=True) for line in fact(name, str(run.folder.path))]
    lines += ["", _answers(one, other), "", *_tasks(one, other)]
    theirs, left_out = _alike(one, _known(other), NAMES[1])
    lines += [*_agreement(cells(one), theirs, NAMES[1]), *left_out, "", _settings(one, other)]
    return "\n".join(lines)


def compare_published_text(run: Run, published: Mapping[Cell, KnownScore], source: str) -> str:
    """A run beside published scores of the same models, for a terminal; `DataError` if they share no cell."""
    mine = cells(run)
    theirs, left_out = _alike(run, published, "published")
    if not mine.keys() & theirs.keys():
        if left_out:
            raise DataError(f"'{source}' has no score like those of the run. " + " ".join(left_out))
        raise DataError(
            f"'{source}' and the run in '{run.folder.path}' share no cell. The table has the models "
            f"{', '.join(sorted({cell.arm.model for cell in published}))}; the run has {', '.join(run.models)}, with "
            f"the tasks {', '.join(run.tasks)}."
        )
    return "\n".join(fact("published", source) + _agreement(mine, theirs, "published") + left_out)


def cells(run: Run) -> dict[Cell, float]:
    """Raw score of every scored cell of a run."""
    return {Cell(arm, task): score for arm, scores in analysis.scores(run).items() for task, score in scores.items()}


def _answers(one: Run, other: Run) -> str:
    describe: dict[str, Callable[[Run], str]] = {
        "state": lambda run: "finished" if run.finished else "unfinished",
        "arms": lambda run: f"{run.start.arms:,}",
        "tasks": lambda run: str(len(run.tasks)),
        "cells scored": lambda run: f"{run.counts['score', 'ok']:,} of {run.cells_planned:,}",
        "cost": _answered(lambda run: f"{percent(run.best().share)} of the exhaustive sweep's"),
        "worker time": lambda run: duration(analysis.spending(run).total),
        "recommended arm": _answered(lambda run: str(run.best().arm)),
        "mean score": _answered(lambda run: number(run.best().score, run.best().stderr)),
        "default arm": _answered(lambda run: number(run.best().default_score, run.best().default_stderr)),
        "probability of being best": _answered(lambda run: probability(run.best().probability)),
    }
    return Table(("", *NAMES), tuple((name, text(one), text(other)) for name, text in describe.items())).as_text(WIDTH)


def _answered(text: Callable[[Run], str]) -> Callable[[Run], str]:
    return lambda run: text(run) if run.result else "no answer yet"


def _tasks(one: Run, other: Run) -> list[str]:
    """The scores of each run's recommended arm and their difference, task by task."""
    if not (one.result and other.result):
        return []
    parts, others = _selections(one), _selections(other)
    unlike = [task for task in parts if task in others and parts[task] != others[task]]
    compared, rows = compare_arms(other, other.best().arm, one.best().arm, one, unlike), []
    for task in dict.fromkeys([*one.tasks, *other.tasks]):
        first, second = (run.best().scores.get(task) for run in (one, other))
        both = [number(score["score"], score["stderr"]) if score else "not measured" for score in (first, second)]
        gain = "other subsets" if task in unlike and first and second else apart(compared.tasks.get(task), " *")
        rows.append((task, *both, gain))
    notes = () if all(each.paired for each in compared.tasks.values()) else (UNPAIRED,)
    header = ("task", *(f"arm of {name}" for name in NAMES), "difference")
    return [Table(header, tuple(rows), notes=notes).as_text(WIDTH), "", *fact("difference", compared.sentence), ""]


def _agreement(one: Scores, other: Scores, name: str) -> list[str]:
    """How the scores of common cells differ."""
    shared = sorted(one.keys() & other.keys())
    if not shared:
        return fact("shared cells", "none")
    a, b = (np.array([scores[cell] for cell in shared]) for scores in (one, other))
    worst = int(np.abs(b - a).argmax())
    text = f"{len(shared):,}; {name} is {number(fsum(b - a) / len(shared), sign=True)} higher on average; the greatest "
    lines = fact(
        "shared cells", f"{text}difference is {number(float(b[worst] - a[worst]), sign=True)}, at {shared[worst]}"
    )
    if len(shared) >= FEWEST:
        lines += fact("ranks", f"Spearman's rho over these cells {rank_correlation(a, b):+.3f}")
    return lines


def _settings(one: Run, other: Run) -> str:
    """Settings that differ, since scores are comparable only if these do not matter."""
    first, second = (_flat(run.config) for run in (one, other))
    rows = [
        (key, str(first.get(key, "")), str(second.get(key, "")))
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key) and not key.startswith("name")
    ]
    if not rows:
        return "Both runs have the same settings."
    return Table(("different setting", *NAMES), tuple(rows)).as_text(WIDTH)


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _known(run: Run) -> dict[Cell, KnownScore]:
    """The scores of a run, those of mteb with the scores of their splits and subsets."""
    details = _details(run)
    return {cell: KnownScore(score, details.get(cell)) for cell, score in cells(run).items()}


def _details(run: Run) -> dict[Cell, Mapping[str, Any]]:
    """What mteb returned for each cell of a task of mteb."""
    found = (
        (record.name, record.value.get("detail") or {})
        for record in run.records
        if record.kind == "score" and record.ok
    )
    return {Cell.parse(name): detail for name, detail in found if detail.get("scores")}


def _selections(run: Run) -> dict[str, Selection]:
    """The splits and subsets of each scored task of mteb."""
    return {cell.task: results.selection_of(detail) for cell, detail in _details(run).items()}


def _alike(run: Run, others: Mapping[Cell, KnownScore], name: str) -> tuple[dict[Cell, float], list[str]]:
    """Other scores over the same splits and subsets by the cells of a run, and lines about those that are left out.

    Names of models are compared without upper case and organisation, those of tasks of mteb without ``mteb:``.
    """
    details, by_name = _details(run), {_plain(cell): score for cell, score in others.items()}
    alike: dict[Cell, float] = {}
    left_out: list[str] = []
    for cell in cells(run):
        detail = details.get(cell)
        other = by_name.get(_plain(cell))
        if other is None and detail and (said := by_name.get(_plain(Cell(cell.arm, detail["task_name"])))):
            other = said if said.says_what else None  # a variant of the task, in a table that says which
        if other is None or (other.content and not detail):
            continue
        try:
            alike[cell] = other.over(detail) if detail else other.score
        except DataError as error:
            left_out.append(f"{cell}: the score of {name} {error}")
    lines = (
        fact("left out", f"{len(left_out):,} of other splits or subsets; for example {left_out[0]}") if left_out else []
    )
    return alike, lines


def _plain(cell: Cell) -> tuple[str, str, int, str]:
    """A cell without what differs between sources: case and organisation of the model, ``mteb:`` before the task."""
    arm = cell.arm
    return arm.model.rpartition("/")[2].lower(), arm.revision, arm.layer, cell.task.removeprefix("mteb:")
