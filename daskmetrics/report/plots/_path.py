"""The path of a search: the arm of every decision, and the best mean score known then, by cost."""

from __future__ import annotations

from dataclasses import dataclass

from daskmetrics.core.names import Arm
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._recorded import RecordedRun, cell_of


@dataclass(frozen=True)
class DecisionPoint:
    """One decision of the search: the total cost so far, its arm, and the best mean score known then."""

    spent: float
    arm: Arm
    stage: str
    best: float | None


@dataclass(frozen=True)
class SearchPath:
    """All decisions, the mean score of the default arm if it is known, and the unit of the costs."""

    points: tuple[DecisionPoint, ...]
    default: float | None
    unit: str


def path_of(run: RecordedRun) -> SearchPath:
    """The path of the latest search."""
    share = run.result.exhaustive / 100 if run.result else 1.0
    unit = "% of the exhaustive sweep (assumed)" if run.result else "assumed seconds"
    return SearchPath(tuple(_points(run, share)), _default_score(run), unit)


def _points(run: RecordedRun, unit: float) -> list[DecisionPoint]:
    """Every decision in order, as if each had its result before the next one."""
    scores, weights = analysis.scores(run), run.weights
    total, known = sum(weights.values()), dict[Arm, dict[str, float]]()
    points, spent, best = [], 0.0, None
    for pick in run.picks:
        cell = cell_of(pick)
        spent += pick["cost"] / unit
        if cell.task in scores.get(cell.arm, {}):
            values = known.setdefault(cell.arm, {})
            values[cell.task] = scores[cell.arm][cell.task]
            if weights.keys() <= values.keys():
                mean = sum(values[task] * weight for task, weight in weights.items()) / total
                best = max(mean, best if best is not None else float("-inf"))
        points.append(DecisionPoint(spent, cell.arm, pick["stage"], best))
    return points


def _default_score(run: RecordedRun) -> float | None:
    """The mean score of the default arm, if it and the best arm were scored on every task of the objective."""
    if run.result is None:
        return None
    complete = all(run.weights.keys() <= each["scores"].keys() for each in (run.result.best, run.result.default))
    return float(run.result.default["mean"]["score"]) if complete else None
