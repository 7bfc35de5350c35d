"""Which figures a run has, with the captions that say how to read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from matplotlib.figure import Figure

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.events import Event
from daskmetrics.core.files import atomic_write
from daskmetrics.core.telemetry import TelemetrySample, read_samples
from daskmetrics.report.plots._correlations import correlation_table, metric_against_score
from daskmetrics.report.plots._heatmaps import Quantity, heat_maps
from daskmetrics.report.plots._points import trade_off_panels
from daskmetrics.report.plots._style import rendered
from daskmetrics.report.plots._telemetry import telemetry_panels
from daskmetrics.report.plots.lines import layer_curves, search_path, training_loss

NAMES = frozenset(
    (
        "scores",
        "tradeoffs",
        "metrics",
        "layers",
        "predictors",
        "agreement",
        "path",
        "training",
        "telemetry",
    )
)
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


def pictures(run: RecordedRun) -> Iterator[Picture]:
    """All figures for which the run has data."""
    suites, scored = analysis.suites(run), bool(analysis.scores(run))
    # the map of one checkpoint is a stripe
    are_mapped = any(len(suite.revisions) > 1 for suite in suites)
    if suites and scored:
        if are_mapped:
            yield _scores(run)
        if analysis.compared(run):
            yield trade_offs(run)
    if suites and (metrics := analysis.metrics(run)):
        if are_mapped:
            yield _metrics(run, metrics)
        yield _layers(run, metrics, by_task=not are_mapped)
        if scored:
            yield _predictors(run)
            yield _agreement(run, metrics)
    if suites and run.picks:
        yield _path(run)
    if losses := analysis.losses(run):
        caption = "Mean loss on one batch that is the same for all checkpoints of a model."
        yield Picture("training", "Training loss", caption, training_loss(losses))
    if len(samples := read_samples(run.folder.telemetry)) > 1:
        yield telemetry(samples, run.entries)


def telemetry(samples: Sequence[TelemetrySample], entries: Sequence[Event]) -> Picture:
    """What the workers of a run or a map used over time."""
    caption = (
        "As each worker reported it to the scheduler, a GPU's numbers by NVIDIA's library if it is installed. Below: "
        "the units of each worker that were recorded, scores without their encoding. In a gap a worker loaded, "
        "encoded, waited, or ran a unit that failed."
    )
    return Picture(
        "telemetry", "What the workers used", caption, telemetry_panels(samples, entries)
    )


def write_telemetry(folder: Path) -> Path | None:
    """Write ``telemetry.png`` beside the checkpoints of a suite; None if there are too few samples."""
    if len(samples := read_samples(folder / "telemetry.jsonl")) < 2:
        return None
    return atomic_write(folder / "telemetry.png", telemetry(samples, ()).png)


def _scores(run: RecordedRun) -> Picture:
    count = len(run.tasks)
    errors = analysis.errors(run)
    scores = analysis.at_layers(run, analysis.scores(run))
    means = analysis.at_layers(run, analysis.mean_scores(run))
    paid = {arm: float(len(by_task)) for arm, by_task in scores.items()}
    rows = [
        Quantity("mean score, arms scored on every task", "mean score", means, "cividis"),
        Quantity("number of tasks scored", "tasks scored", paid, "cividis", most=count),
    ]
    if count <= MOST_TASKS:
        for task, facts in run.tasks.items():
            values = {arm: by_task[task] for arm, by_task in scores.items() if task in by_task}
            rows.append(Quantity(_titled(task, errors), facts["main_score"], values, "cividis"))
    caption = (
        f"{_MAP} Hatched: not scored. An arm has a mean score only if it was scored on all {count} tasks, because "
        "means over different tasks are not comparable; the second row counts the tasks on which it was scored. "
        f"Scores are raw; the search compares tasks by its reward.{best_readout(run)}"
    )
    return Picture(
        "scores", "Scores", caption, heat_maps(rows, analysis.suites(run), analysis.marks(run))
    )


def trade_offs(run: RecordedRun) -> Picture:
    """Scores against what arms take."""
    compared = run.trade_offs()
    caption = (
        "Each point is an arm that was scored on every task of the objective. The line is the best score at each cost, "
        "with its standard error. Operations are those of a forward pass up to the layer."
    )
    return Picture("tradeoffs", "Score against cost", caption, trade_off_panels(compared))


def _titled(name: str, errors: Mapping[str, float]) -> str:
    """A name with the median standard error of its values."""
    if name not in errors:
        return name
    return f"{name} (standard error {errors[name]:.2g})"


def _metrics(run: RecordedRun, metrics: Mapping[str, analysis.Values]) -> Picture:
    errors = analysis.errors(run)
    rows = [
        Quantity(_titled(name, errors), analysis.units(run, name), values)
        for name, values in metrics.items()
    ]
    caption = (
        f"{_MAP} All models of a row share its colours. Hatched: the metric is undefined, or the measurement of the "
        "checkpoint failed."
    )
    return Picture(
        "metrics",
        "Label-free metrics",
        caption,
        heat_maps(rows, analysis.suites(run), analysis.marks(run)),
    )


def _layers(run: RecordedRun, metrics: Mapping[str, analysis.Values], by_task: bool) -> Picture:
    rows = []
    if means := analysis.at_layers(run, analysis.mean_scores(run)):
        rows.append(Quantity("mean score", "mean score", means))
    if by_task and 1 < len(run.tasks) <= MOST_TASKS:
        scores = analysis.at_layers(run, analysis.scores(run))
        for task, facts in run.tasks.items():
            values = {arm: row[task] for arm, row in scores.items() if task in row}
            rows.append(Quantity(task, facts["main_score"], values))
    rows += [Quantity(name, analysis.units(run, name), values) for name, values in metrics.items()]
    caption = f"Each quantity by layer. A line is a checkpoint; later checkpoints are lighter.{best_readout(run)}"
    return Picture("layers", "Along the layers", caption, layer_curves(rows, analysis.suites(run)))


def _predictors(run: RecordedRun) -> Picture:
    figure = correlation_table(analysis.correlations(run))
    return Picture("predictors", "Which metrics predict quality here", analysis.ABOUT_RHO, figure)


def _agreement(run: RecordedRun, metrics: Mapping[str, analysis.Values]) -> Picture:
    units = {name: analysis.units(run, name) for name in metrics}
    standard = analysis.at_layers(run, analysis.standard_scores(run))
    figure = metric_against_score(metrics, units, standard, run.models)
    caption = (
        "Each point is an arm with at least one score: the mean of its scores, each in standard deviations of the "
        "scores of its task. Arms were scored on different tasks, which the search chose: compare the shapes rather "
        f"than the exact values.{best_readout(run)}"
    )
    return Picture("agreement", "Metric against score", caption, figure)


def _path(run: RecordedRun) -> Picture:
    path = analysis.path_of(run)
    figure = search_path(path.points, analysis.suites(run), path.default, path.unit)
    caption = (
        "Above: the greatest mean score among the arms scored on every task so far. Below: every decision of the "
        "search at the arm that it paid for; within a checkpoint, deeper layers are higher. The search follows its "
        "policy, and ends by scoring the leader on the remaining tasks."
    )
    if run.picks[-1]["index"] >= len(run.picks):
        caption += " Decisions with a result from an earlier search of this run are not drawn."
    return Picture("path", "The search's path", caption, figure)


def best_readout(run: RecordedRun) -> str:
    """Which of several readouts of a layer its place shows."""
    if len({arm.readout for arm in run.recorded}) < 2:
        return ""
    return " Of the readouts of a layer, the best is shown, by the mean score."
