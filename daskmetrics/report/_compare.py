"""Two runs side by side, and a run beside scores that others have published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import fsum
from typing import Any

import numpy as np

from daskmetrics.core._text import duration
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Cell
from daskmetrics.report import _analysis as analysis
from daskmetrics.report import _terminal as terminal
from daskmetrics.report._analysis import rank_correlation
from daskmetrics.report._run import Run
from daskmetrics.report._terminal import fact, number, table

NAMES = "run", "other"
FEWEST = 5  # cells below which a rank correlation says nothing
Scores = Mapping[Cell, float]


def compare_text(one: Run, other: Run) -> str:
    """Two runs for a terminal: their answers, what these cost, scores that both know, and how they were set up.

    Parameters
    ----------
    one, other : Run
    """
    where = [line for name, run in zip(NAMES, (one, other), strict=True) for line in fact(name, str(run.folder.path))]
    lines = [*where, "", *table([("", *NAMES), *_answers(one, other)]), "", *_tasks(one, other)]
    lines += [*_agreement(cells(one), cells(other), NAMES[1]), *_settings(one, other)]
    return "\n".join(lines)


def compare_published_text(run: Run, published: Scores, source: str) -> str:
    """A run beside published scores of the same models, for a terminal.

    Raises
    ------
    DataError
        If they share no cell.
    """
    own, theirs = _plain(cells(run)), _plain(published)
    if not own.keys() & theirs.keys():
        raise DataError(
            f"'{source}' and the run in '{run.folder.path}' share no cell. The table has the models "
            f"{', '.join(sorted({cell.arm.model for cell in theirs}))}; the run has {', '.join(run.models)}, with the "
            f"tasks {', '.join(run.tasks)}."
        )
    return "\n".join(fact("published", source) + _agreement(own, theirs, "published"))


def cells(run: Run) -> dict[Cell, float]:
    """Raw score of every cell that a run has scored."""
    return {Cell(arm, task): score for arm, own in analysis.scores(run).items() for task, score in own.items()}


def _answers(one: Run, other: Run) -> list[tuple[str, str, str]]:
    said: dict[str, Callable[[Run], str]] = {
        "state": lambda run: "finished" if run.finished else "unfinished",
        "arms": lambda run: f"{run.start['arms']:,}",
        "tasks": lambda run: str(len(run.tasks)),
        "cells scored": lambda run: f"{run.counts['score', 'ok']:,} of {analysis.cells_planned(run):,}",
        "cost": lambda run: _of_result(
            run, lambda r: f"{terminal.percent(r['spent'] / r['exhaustive'])} of exhaustive"
        ),
        "worker time": lambda run: duration(analysis.spending(run).total),
        "best arm": lambda run: _of_result(run, lambda r: str(Arm(**r["best"]["arm"]))),
        "mean score": lambda run: _of_result(run, lambda _: number(run.best().score, run.best().stderr)),
        "default arm": lambda run: _of_result(
            run, lambda _: number(run.best().default_score, run.best().default_stderr)
        ),
        "that none is better": lambda run: _of_result(run, lambda r: terminal.probability(r["probability_best"])),
    }
    return [(name, tell(one), tell(other)) for name, tell in said.items()]


def _of_result(run: Run, tell: Any) -> str:
    return str(tell(run.result)) if run.result else "no answer yet"


def _tasks(one: Run, other: Run) -> list[str]:
    """What each run's best arm scored, and the difference, task by task."""
    if not (one.result and other.result):
        return []
    rows = [("task", *(f"best of {name}" for name in NAMES), "difference")]
    for task in dict.fromkeys([*one.tasks, *other.tasks]):
        first, second = (run.best().scores.get(task) for run in (one, other))
        both = [number(score["score"], score["stderr"]) if score else "not measured" for score in (first, second)]
        gain = number(second["score"] - first["score"], sign=True) if first and second else ""
        rows.append((task, both[0], both[1], gain))
    return [*table(rows), ""]


def _agreement(one: Scores, other: Scores, name: str) -> list[str]:
    """How the scores of cells that both know differ."""
    shared = sorted(one.keys() & other.keys())
    if not shared:
        return fact("shared cells", "none")
    a, b = (np.array([scores[cell] for cell in shared]) for scores in (one, other))
    worst = int(np.abs(b - a).argmax())
    text = f"{len(shared):,}; {name} is {number(fsum(b - a) / len(shared), sign=True)} higher on average, "
    text += f"and differs most, by {number(float(b[worst] - a[worst]), sign=True)}, at {shared[worst]}"
    lines = fact("shared cells", text)
    if len(shared) >= FEWEST:
        lines += fact("ranks", f"Spearman's rho over these cells {rank_correlation(a, b):+.3f}")
    return lines


def _settings(one: Run, other: Run) -> list[str]:
    """Settings in which the runs differ; without them scores could not be compared."""
    first, second = (_flat(run.config) for run in (one, other))
    rows = [
        (key, str(first.get(key, "")), str(second.get(key, "")))
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key) and not key.startswith("name")
    ]
    return ["", *table([("set otherwise", *NAMES), *rows])] if rows else ["", "Both are set up alike."]


def _flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


def _plain(scores: Scores) -> dict[Cell, float]:
    """Scores by cells whose models differ neither in case nor in the organisation before their name."""
    return {
        Cell(Arm(cell.arm.model.rpartition("/")[2].lower(), cell.arm.revision, cell.arm.layer), cell.task): score
        for cell, score in scores.items()
    }
