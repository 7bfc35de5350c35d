"""The figures of a run drawn with matplotlib: on axes for notebooks, as files for papers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
import numpy as np
import pandas
import xarray
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from daskmetrics.answer import analysis
from daskmetrics.answer.analysis import SearchPath
from daskmetrics.answer.leaderboard import RankedArm
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.trade_offs import TradeOffs
from daskmetrics.core.files import atomic_write
from daskmetrics.core.names import Arm, Suite
from daskmetrics.core.steps import COLOURS, spread, step_label
from daskmetrics.core.telemetry import TelemetrySample, read_samples
from daskmetrics.dashboard.drawing import LINES, STAGES
from daskmetrics.report._format import si
from daskmetrics.report.plots.quantities import (
    COST_NAMES,
    SCORES,
    Field,
    decisions,
    differing_costs,
    expected_field,
    mean_field,
    metric_fields,
    readout_note,
    task_field,
)

if TYPE_CHECKING:
    from matplotlib.image import AxesImage

NAMES = {"scores", "tradeoffs", "metrics", "layers", "path", "training", "telemetry"}
EARLIER = {"predictors", "agreement"}  # files that reports of earlier versions have
WIDTH, DPI = 10.0, 150  # inches; dots of each
MOST_TASKS = 8  # that have a map or a row of lines of their own
MOST_STEPS, MOST_LAYERS = 26, 7  # labels along the whole width, and beside one map
MOST_ARMS = 24  # in a list of the best
MOST_LOSSES = 48  # points of a line of losses; more show only noise
LOGARITHMIC = 20  # a cost whose greatest value is so many times its least positive one
GAP = 4  # median intervals without a sample: the run was not running
LAYER = "layer (0 is the embedding)"
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
Look = dict[str, Any]  # options of matplotlib, by name
STYLE: Look = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handletextpad": 0.4,
    "figure.constrained_layout.w_pad": 0.06,
    "figure.constrained_layout.h_pad": 0.06,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "axes.formatter.useoffset": False,
    "hatch.linewidth": 0.4,
    "hatch.color": "#d0d0d0",
}
NO_VALUE: Look = {
    "facecolor": "#f3f3f3",
    "edgecolor": "#d0d0d0",
    "hatch": "////",
    "linewidth": 0,
}
# a white rim around the black one keeps a mark visible on dark and on light colours
_MARK: Look = {
    "linestyle": "none",
    "markeredgecolor": "black",
    "clip_on": False,
    "path_effects": [withStroke(linewidth=2.4, foreground="white")],
}
MARKS: dict[str, Look] = {
    "best": {"marker": "*", "markersize": 10, "markerfacecolor": "white", **_MARK},
    "default": {"marker": "o", "markersize": 12, "markerfacecolor": "none", **_MARK},
}

Losses = Sequence[tuple[int, float]]  # training step, nats per token or label
Marks = Mapping[str, Arm]  # arms that are marked on every map: the ``best`` and the ``default`` one


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
        return self._file("png", {"Software": None})

    @property
    def svg(self) -> bytes:
        """The figure as an SVG file, whose texts stay texts."""
        return self._file("svg", {"Date": None})

    def _file(self, kind: Literal["png", "svg"], metadata: dict[str, None]) -> bytes:
        """The same figure gives the same bytes."""
        file = io.BytesIO()
        with rc_context({**STYLE, "svg.fonttype": "none", "svg.hashsalt": self.name}):
            self.figure.savefig(file, format=kind, dpi=DPI, metadata=metadata)
        return file.getvalue()


def axes_for(ax: Axes | None, height: float = 3.2) -> Axes:
    """The axes to draw on; without any, those of a new figure that a notebook shows by itself."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    with rc_context(STYLE):
        axes: Axes = pyplot.subplots(figsize=(0.7 * WIDTH, height), layout="constrained")[1]
    return axes


def blank(height: float) -> Figure:
    """An empty figure, ``height`` inches high, whose axes and legends make room for each other."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


# one panel each


def plane(values: Mapping[Arm, float], suite: Suite) -> xarray.DataArray:
    """Values of one model, (layers, checkpoints); NaN where there is none.

    >>> plane({Arm("m", "step1", 0): 0.5}, Suite("m", ("step0", "step1"), (0,), 1)).values
    array([[nan, 0.5]])
    """
    numbers = np.full((len(suite.layers), len(suite.revisions)), np.nan)
    for row, column in np.ndindex(numbers.shape):
        arm = Arm(suite.model, suite.revisions[column], suite.layers[row])
        numbers[row, column] = values.get(arm, np.nan)
    places = {"layer": list(suite.layers), "checkpoint": list(suite.revisions)}
    return xarray.DataArray(numbers, places, ("layer", "checkpoint"))


@rc_context(STYLE)
def heat_map(
    ax: Axes, field: Field, suite: Suite, marks: Marks, most: int, **limits: Any
) -> AxesImage:
    """A quantity by checkpoint and layer; at most ``most`` checkpoints are labelled."""
    # by their numbers: names of checkpoints have no places, and layers may be far apart
    values = plane(field.values, suite).drop_vars(("layer", "checkpoint"))
    ax.patch.set(**NO_VALUE)
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
    image: AxesImage = values.plot.imshow(
        ax=ax, cmap="cividis", add_colorbar=False, add_labels=False, **limits
    )
    rows = range(0, len(suite.layers), -(-len(suite.layers) // MOST_LAYERS))
    ax.set_yticks(rows, [str(suite.layers[row]) for row in rows])
    columns = range(0, len(suite.revisions), -(-len(suite.revisions) // max(1, most)))
    ax.set_xticks(columns, [step_label(suite.revisions[column]) for column in columns])
    ax.tick_params(length=0)
    for name, arm in marks.items():
        if arm.checkpoint in suite.checkpoints() and arm.layer in suite.layers:
            at = suite.revisions.index(arm.revision), suite.layers.index(arm.layer)
            ax.plot(*at, **MARKS[name])
    return image


@rc_context(STYLE)
def layer_lines(ax: Axes, field: Field, suite: Suite) -> None:
    """A quantity along the layers: a line for each of a few checkpoints, the later the lighter."""
    values = plane(field.values, suite)
    shown = spread(suite.revisions, LINES)
    shades = matplotlib.colormaps["cividis"](np.linspace(0, 0.92, len(shown)))
    for revision, shade in zip(shown, shades, strict=True):
        line = values.sel(checkpoint=revision).dropna("layer")
        label = step_label(revision)
        if not line.size:  # which xarray refuses to draw
            continue
        line.plot.line(ax=ax, marker="o", ms=2.6, lw=1.5, color=shade, label=label)
    ax.set(title="", xlabel="", ylabel="")
    ax.set_xlim(suite.layers[0] - 0.15, suite.layers[-1] + 0.15)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(4))


@rc_context(STYLE)
def search_path(ax: Axes, rows: pandas.DataFrame, path: SearchPath) -> None:
    """The best mean score so far by cost, and every decision at the score expected of its arm."""
    for stage, of_stage in rows.groupby("stage", sort=False):
        look: Look = {"s": 16, "color": STAGES[stage], "alpha": 0.6, "lw": 0, "label": stage}
        ax.scatter(of_stage["spent"], of_stage["expected"], **look)
    ax.step(rows["spent"], rows["best"], where="post", color=COLOURS[1], label="best so far")
    if path.default is not None:
        ax.axhline(path.default, color="0.35", lw=1, ls="--", label="default arm")
    ax.set(xlabel=f"cost spent, {path.unit}", ylabel="mean score")
    ax.set_xlim(left=0)


@rc_context(STYLE)
def trade_off(ax: Axes, trade_offs: TradeOffs, name: str) -> None:
    """Score against one cost of `COST_NAMES`; the line is the best score at each cost, with its
    error.
    """
    costs = [getattr(arm.cost, name) for arm in trade_offs.arms]
    of_arm = {"model": [arm.arm.model for arm in trade_offs.arms], "cost": costs}
    numbers = {
        side: [getattr(arm, side) for arm in trade_offs.arms] for side in ("score", "stderr")
    }
    points = pandas.DataFrame(of_arm | numbers)
    for i, (model, of_model) in enumerate(points.groupby("model", sort=False)):
        look: Look = {"marker": MARKERS[i % len(MARKERS)], "color": COLOURS[i % len(COLOURS)]}
        ax.scatter(of_model["cost"], of_model["score"], s=14, lw=0, label=model, **look)
    ordered = points.sort_values(["cost", "score"], ascending=[True, False])
    front = ordered[ordered["score"] > ordered["score"].cummax().shift(fill_value=-np.inf)]
    ax.step(front["cost"], front["score"], where="post", color="0.45", lw=1.1, zorder=0)
    bars: Look = {"fmt": "none", "ecolor": "0.45", "lw": 0.9, "capsize": 2, "zorder": 0}
    ax.errorbar(front["cost"], front["score"], front["stderr"], **bars)
    least = min((cost for cost in costs if cost > 0), default=1)
    if max(costs) / least >= LOGARITHMIC:
        ax.set_xscale("symlog", linthresh=least)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si(value)))
    ax.set_xlabel(COST_NAMES[name])


@rc_context(STYLE)
def mean_scores(arms: Sequence[RankedArm], by_layer: bool, ax: Axes | None) -> Axes:
    """Mean scores with errors, by layer or as a list of the best; filled: tied with the best."""
    shown = list(arms) if by_layer else list(arms)[:MOST_ARMS]
    ax = axes_for(ax, 3.2 if by_layer else 0.9 + 0.22 * len(shown))
    bars: Look = {"color": COLOURS[0], "fmt": "o", "ms": 5.5, "ecolor": "0.45", "capsize": 2}
    for label, is_tied, fill in (("tied with the best", True, COLOURS[0]), ("worse", False, "w")):
        rows = [i for i, arm in enumerate(shown) if bool(arm.tied) is is_tied]
        means = np.array([shown[i].mean for i in rows], float)
        errors = np.array([shown[i].stderr for i in rows], float)
        look: Look = {**bars, "markerfacecolor": fill, "label": label}
        if rows and by_layer:
            ax.errorbar([shown[i].arm.layer for i in rows], means, yerr=errors, **look)
        elif rows:
            ax.errorbar(means, rows, xerr=errors, **look)
    if by_layer:
        line = sorted((arm.arm.layer, arm.mean) for arm in shown)
        ax.plot(*zip(*line, strict=True), color=COLOURS[0], lw=1, alpha=0.5)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel=LAYER, ylabel="mean score")
    else:
        ax.set_yticks(range(len(shown)), [str(arm.arm) for arm in shown])
        ax.set_ylim(len(shown) - 0.4, -0.6)
        ax.grid(axis="y", visible=False)
        ax.set_xlabel("mean score")
        if len(shown) < len(arms):
            ax.set_xlabel(f"mean score of the best {len(shown)} of {len(arms)} arms")
    ax.legend(loc="best")
    return ax


# whole figures


def _grid(
    fields: Sequence[Field],
    suites: Sequence[Suite],
    height: float,
    draw: Callable[[Sequence[Axes], Field], None],
    **options: Any,
) -> Figure:
    """A row of panels for each quantity, ``height`` inches high, with a column for each model."""
    figure = blank(1.0 + height * len(fields))
    axes = figure.subplots(len(fields), len(suites), squeeze=False, **options)
    for field, row in zip(fields, axes, strict=True):
        draw(row, field)
        title = field.name
        if field.errors:
            title += f" (standard error {median(field.errors.values()):.2g})"
        row[0].set_title(title, loc="left", fontweight="bold")
    for ax, suite in zip(axes[0], suites, strict=True):
        where: Look = {"xycoords": "axes fraction", "textcoords": "offset points"}
        ax.annotate(suite.model, (0.5, 1), (0, 18), ha="center", fontsize=9.5, **where)
    return figure


@rc_context(STYLE)
def heat_maps(fields: Sequence[Field], suites: Sequence[Suite], marks: Marks) -> Figure:
    """Maps of all quantities and models; the models of one row share their colours."""
    counts = np.array([len(suite.revisions) for suite in suites], dtype=float)
    # no map is too narrow for the name of its model
    shares = np.maximum(counts, 0.4 * counts.mean())
    shares /= shares.sum()

    def draw(row: Sequence[Axes], field: Field) -> None:
        known = [value for value in field.values.values() if np.isfinite(value)] or [0.0, 1.0]
        for ax, suite, share in zip(row, suites, shares, strict=True):
            limits: Look = {"vmin": min(known), "vmax": max(known)}
            image = heat_map(ax, field, suite, marks, int(MOST_STEPS * share), **limits)
            if field is not fields[-1]:
                ax.set_xticks([])
            else:
                ax.set_xlabel("training step")
        row[0].set_ylabel("layer")
        place: Look = {"ax": list(row), "aspect": 10, "fraction": 0.02, "pad": 0.01}
        bar = row[0].figure.colorbar(image, label=field.units, ticks=MaxNLocator(4), **place)
        bar.outline.set_visible(False)

    height = 0.36 + float(np.clip(0.19 * max(len(suite.layers) for suite in suites), 0.75, 1.6))
    figure = _grid(fields, suites, height, draw, width_ratios=shares.tolist())
    handles = [Line2D([], [], label=f"{name} arm", **MARKS[name]) for name in marks]
    patch = Patch(label="no value", **NO_VALUE)
    figure.legend(handles=[*handles, patch], loc="outside upper right", ncols=3)
    return figure


@rc_context(STYLE)
def layer_curves(fields: Sequence[Field], suites: Sequence[Suite]) -> Figure:
    """Lines of all quantities and models along the layers."""

    def draw(row: Sequence[Axes], field: Field) -> None:
        for ax, suite in zip(row, suites, strict=True):
            layer_lines(ax, field, suite)
        row[0].set_ylabel(field.units or field.name)

    figure = _grid(fields, suites, 1.9, draw, sharey="row")
    lines = figure.axes[-1].get_legend_handles_labels()
    figure.legend(*lines, title="training step", loc="outside right upper", handlelength=1.2)
    figure.supxlabel(LAYER, fontsize=8.5)
    return figure


@rc_context(STYLE)
def trade_off_panels(trade_offs: TradeOffs) -> Figure:
    """Score against each cost that differs between arms."""
    names = differing_costs([arm.cost for arm in trade_offs.arms]) or ["layers"]
    figure = blank(3.1)
    axes = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for ax, name in zip(axes, names, strict=True):
        trade_off(ax, trade_offs, name)
    axes[0].set_ylabel("mean score")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=7)
    return figure


@rc_context(STYLE)
def training_loss(losses: Mapping[str, Losses]) -> Figure:
    """Loss against training step, one line per model; step 0 stands beside the logarithmic steps."""
    figure = blank(2.9)
    ax = figure.subplots()
    steps: set[int] = set()
    for i, (model, points) in enumerate(losses.items()):
        look: Look = {"marker": MARKERS[i % len(MARKERS)], "color": COLOURS[i % len(COLOURS)]}
        ax.plot(*zip(*points, strict=True), ms=4, lw=1.4, label=model, **look)
        steps.update(step for step, _ in points)
    ax.set_xscale("symlog", linthresh=1, linscale=0.4)
    ax.set_xticks(sorted(steps)[:: max(1, len(steps) // 14)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: step_label(f"step{value:.0f}")))
    ax.minorticks_off()
    ax.set(xlabel="training step", ylabel="loss, nats per token")
    figure.legend(loc="outside upper left", ncols=7)
    return figure


@rc_context(STYLE)
def telemetry(samples: Sequence[TelemetrySample]) -> Picture:
    """How much of its processors and of its GPU each worker of a run or a map used over time."""
    taken = pandas.Index([(sample.at - samples[0].at) / 60 for sample in samples])
    usual = median(later - at for at, later in pairwise(taken))
    is_late = np.diff(taken, prepend=0) > GAP * usual
    used = {}
    for label, quantity in (("CPU, % of one", "cpu"), ("GPU, %", "gpu")):
        rows = []
        for sample in samples:
            by_worker = sample.readings.items()
            rows.append({name: own[quantity] for name, own in by_worker if quantity in own})
        frame = pandas.DataFrame(rows, index=taken)
        frame[is_late] = np.nan  # the run was not running before
        names = sorted(map(str, frame.columns), key=lambda name: (len(name), name))
        if names:
            used[label] = frame[names]
    figure = blank(0.6 + 1.5 * len(used))
    axes = figure.subplots(len(used), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (label, frame) in zip(axes, used.items(), strict=True):
        shown = frame.rename(columns="worker {}".format)
        shown.plot(ax=ax, color=COLOURS, lw=1.2, legend=False)
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
    axes[-1].set_xlabel("minutes since the first sample")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=8)
    caption = (
        "As each worker reported it to the scheduler, a GPU's use by NVIDIA's library if it is "
        "installed. In a gap the run was not running."
    )
    return Picture("telemetry", "What the workers used", caption, figure)


# which figures a run has


def pictures(run: RecordedRun) -> Iterator[Picture]:
    """All figures for which the run has data."""
    suites, metrics, marks = analysis.suites(run), metric_fields(run), analysis.marks(run)
    scores = [task_field(run, task).at_layers(run) for task in run.tasks]
    # the map of one checkpoint is a stripe
    are_mapped = any(len(suite.revisions) > 1 for suite in suites)
    if suites and run.recorded:
        if are_mapped:
            yield _scores(run, scores)
        if analysis.compared(run):
            yield trade_offs(run)
    if suites and metrics:
        if are_mapped:
            caption = "Hatched: the metric is undefined, or the measurement failed."
            maps = heat_maps(metrics, suites, marks)
            yield Picture("metrics", "Label-free metrics", f"{_MAP} {caption}", maps)
        means = mean_field(run).at_layers(run)
        quantities = [means] if means.values else []
        if not are_mapped and 1 < len(scores) <= MOST_TASKS:
            quantities += scores
        caption = "A line is a checkpoint; later checkpoints are lighter." + readout_note(run)
        curves = layer_curves([*quantities, *metrics], suites)
        yield Picture("layers", "Along the layers", caption, curves)
    if suites and run.picks:
        yield _path(run)
    if losses := analysis.losses(run):
        caption = "Mean loss on one batch that is the same for all checkpoints of a model."
        yield Picture("training", "Training loss", caption, training_loss(losses))
    if len(samples := read_samples(run.folder.telemetry)) > 1:
        yield telemetry(samples)


_MAP = "Each map shows the training steps of a model from left to right and its layers from below (0 is the embedding)."


def _scores(run: RecordedRun, scores: Sequence[Field]) -> Picture:
    counts = {arm: float(len(by_task)) for arm, by_task in run.recorded.items()}
    rows = [mean_field(run), Field("number of tasks scored", SCORES, "tasks", counts)]
    rows = [row.at_layers(run) for row in rows]
    if len(scores) <= MOST_TASKS:
        rows += scores
    caption = (
        f"{_MAP} Hatched: not scored. An arm has a mean score only if it was scored on all "
        f"{len(scores)} tasks, because means over different tasks are not comparable; the second "
        "row counts the tasks on which it was scored. Scores are raw; the search compares tasks "
        f"by its reward.{readout_note(run)}"
    )
    maps = heat_maps(rows, analysis.suites(run), analysis.marks(run))
    return Picture("scores", "Scores", caption, maps)


def trade_offs(run: RecordedRun) -> Picture:
    """Scores against what arms take."""
    caption = (
        "Each point is an arm that was scored on every task of the objective. The line is the best "
        "score at each cost, with its standard error. Operations are those of a forward pass up to "
        "the layer."
    )
    figure = trade_off_panels(run.trade_offs())
    return Picture("tradeoffs", "Score against cost", caption, figure)


@rc_context(STYLE)
def _path(run: RecordedRun) -> Picture:
    figure = blank(3.4)
    ax = figure.subplots()
    path = analysis.path_of(run)
    search_path(ax, decisions(path, expected_field(run)), path)
    figure.legend(loc="outside upper left", ncols=7)
    caption = (
        "The greatest mean score among the arms scored on every task so far, and every decision at "
        "the score that its arm is expected to have by now. The search follows its policy, and "
        "ends by scoring the leader on the remaining tasks."
    )
    if run.picks[-1]["index"] >= len(run.picks):
        caption += " Decisions with a result from an earlier search of this run are not drawn."
    return Picture("path", "The search's path", caption, figure)


# beside the checkpoints of a suite that was trained


def write_telemetry(folder: Path) -> Path | None:
    """Write ``telemetry.png`` beside the checkpoints of a suite; None if there are too few samples."""
    if len(samples := read_samples(folder / "telemetry.jsonl")) < 2:
        return None
    return atomic_write(folder / "telemetry.png", telemetry(samples).png)


def read_losses(folder: Path) -> Losses:
    """The losses that the ranks of a suite recorded, oldest first; empty if there are none."""
    path = folder / "progress.jsonl"
    if not path.is_file():
        return []
    # a killed rank leaves half a line
    whole = [line for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    lines = [json.loads(line) for line in whole]
    return [(int(line["step"]), float(line["loss"])) for line in lines]


def averaged(losses: Losses, most: int = MOST_LOSSES) -> Losses:
    """At most ``most`` points, evenly spaced on a logarithmic axis, each the mean of those since
    the one before.

    >>> averaged([(step, float(step)) for step in (1, 2, 3, 4, 5, 6, 7, 8)], most=4)
    [(1, 1.0), (2, 2.0), (4, 3.5), (8, 6.5)]
    """
    if len(losses) <= most:
        return losses
    ends = np.unique(np.geomspace(1, len(losses), most).round().astype(int)).tolist()
    points = []
    for start, end in pairwise([0, *ends]):
        steps, values = zip(*losses[start:end], strict=True)
        points.append((steps[-1], float(np.mean(values))))
    return points


def write_losses(folder: Path) -> Path | None:
    """Write ``loss.png`` beside the checkpoints of a suite; None if no losses are recorded."""
    losses = read_losses(folder)
    if not losses:
        return None
    figure = training_loss({folder.name: averaged(losses)})
    return atomic_write(folder / "loss.png", Picture("loss", "", "", figure).png)
