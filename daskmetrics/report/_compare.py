"""Runs side by side, and a run beside published scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

import numpy as np

from daskmetrics.core._events import succeeded
from daskmetrics.core._table import Table
from daskmetrics.core._text import duration
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Cell
from daskmetrics.execution._score_tables import KnownScore
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._analysis import FEWEST, rank_correlation
from daskmetrics.report._documents import status_document
from daskmetrics.report._format import WIDTH, apart, fact, number, percent, probability, scored, unpaired
from daskmetrics.report._paired import ArmComparison, compare_arms, comparison_document
from daskmetrics.report._run import Run
from daskmetrics.tasks import _mteb_results as results
from daskmetrics.tasks._mteb_subsets import Selection

NAMES = "run", "other"
Scores = Mapping[Cell, float]


def compare_text(one: Run, other: Run) -> str:
    """Two runs for a terminal: their answers, costs, common scores and different settings."""
    runs = dict(zip(NAMES, (one, other), strict=True))
    lines = [line for name, run in runs.items() for line in fact(name, str(run.folder.path))]
    lines += ["", answers(runs).as_text(WIDTH), ""]
    if one.result and other.result:
        header = ("task", *(f"arm of {name}" for name in NAMES), "difference")
        lines += [replace(scores(runs), header=header).as_text(WIDTH), ""]
        lines += [*fact("difference", _compared(one, other).sentence), ""]
    theirs, left_out = _alike(one, _known(other), NAMES[1])
    differing = settings(runs)
    lines += [*_agreement(cells(one), theirs, NAMES[1]), *_left_out(left_out), ""]
    lines.append(differing.as_text(WIDTH) if differing.rows else "Both runs have the same settings.")
    return "\n".join(lines)


def compare_document(one: Run, other: Run) -> dict[str, Any]:
    """Two runs for other programs; see docs/json.md."""
    theirs, left_out = _alike(one, _known(other), NAMES[1])
    compared = comparison_document(_compared(one, other)) if one.result and other.result else None
    return {
        "runs": dict(zip(NAMES, map(status_document, (one, other)), strict=True)),
        "best_arms": compared,
        "shared": agreement(cells(one), theirs),
        "left_out": left_out,
        "settings": different_settings(one, other),
    }


def published_document(run: Run, published: Mapping[Cell, KnownScore], source: str) -> dict[str, Any]:
    """A run beside published scores, for other programs; `DataError` if they share no cell."""
    theirs, left_out = _published(run, published, source)
    return {"published": {"source": source, "shared": agreement(cells(run), theirs), "left_out": left_out}}


def compare_published_text(run: Run, published: Mapping[Cell, KnownScore], source: str) -> str:
    """A run beside published scores of the same models, for a terminal; `DataError` if they share no cell."""
    theirs, left_out = _published(run, published, source)
    agreeing = _agreement(cells(run), theirs, "published")
    return "\n".join(fact("published", source) + agreeing + _left_out(left_out))


def _published(run: Run, published: Mapping[Cell, KnownScore], source: str) -> tuple[dict[Cell, float], list[str]]:
    """The published scores by the cells of a run, and what is left out; `DataError` if no cell remains."""
    mine = cells(run)
    theirs, left_out = _alike(run, published, "published")
    if not mine.keys() & theirs.keys():
        if left_out:
            lines = " ".join(_left_out(left_out))
            raise DataError(f"'{source}' has no score like those of the run. {lines}")
        raise DataError(
            f"'{source}' and the run in '{run.folder.path}' share no cell. The table has the models "
            f"{', '.join(sorted({cell.arm.model for cell in published}))}; the run has {', '.join(run.models)}, with "
            f"the tasks {', '.join(run.tasks)}."
        )
    return theirs, left_out


def cells(run: Run) -> dict[Cell, float]:
    """Raw score of every scored cell of a run."""
    return {Cell(arm, task): score for arm, scores in analysis.scores(run).items() for task, score in scores.items()}


def answers(runs: Mapping[str, Run]) -> Table:
    """What runs have done and recommend, one column for each run."""
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
    return Table(("", *runs), tuple((name, *map(text, runs.values())) for name, text in describe.items()))


def scores(runs: Mapping[str, Run]) -> Table:
    """The scores of each run's recommended arm by task, and how much each exceeds that of the first run.

    Tasks of mteb over other subsets or splits are not subtracted.
    """
    best = {name: run.best().scores if run.result else {} for name, run in runs.items()}
    (first, one), *others = ((name, run) for name, run in runs.items() if run.result)
    gains = [(name, _unlike(one, other), _compared(one, other).tasks) for name, other in others]
    rows = []
    for task in dict.fromkeys(task for run in runs.values() for task in run.tasks):
        known = {name for name, own in best.items() if task in own}
        each = (
            "other subsets" if task in unlike and {first, name} <= known else apart(gain.get(task), " *")
            for name, unlike, gain in gains
        )
        rows.append((task, *(scored(own.get(task)) for own in best.values()), *each))
    notes = unpaired(gap for *_, gain in gains for gap in gain.values())
    return Table(("task", *runs, *(f"{name} − {first}" for name, _ in others)), tuple(rows), notes=notes)


def _compared(one: Run, other: Run) -> ArmComparison:
    """The recommended arm of the other run beside that of the first."""
    return compare_arms(other, other.best().arm, one.best().arm, one, _unlike(one, other))


def _unlike(one: Run, other: Run) -> list[str]:
    """The tasks whose scores are over other subsets or splits."""
    parts, others = _selections(one), _selections(other)
    return [task for task in parts if task in others and parts[task] != others[task]]


def _answered(text: Callable[[Run], str]) -> Callable[[Run], str]:
    return lambda run: text(run) if run.result else "no answer yet"


@dataclass(frozen=True)
class Agreement:
    """How the scores of the cells that two sources share differ: those of the second minus those of the first."""

    cells: int
    mean: float | None = None
    greatest: float | None = None
    at: Cell | None = None  # where the difference is the greatest
    rho: float | None = None  # Spearman's; None for few cells


def agreement(one: Scores, other: Scores) -> Agreement:
    """Compare the scores of common cells."""
    shared = sorted(one.keys() & other.keys())
    if not shared:
        return Agreement(0)
    a, b = (np.array([scores[cell] for cell in shared]) for scores in (one, other))
    worst = int(np.abs(b - a).argmax())
    rho = rank_correlation(a, b) if len(shared) >= FEWEST else None
    return Agreement(len(shared), fsum(b - a) / len(shared), float(b[worst] - a[worst]), shared[worst], rho)


def _agreement(one: Scores, other: Scores, name: str) -> list[str]:
    """How the scores of common cells differ."""
    found = agreement(one, other)
    if not found.cells:
        return fact("shared cells", "none")
    text = f"{found.cells:,}; {name} is {number(found.mean, sign=True)} higher on average; the greatest "
    lines = fact("shared cells", f"{text}difference is {number(found.greatest, sign=True)}, at {found.at}")
    return lines + (fact("ranks", f"Spearman's rho over these cells {found.rho:+.3f}") if found.rho is not None else [])


def settings(runs: Mapping[str, Run]) -> Table:
    """Settings that differ, since scores are comparable only if these do not matter."""
    rows = [
        (key, *("" if value is None else str(value) for value in values))
        for key, values in different_settings(*runs.values()).items()
    ]
    return Table(("different setting", *runs), tuple(rows))


def different_settings(*runs: Run) -> dict[str, tuple[Any, ...]]:
    """The settings of runs that differ, by key; None where a run has none."""
    flat = [_flat(run.config) for run in runs]
    found = {key: tuple(each.get(key) for each in flat) for key in dict.fromkeys(key for each in flat for key in each)}
    return {
        key: values
        for key, values in found.items()
        if any(value != values[0] for value in values) and not key.startswith("name")
    }


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
    found = ((record.name, record.value.get("detail") or {}) for record in succeeded(run.records, "score"))
    return {Cell.parse(name): detail for name, detail in found if detail.get("scores")}


def _selections(run: Run) -> dict[str, Selection]:
    """The splits and subsets of each scored task of mteb."""
    return {cell.task: results.selection_of(detail) for cell, detail in _details(run).items()}


def _alike(run: Run, others: Mapping[Cell, KnownScore], name: str) -> tuple[dict[Cell, float], list[str]]:
    """Other scores over the same splits and subsets by the cells of a run, and why others are left out.

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
    return alike, left_out


def _left_out(reasons: list[str]) -> list[str]:
    if not reasons:
        return []
    return fact("left out", f"{len(reasons):,} of other splits or subsets; for example {reasons[0]}")


def _plain(cell: Cell) -> tuple[str, str, int, str, str]:
    """A cell without what differs between sources: case and organisation of the model, ``mteb:`` before the task."""
    arm = cell.arm
    model = arm.model.rpartition("/")[2].lower()
    return model, arm.revision, arm.layer, arm.readout, cell.task.removeprefix("mteb:")
