"""Which figures a run has, with the captions that say how to read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from matplotlib.figure import Figure

from daskmetrics.core.names import Arm
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._run import Run, cell_of
from daskmetrics.report.plots._correlations import correlation_table, metric_against_score
from daskmetrics.report.plots._heatmaps import Marks, Quantity, heat_maps
from daskmetrics.report.plots._lines import DecisionPoint, layer_curves, search_path, training_loss
from daskmetrics.report.plots._style import rendered

MOST_TASKS = 8  # that have a map of their own
_MAP = "Each map shows the training steps of a model from left to right and its layers from below (0 is the embedding)."


@dataclass(frozen=True)
class Picture:
    """A figure with the name of its file, a title and a caption that says how to read it."""

    name: str
    title: str
    caption: str
    figure: Figure

    @cached_property
    def png(self) -> bytes:
        """The figure as a PNG file."""
        return rendered(self.figure, "png")

    @property
    def svg(self) -> bytes:
        """The figure as an SVG file."""
        return rendered(self.figure, "svg", self.name)


def pictures(run: Run) -> Iterator[Picture]:
    """All figures for which the run has data."""
    suites, scored = analysis.suites(run), bool(analysis.scores(run))
    if suites and scored:
        yield _scores(run)
    if suites and (metrics := analysis.metrics(run)):
        yield _metrics(run, metrics)
        yield _layers(run, metrics)
        if scored:
            yield _predictors(run)
            yield _agreement(run, metrics)
    if suites and run.picks:
        yield _path(run)
    if losses := analysis.losses(run):
        caption = "Mean loss on one batch that is the same for all checkpoints of a model."
        yield Picture("training", "Training loss", caption, training_loss(losses))


def _scores(run: Run) -> Picture:
    scores, errors = analysis.scores(run), analysis.errors(run)
    count = len(run.tasks)
    paid = {arm: float(len(by_task)) for arm, by_task in scores.items()}
    rows = [
        Quantity("mean score, arms scored on every task", "mean score", analysis.mean_scores(run), "cividis"),
        Quantity("number of tasks scored", "tasks scored", paid, "cividis", most=count),
    ]
    for task, about in run.tasks.items() if count <= MOST_TASKS else ():
        values = {arm: by_task[task] for arm, by_task in scores.items() if task in by_task}
        rows.append(Quantity(_titled(task, errors), about["main_score"], values, "cividis"))
    caption = (
        f"{_MAP} Hatched: not scored. An arm has a mean score only if it was scored on all {count} tasks, because "
        "means over different tasks are not comparable; the second row counts the tasks on which it was scored. "
        "Scores are raw; the search compares tasks by its reward."
    )
    return Picture("scores", "Scores", caption, heat_maps(rows, analysis.suites(run), _marks(run)))


def _titled(name: str, errors: Mapping[str, float]) -> str:
    """A name with the median standard error of its values."""
    return f"{name} (standard error {errors[name]:.2g})" if name in errors else name


def _metrics(run: Run, metrics: Mapping[str, analysis.Values]) -> Picture:
    errors = analysis.errors(run)
    rows = [Quantity(_titled(name, errors), analysis.units(run, name), values) for name, values in metrics.items()]
    caption = (
        f"{_MAP} All models of a row share its colours. Hatched: the metric is undefined, or the measurement of the "
        "checkpoint failed."
    )
    return Picture("metrics", "Label-free metrics", caption, heat_maps(rows, analysis.suites(run), _marks(run)))


def _layers(run: Run, metrics: Mapping[str, analysis.Values]) -> Picture:
    means = analysis.mean_scores(run)
    rows = [Quantity("mean score", "mean score", means)] if means else []
    rows += [Quantity(name, analysis.units(run, name), values) for name, values in metrics.items()]
    caption = "Each quantity by layer. A line is a checkpoint; later checkpoints are lighter."
    return Picture("layers", "Along the layers", caption, layer_curves(rows, analysis.suites(run)))


def _predictors(run: Run) -> Picture:
    caption = (
        "Spearman's ρ between metric and score over the arms scored on a task, averaged over the tasks of a kind, with "
        "the number of cells in brackets. 1: the metric ranks arms as the scores do; -1: in reverse order; 0: "
        "unrelated. The search prefers promising arms, and neighbouring layers are similar: ρ describes these cells "
        "and is not a statistical test."
    )
    figure = correlation_table(analysis.correlations(run))
    return Picture("predictors", "Which metrics predict quality here", caption, figure)


def _agreement(run: Run, metrics: Mapping[str, analysis.Values]) -> Picture:
    units = {name: analysis.units(run, name) for name in metrics}
    figure = metric_against_score(metrics, units, analysis.standard_scores(run), run.models)
    caption = (
        "Each point is an arm with at least one score: the mean of its scores, each in standard deviations of the "
        "scores of its task. Arms were scored on different tasks, which the search chose: compare the shapes rather "
        "than the exact values."
    )
    return Picture("agreement", "Metric against score", caption, figure)


def _path(run: Run) -> Picture:
    default = run.best().default_score if run.result and run.best().shared == tuple(run.weights) else None
    share = run.result.exhaustive / 100 if run.result else 1.0
    unit = "% of the exhaustive sweep (assumed)" if run.result else "assumed seconds"
    figure = search_path(_points(run, share), analysis.suites(run), default, unit)
    caption = (
        "Above: the greatest mean score among the arms scored on every task so far. Below: every decision of the "
        "search at the arm that it paid for; within a checkpoint, deeper layers are higher. The search follows its "
        "policy (with the reward zscore after scoring the baseline), and ends by scoring the leader on the remaining "
        "tasks."
    )
    if run.picks[-1]["index"] >= len(run.picks):
        caption += " Decisions with a result from an earlier search of this run are not drawn."
    return Picture("path", "The search's path", caption, figure)


def _points(run: Run, unit: float) -> list[DecisionPoint]:
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


def _marks(run: Run) -> Marks:
    best = run.best() if run.result else None
    return Marks(best.arm, best.default) if best else Marks()
