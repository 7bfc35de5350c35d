"""The figures of a run drawn with matplotlib: on axes for notebooks, as files for papers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal

import matplotlib
import numpy as np
import pandas
import xarray
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from daskmetrics.answer import analysis
from daskmetrics.answer.analysis import SearchPath
from daskmetrics.answer.leaderboard import RankedArm
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.trade_offs import TradeOffs
from daskmetrics.core.files import atomic_write
from daskmetrics.core.names import Arm, Suite
from daskmetrics.core.telemetry import TelemetrySample, read_samples
from daskmetrics.core.text import step_label
from daskmetrics.dashboard.drawing import LAYER, LEAST_ERRORS, STAGES, span
from daskmetrics.report.plots.quantities import (
    COST_NAMES,
    Field,
    decisions,
    differing_costs,
    expectation_of,
    lines,
    readout_note,
    shown_first,
    suite_of,
)

NAMES = {"scores", "tradeoffs", "layers", "path", "training", "telemetry"}
EARLIER = {"predictors", "agreement", "metrics"}  # files that reports of earlier versions have
WIDTH, DPI = 10.0, 150  # inches; dots of each
MOST_STEPS, MOST_LAYERS = 14, 7  # labels of a map
MOST_ARMS = 24  # in a list of the best
MOST_LOSSES = 48  # points of a line of losses; more show only noise
LOGARITHMIC = 20  # a cost whose greatest value is so many times its least positive one
GAP = 4  # median intervals without a sample: the run was not running
# of Okabe and Ito (2008), which can be distinguished without seeing all colours
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
Look = dict[str, Any]  # options of matplotlib, by name
STYLE: Look = {
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "axes.formatter.useoffset": False,
}
ABOVE: Look = {"loc": "outside upper left", "ncols": 7}
MARK: Look = {"linestyle": "none", "color": "white", "markeredgecolor": "black", "clip_on": False}
MARKS: Mapping[str, Look] = {
    "best": {"marker": "*", "markersize": 11, **MARK},
    "default": {"marker": "o", "markersize": 6, **MARK},
}
MARK_NAMES = {"best": "best candidate", "default": "last layer"}

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


@rc_context(STYLE)
def heat_map(ax: Axes, field: Field, suite: Suite, marks: Marks) -> None:
    """A quantity of one model by checkpoint and layer."""
    # by their numbers: names of checkpoints have no places, and layers may be far apart
    values = field.plane(suite).value.drop_vars(("layer", "checkpoint")).T
    ax.set_facecolor("0.92")  # of what has no value
    ax.grid(visible=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar: Look = {"label": field.units or field.name, "ticks": MaxNLocator(4), "pad": 0.02}
    values.plot.imshow(ax=ax, cmap="cividis", add_labels=False, cbar_kwargs=bar)
    rows = range(0, len(suite.layers), -(-len(suite.layers) // MOST_LAYERS))
    ax.set_yticks(rows, [str(suite.layers[row]) for row in rows])
    columns = range(0, len(suite.revisions), -(-len(suite.revisions) // MOST_STEPS))
    ax.set_xticks(columns, [step_label(suite.revisions[column]) for column in columns])
    title = f"{field.name}, {suite.model}"
    if np.isfinite(field.errors).any():
        title += f" (standard error {np.nanmedian(field.errors):.2g})"
    ax.set(xlabel="training step", ylabel="layer", title=title)
    for name, arm in marks.items():
        if arm.checkpoint in suite.checkpoints() and arm.layer in suite.layers:
            at = suite.revisions.index(arm.revision), suite.layers.index(arm.layer)
            ax.plot(*at, label=MARK_NAMES[name], **MARKS[name])


@rc_context(STYLE)
def layer_lines(ax: Axes, drawn: xarray.Dataset) -> None:
    """Lines along the layers with their standard errors; the legend names layers without a value.

    The axis spans some errors at least, so that it does not stretch what is smaller than the error.
    """
    names = drawn.line.values.tolist()
    shades: Sequence[object] = COLOURS
    if "unmeasured" in drawn.attrs:  # checkpoints: the later the lighter
        shades = matplotlib.colormaps["cividis"](np.linspace(0, 0.92, len(names))).tolist()
    for i, name in enumerate(names):
        line = drawn.sel(line=name)
        missing = line.layer[line.value.isnull()].values.tolist()
        label = name
        if missing:
            label += f" (no layer {', '.join(map(str, missing))})"
        line = line.dropna("layer", subset=["value"])
        look: Look = {"color": shades[i % len(shades)], "elinewidth": 1, "label": label}
        ax.errorbar(
            line.layer.values,
            line.value.values,
            line.error.values,
            marker="o",
            ms=3,
            lw=1.5,
            **look,
        )
    ends = xarray.concat([drawn.value, drawn.value - drawn.error, drawn.value + drawn.error], "end")
    error = drawn.error.median().item()
    if not np.isfinite(error):
        error = 0.0
    ax.set_ylim(span(ends.values, LEAST_ERRORS * error))
    ax.set_xlim(drawn.layer.min().item() - 0.15, drawn.layer.max().item() + 0.15)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    label = LAYER
    if unmeasured := drawn.attrs.get("unmeasured"):
        label += f"\n{unmeasured} other checkpoints have no value"
    ax.set(xlabel=label, ylabel=drawn.attrs.get("label", "score"))


@rc_context(STYLE)
def search_path(ax: Axes, rows: pandas.DataFrame, path: SearchPath) -> None:
    """The best mean score so far by cost, and every decision at the score expected of its arm."""
    for stage, of_stage in rows.groupby("stage", sort=False):
        look: Look = {"s": 16, "color": STAGES[stage], "alpha": 0.6, "lw": 0, "label": stage}
        ax.scatter(of_stage["spent"], of_stage["expected"], **look)
    ax.step(rows["spent"], rows["best"], where="post", color=COLOURS[1], label="best so far")
    if path.default is not None:
        ax.axhline(path.default, color="0.35", lw=1, ls="--", label="last layer")
    ax.set(xlabel=f"cost spent, {path.unit}", ylabel="mean score")
    ax.set_xlim(left=0)


@rc_context(STYLE)
def trade_off(ax: Axes, trade_offs: TradeOffs, name: str) -> None:
    """Score against one cost of `COST_NAMES`; the line is the best score at each cost, with its
    error.
    """
    rows = [
        (arm.arm.model, getattr(arm.cost, name), arm.score, arm.stderr) for arm in trade_offs.arms
    ]
    points = pandas.DataFrame(rows, columns=["model", "cost", "score", "stderr"])
    for i, (model, of_model) in enumerate(points.groupby("model", sort=False)):
        look: Look = {"marker": MARKERS[i % len(MARKERS)], "color": COLOURS[i % len(COLOURS)]}
        ax.scatter(of_model["cost"], of_model["score"], s=14, lw=0, label=model, **look)
    ordered = points.sort_values(["cost", "score"], ascending=[True, False])
    front = ordered[ordered["score"] > ordered["score"].cummax().shift(fill_value=-np.inf)]
    ax.step(front["cost"], front["score"], where="post", color="0.45", lw=1.1, zorder=0)
    bars: Look = {"fmt": "none", "ecolor": "0.45", "lw": 0.9, "capsize": 2, "zorder": 0}
    ax.errorbar(front["cost"], front["score"], front["stderr"], **bars)
    lowest_cost = points["cost"][points["cost"] > 0].min()
    if points["cost"].max() >= LOGARITHMIC * lowest_cost:
        ax.set_xscale("symlog", linthresh=lowest_cost)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.xaxis.set_major_formatter(EngFormatter())
    ax.set_xlabel(COST_NAMES[name])


@rc_context(STYLE)
def mean_scores(arms: Sequence[RankedArm], by_layer: bool, ax: Axes | None) -> Axes:
    """Mean scores with errors, by layer or as a list of the best; filled: tied with the best."""
    shown, height = arms, 3.2
    if not by_layer:
        shown = arms[:MOST_ARMS]
        height = 0.9 + 0.22 * len(shown)
    ax = axes_for(ax, height)
    for label, is_tied, fill in (("tied with the best", True, COLOURS[0]), ("worse", False, "w")):
        rows = [i for i, arm in enumerate(shown) if bool(arm.tied) is is_tied]
        pairs = np.array([(shown[i].mean, shown[i].stderr) for i in rows], float)
        means, errors = pairs.reshape(-1, 2).T
        look: Look = {"color": COLOURS[0], "fmt": "o", "markerfacecolor": fill, "label": label}
        if by_layer:
            ax.errorbar([shown[i].arm.layer for i in rows], means, yerr=errors, **look)
        else:
            ax.errorbar(means, rows, xerr=errors, **look)
    if by_layer:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel=LAYER, ylabel="mean score")
    else:
        ax.set_yticks(range(len(shown)), [str(arm.arm) for arm in shown])
        ax.invert_yaxis()
        ax.set_xlabel(f"mean score of the best {len(shown)} of {len(arms)} candidates")
    ax.legend()
    return ax


# whole figures


@rc_context(STYLE)
def trade_off_panels(trade_offs: TradeOffs) -> Figure:
    """Score against each cost that differs between arms."""
    names = differing_costs([arm.cost for arm in trade_offs.arms]) or ["layers"]
    figure = blank(3.1)
    axes = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for ax, name in zip(axes, names, strict=True):
        trade_off(ax, trade_offs, name)
    axes[0].set_ylabel("mean score")
    figure.legend(*axes[0].get_legend_handles_labels(), **ABOVE)
    return figure


@rc_context(STYLE)
def training_loss(losses: Mapping[str, Losses]) -> Figure:
    """Loss against training step, one line per model; step 0 stands beside the logarithmic steps."""
    figure = blank(2.9)
    ax = figure.subplots()
    for i, (model, points) in enumerate(losses.items()):
        look: Look = {"marker": MARKERS[i % len(MARKERS)], "color": COLOURS[i % len(COLOURS)]}
        ax.plot(*zip(*points, strict=True), ms=4, lw=1.4, label=model, **look)
    steps = sorted({step for points in losses.values() for step, _ in points})
    ax.set_xscale("symlog", linthresh=1, linscale=0.4)
    ax.set_xticks(steps[:: -(-len(steps) // MOST_STEPS)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: step_label(f"step{value:.0f}")))
    ax.minorticks_off()
    ax.set(xlabel="training step", ylabel="loss, nats per token")
    figure.legend(**ABOVE)
    return figure


@rc_context(STYLE)
def telemetry(samples: Sequence[TelemetrySample]) -> Picture:
    """How much of its processors and of its GPU each worker of a run or a map used over time."""
    taken = pandas.Index([(sample.at - samples[0].at) / 60 for sample in samples])
    usual = median(later - at for at, later in pairwise(taken))
    used = {}
    for label, quantity in (("CPU, % of one", "cpu"), ("GPU, %", "gpu")):
        rows = []
        for sample in samples:
            by_worker = sample.readings.items()
            rows.append({name: row[quantity] for name, row in by_worker if quantity in row})
        frame = pandas.DataFrame(rows, index=taken)
        frame[np.diff(taken, prepend=0) > GAP * usual] = np.nan  # the run was not running before
        if len(names := sorted(map(str, frame.columns), key=lambda name: (len(name), name))):
            used[label] = frame[names].rename(columns="worker {}".format)
    figure = blank(0.6 + 1.5 * len(used))
    axes = figure.subplots(len(used), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (label, frame) in zip(axes, used.items(), strict=True):
        frame.plot(ax=ax, color=COLOURS, lw=1.2, legend=False, ylabel=label)
        ax.set_ylim(bottom=0)
    axes[-1].set_xlabel("minutes since the first sample")
    figure.legend(*axes[0].get_legend_handles_labels(), **ABOVE)
    caption = (
        "As each worker reported it to the scheduler, a GPU's use by NVIDIA's library if it is "
        "installed. In a gap the run was not running."
    )
    return Picture("telemetry", "What the workers used", caption, figure)


# which figures a run has


def pictures(run: RecordedRun) -> Iterator[Picture]:
    """All figures for which the run has data; those by layer are of the model of the best arm."""
    if shown := shown_first(run):
        suite = suite_of(run)
        if len(suite.revisions) > 1:  # the map of one checkpoint is a stripe
            yield heat_maps(shown, suite, analysis.marks(run), readout_note(run))
        yield _layers(lines(shown, suite), suite, readout_note(run))
    if shown and analysis.compared(run):
        yield trade_offs(run)
    if shown and run.picks:
        yield _path(run)
    if losses := analysis.losses(run):
        caption = "Mean loss on one batch that is the same for all checkpoints of a model."
        yield Picture("training", "Training loss", caption, training_loss(losses))
    if len(samples := read_samples(run.folder.telemetry)) > 1:
        yield telemetry(samples)


@rc_context(STYLE)
def heat_maps(fields: Sequence[Field], suite: Suite, marks: Marks, note: str = "") -> Picture:
    """Maps of some quantities of a model."""
    figure = blank(1.9 * len(fields))
    panels = figure.subplots(len(fields), 1, squeeze=False)[:, 0]
    for ax, field in zip(panels, fields, strict=True):
        heat_map(ax, field, suite, marks)
    if marks:
        panels[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    caption = (
        f"Training steps of {suite.model} from left to right, its layers from below (0 is the "
        "embedding). Grey: no value. A mean score needs all tasks, because means over different "
        f"tasks are not comparable.{note}"
    )
    return Picture("scores", fields[0].group, caption, figure)


@rc_context(STYLE)
def _layers(drawn: xarray.Dataset, suite: Suite, note: str) -> Picture:
    figure = blank(3.6)
    layer_lines(figure.subplots(), drawn)
    figure.legend(loc="outside right upper", title=suite.model)
    caption = (
        "With standard errors: a line for each of a few checkpoints, the later the lighter; of a "
        f"single checkpoint a line for each task.{note}"
    )
    return Picture("layers", "Along the layers", caption, figure)


def trade_offs(run: RecordedRun) -> Picture:
    """Scores against what arms take."""
    caption = (
        "Each point is a candidate that was scored on every task of the objective. The line is the"
        " best score at each cost, with its standard error. Operations are those of a forward pass"
        " up to the layer."
    )
    figure = trade_off_panels(run.trade_offs())
    return Picture("tradeoffs", "Score against cost", caption, figure)


@rc_context(STYLE)
def _path(run: RecordedRun) -> Picture:
    figure = blank(3.4)
    path = analysis.path_of(run)
    search_path(figure.subplots(), decisions(path, expectation_of(run)), path)
    figure.legend(**ABOVE)
    caption = (
        "The greatest mean score among the candidates scored on every task so far, and every"
        " decision at the score that its candidate is expected to have by now. The search follows"
        " its policy, and ends by scoring the leader on the remaining tasks."
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
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    events = map(json.loads, lines)
    return [(int(event["step"]), float(event["loss"])) for event in events]


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
