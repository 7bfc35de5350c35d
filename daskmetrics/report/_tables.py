"""The tables of the page: the leaderboard with errors, the metrics of every arm, and which metrics predict scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from daskmetrics.core._table import Table
from daskmetrics.core._text import plural
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._format import over, signed
from daskmetrics.report._leaderboard import Leaderboard, RankedArm
from daskmetrics.report._run import Run
from daskmetrics.report.plots._fields import EXPECTED, Field

MOST_ROWS, MOST_TASKS = 200, 12  # of the leaderboard: the page of thousands of arms stays small
MOST_ARMS = 64  # that have a row of metrics

Number = tuple[float | None, float | None]  # a value and its error


@dataclass(frozen=True)
class Board:
    """Arms with the numbers of their row below a header, and what the columns say."""

    header: tuple[str, ...] = ()
    rows: tuple[tuple[RankedArm, tuple[Number, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def leaderboard(run: Run, fields: Sequence[Field]) -> Board:
    """The arms of a run, best first, with their mean, what the search expects of them, and their scores by task."""
    if not run.recorded:
        return Board()
    board = run.leaderboard()
    tasks = tuple(board.weights)[:MOST_TASKS] if len(board.weights) > 1 else ()
    expected = next((each for each in fields if each.name == EXPECTED), None)
    rows = []
    for each in board.arms[:MOST_ROWS]:
        believed = [(expected.values.get(each.arm), expected.errors.get(each.arm))] if expected else []
        scores = [each.scores.get(task, (None, None)) for task in tasks]
        rows.append((each, ((each.mean, each.stderr), *believed, *scores)))
    header = ("rank", "arm", "mean score", *(["expected"] if expected else []), *tasks)
    return Board(header, tuple(rows), tuple(_notes(run, board, expected, len(tasks))))


def _notes(run: Run, board: Leaderboard, expected: Field | None, tasks: int) -> list[str]:
    many = len(run.tasks) > 1
    what = over([weight for weight in board.weights.values() if weight]) if many else next(iter(run.tasks))
    text = f"Scores ± standard error; the mean score is the {what}." if many else f"Scores ± standard error on {what}."
    text += " Bold: within the error of the best (95 %)."
    if any(each.rank is None for each in board.arms):
        text += " Arms without a rank lack some of the tasks: means over different tasks are not comparable."
    notes = [text]
    if expected:
        units = f", {expected.units}" if expected.units else ""
        notes.append(
            f"Expected: posterior mean ± standard deviation of the search{units}, which also uses the scores of "
            "similar arms and tasks."
        )
    left = [(len(board.arms) - MOST_ROWS, "arm"), (len(run.tasks) - tasks if tasks else 0, "task")]
    if hidden := [plural(n, name) for n, name in left if n > 0]:
        command = f"daskmetrics report {run.folder.path} --format csv"
        notes.append(f"Not shown: {' and '.join(hidden)}; `{command}` has all.")
    return notes


def metrics_table(run: Run) -> Table:
    """The metrics of every arm of a small run; without rows if there are too many arms."""
    metrics = analysis.metrics(run)
    arms = [arm for suite in analysis.suites(run) for arm in replace(suite, readouts=("",)).arms()]
    if not metrics or len(arms) > MOST_ARMS:
        return Table((), ())
    rows = [(str(arm), *(f"{of[arm]:.4g}" if arm in of else "–" for of in metrics.values())) for arm in arms]
    return Table(("arm", *metrics), tuple(rows))


def predictors(run: Run) -> Table:
    """How well each metric ranks arms as the scores do, the closest first."""
    table = analysis.correlations(run) if run.recorded else {}
    groups = tuple(next(iter(table.values()), {}))
    rows = [(name, *(_cell(*table[name][group]) for group in groups)) for name in analysis.closest_first(table)]
    return Table(("metric", *groups), tuple(rows), notes=(analysis.ABOUT_RHO,))


def _cell(rho: float, count: int) -> str:
    return "too few" if math.isnan(rho) else f"{signed(rho)} ({count:,})"
