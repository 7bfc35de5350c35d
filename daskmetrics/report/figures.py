"""Which figures a run has: each a PNG with a title and a caption that says how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from daskmetrics.arms import Arm
from daskmetrics.report import facts, png
from daskmetrics.report.agreement import metric_against_score
from daskmetrics.report.maps import Marks, Quantity, heat_maps
from daskmetrics.report.plots import Step, search_path, training_loss
from daskmetrics.report.run import Run, cell_of

Metrics = Mapping[str, Mapping[Arm, float]]
DPI = 150
MOST_TASKS = 8  # that have a map of their own
_STYLE = {"font.family": "DejaVu Sans", "hatch.linewidth": 0.4, "hatch.color": "#d0d0d0", "axes.linewidth": 0.7}
_MAP = "Each map has the training steps of a model from left to right and its layers from below (0 is the embedding)."


@dataclass(frozen=True)
class Picture:
    """A figure as it is shown: name of its file, title, how to read it, and the PNG itself."""

    name: str
    title: str
    caption: str
    png: bytes


def pictures(run: Run) -> Iterator[Picture]:
    """All figures for which the run has data."""
    with rc_context(_STYLE):
        suites = facts.suites(run)
        if suites and facts.scores(run):
            yield _scores(run)
        if suites and (metrics := facts.metrics(run)):
            yield _metrics(run, metrics)
            if facts.mean_scores(run):
                yield _agreement(run, metrics)
        if suites and run.picks:
            yield _path(run)
        if losses := facts.losses(run):
            caption = "Mean loss on one batch that is the same for all checkpoints of a model."
            yield _picture("training", "Training loss", caption, training_loss(losses))


def _scores(run: Run) -> Picture:
    scores = facts.scores(run)
    count = len(run.tasks)
    looked = {arm: float(len(own)) for arm, own in scores.items()}
    rows = [
        Quantity("mean score, arms scored on every task", "mean score", facts.mean_scores(run), "cividis"),
        Quantity("where the search looked", "tasks scored", looked, "cividis", most=count),
    ]
    if count <= MOST_TASKS:
        rows += [
            Quantity(task, about["main_score"], {a: own[task] for a, own in scores.items() if task in own}, "cividis")
            for task, about in run.tasks.items()
        ]
    caption = (
        f"{_MAP} Hatched: not scored. An arm has a mean score only once all {count} tasks were scored for it, since "
        "means over different tasks could not be compared; the second row counts the tasks that were. "
        "Scores are raw; the search compares tasks by its own reward."
    )
    return _picture("scores", "Scores", caption, heat_maps(rows, facts.suites(run), _marks(run)))


def _metrics(run: Run, metrics: Metrics) -> Picture:
    rows = [Quantity(name, facts.units(run, name), values) for name, values in metrics.items()]
    caption = (
        f"{_MAP} All models of a row share its colours. Hatched: the metric is undefined there, or the "
        "checkpoint could not be measured."
    )
    return _picture("metrics", "Label-free metrics", caption, heat_maps(rows, facts.suites(run), _marks(run)))


def _agreement(run: Run, metrics: Metrics) -> Picture:
    figure = metric_against_score(
        metrics, {n: facts.units(run, n) for n in metrics}, facts.mean_scores(run), run.models
    )
    caption = (
        "Each point is an arm that was scored on every task. Spearman's ρ tells whether the metric ranks arms as the "
        "scores do: 1 alike, -1 in reverse, 0 not at all. The search chose these arms, promising ones above all, and "
        "layers of one checkpoint resemble each other: ρ describes the points shown, it is no test."
    )
    return _picture("agreement", "Metric against score", caption, figure)


def _path(run: Run) -> Picture:
    default = run.best().default_score if run.result and run.best().shared == tuple(run.best().scores) else None
    share = run.result["exhaustive"] / 100 if run.result else 1.0
    unit = "% of the exhaustive sweep (assumed)" if run.result else "assumed seconds"
    figure = search_path(_steps(run, share), facts.suites(run), default, unit)
    caption = (
        "Above: the greatest mean score among the arms scored on every task by then. Below: every decision of the "
        "search, at the arm it paid for; the layers of a checkpoint lie side by side, deeper ones higher. It begins "
        "with the baseline, follows its policy, and ends by confirming the leader on the tasks it lacks."
    )
    if run.picks[-1]["index"] >= len(run.picks):
        caption += " Decisions that an earlier search of this run had answered already are not drawn."
    return _picture("path", "The search's path", caption, figure)


def _steps(run: Run, unit: float) -> list[Step]:
    """Every decision in order, as if each were answered before the next was taken."""
    scores = facts.scores(run)
    known: dict[Arm, list[float]] = {}
    steps, spent, best = [], 0.0, None
    for pick in run.picks:
        cell = cell_of(pick)
        spent += pick["cost"] / unit
        if cell.task in scores.get(cell.arm, {}):
            own = known.setdefault(cell.arm, [])
            own.append(scores[cell.arm][cell.task])
            if len(own) == len(run.tasks):
                best = max(sum(own) / len(own), best if best is not None else float("-inf"))
        steps.append(Step(spent, cell.arm, pick["stage"], best))
    return steps


def _marks(run: Run) -> Marks:
    if run.result is None:
        return Marks()
    best = run.best()
    return Marks(best.arm, best.default)


def _picture(name: str, title: str, caption: str, figure: Figure) -> Picture:
    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(DPI)
    canvas.draw()
    return Picture(name, title, caption, png.encode(np.asarray(canvas.buffer_rgba())[..., :3], DPI))
