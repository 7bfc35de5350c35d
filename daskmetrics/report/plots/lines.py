"""Lines: quantities along the layers, the path of the search, and losses of trainings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from daskmetrics.answer.analysis import DecisionPoint
from daskmetrics.core.colours import COLOURS
from daskmetrics.core.files import atomic_write
from daskmetrics.core.names import Arm, Suite
from daskmetrics.core.steps import spread, step_label
from daskmetrics.report.plots._heatmaps import Quantity
from daskmetrics.report.plots._style import (
    STYLE,
    axes_for,
    blank,
    look,
    rendered,
    thinned,
)

LINES = (
    8  # checkpoints of a model that have a line: evenly chosen, the first and the last among them
)
MOST_LAYERS = 9  # labelled below one panel
MOST_CHECKPOINTS = 26  # labelled beside the search's path
MOST_LOSSES = 48  # points of a line of losses; more show only noise
STAGES = {
    "cover": ("#7f7f7f", "o", 14),
    "search": ("#0072b2", ".", 34),
    "confirm": ("#d55e00", "D", 16),
}

Losses = Sequence[tuple[int, float]]  # training step, nats per token or label


@rc_context(STYLE)
def layer_curves(quantities: Sequence[Quantity], suites: Sequence[Suite]) -> Figure:
    """One row of panels per quantity, one column per model; a line's colour says how late its
    checkpoint is.
    """
    figure = blank(0.6 + 1.9 * len(quantities))
    axes = figure.subplots(len(quantities), len(suites), squeeze=False, sharey="row")
    for quantity, row in zip(quantities, axes, strict=True):
        row[0].set_title(quantity.title, loc="left", fontweight="bold")
        row[0].set_ylabel(quantity.units or quantity.title)
        for ax, suite in zip(row, suites, strict=True):
            _curves(ax, quantity.values, suite)
    for ax, suite in zip(axes[0], suites, strict=True):
        ax.annotate(
            suite.model,
            (0.5, 1),
            (0, 17),
            "axes fraction",
            "offset points",
            ha="center",
            fontsize=9.5,
        )
    handles = [
        Line2D([], [], color=c, lw=1.8, label=step_label(name))
        for name, c in _colours(suites[-1]).items()
    ]
    figure.legend(
        handles=handles, title="training step", loc="outside right upper", handlelength=1.2
    )
    figure.supxlabel("layer (0 is the embedding)", fontsize=8.5)
    return figure


@rc_context(STYLE)
def layer_axes(quantity: Quantity, suite: Suite, ax: Axes | None = None) -> Axes:
    """One quantity along the layers of a model, one line for each checkpoint."""
    ax = axes_for(ax, 3.2)
    measured = {arm.revision for arm in quantity.values if arm.model == suite.model}
    revisions = tuple(name for name in suite.revisions if name in measured)
    suite = replace(suite, revisions=revisions or suite.revisions)
    _curves(ax, quantity.values, suite)
    ax.set(
        xlabel="layer (0 is the embedding)",
        ylabel=quantity.units or quantity.title,
        title=quantity.title,
    )
    if len(suite.revisions) > 1:
        handles = [
            Line2D([], [], color=c, lw=1.8, label=step_label(name))
            for name, c in _colours(suite).items()
        ]
        ax.legend(
            handles=handles,
            title="training step",
            handlelength=1.2,
            loc="center left",
            bbox_to_anchor=(1, 0.5),
        )
    return ax


def _curves(ax: Axes, values: Mapping[Arm, float], suite: Suite) -> None:
    for revision, colour in _colours(suite).items():
        arms = (Arm(suite.model, revision, layer) for layer in suite.layers)
        shown = [arm for arm in arms if arm in values]
        ax.plot(
            [arm.layer for arm in shown],
            [values[arm] for arm in shown],
            color=colour,
            lw=1.5,
            marker="o",
            ms=2.6,
        )
    ax.set_xlim(suite.layers[0] - 0.15, suite.layers[-1] + 0.15)
    ax.set_xticks(thinned(suite.layers, MOST_LAYERS))
    ax.yaxis.set_major_locator(MaxNLocator(4))


def _colours(suite: Suite) -> dict[str, Any]:
    shown = spread(suite.revisions, LINES)
    shades = matplotlib.colormaps["cividis"]
    return {revision: shades(0.92 * i / max(1, len(shown) - 1)) for i, revision in enumerate(shown)}


@rc_context(STYLE)
def search_path(
    points: Sequence[DecisionPoint], suites: Sequence[Suite], default: float | None, unit: str
) -> Figure:
    """Above the best mean score so far, below the arm of each decision, both by total cost."""
    figure = blank(5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.2))
    _best(upper, points, default)
    upper.set_ylabel("best mean score\nso far")
    _decisions(lower, points, suites)
    lower.set_xlabel(f"cost spent, {unit}")
    lower.set_xlim(left=0)
    figure.legend(*lower.get_legend_handles_labels(), loc="outside upper left", ncols=len(STAGES))
    return figure


@rc_context(STYLE)
def best_so_far(
    points: Sequence[DecisionPoint], default: float | None, unit: str, ax: Axes | None = None
) -> Axes:
    """The best mean score so far, by total cost."""
    ax = axes_for(ax, 3.2)
    _best(ax, points, default)
    ax.set(xlabel=f"cost spent, {unit}", ylabel="best mean score so far")
    ax.set_xlim(left=0)
    return ax


def _best(ax: Axes, points: Sequence[DecisionPoint], default: float | None) -> None:
    scored = [(point.spent, point.best) for point in points if point.best is not None]
    if scored:
        ax.step(*zip(*scored, strict=True), where="post", color=COLOURS[0], lw=1.6)
    if default is not None:
        ax.axhline(default, color="0.35", lw=1, ls="--")
        ax.annotate(
            "default arm",
            (0, default),
            (5, 3),
            ("axes fraction", "data"),
            "offset points",
            fontsize=8,
        )
    ax.margins(y=0.2)


def _decisions(ax: Axes, points: Sequence[DecisionPoint], suites: Sequence[Suite]) -> None:
    """Arms from below: model by model, one unit per checkpoint, in which deeper layers are higher."""
    starts = np.cumsum([0, *(len(suite.revisions) for suite in suites)]).tolist()
    heights = {}
    for start, suite in zip(starts, suites, strict=False):
        for i, arm in enumerate(suite.arms()):
            checkpoint, row = divmod(i, len(suite.rows))
            heights[arm] = start + checkpoint + (row + 0.5) / len(suite.rows)
    for stage, (colour, marker, size) in STAGES.items():
        shown = [
            (point.spent, heights[point.arm])
            for point in points
            if point.stage == stage and point.arm in heights
        ]
        if shown:
            spent, height = zip(*shown, strict=True)
            ax.scatter(
                spent, height, s=size, color=colour, marker=marker, lw=0, label=stage, clip_on=False
            )
    ax.set_ylim(0, starts[-1])
    ax.grid(axis="y", visible=False)
    _checkpoint_axis(ax, suites, starts)


def _checkpoint_axis(ax: Axes, suites: Sequence[Suite], starts: Sequence[int]) -> None:
    """Training steps as ticks on the left, names of models on the right, and lines between models."""
    stride = -(-starts[-1] // MOST_CHECKPOINTS)
    ticks = {}
    for start, suite in zip(starts, suites, strict=False):
        for i in range(0, len(suite.revisions), stride):
            # a tick just below the next model's first would touch it
            if i == 0 or len(suite.revisions) - i >= 0.8 * stride:
                ticks[start + i + 0.5] = step_label(suite.revisions[i])
    ax.set_yticks(list(ticks), list(ticks.values()))
    for start, suite in zip(starts, suites, strict=False):
        middle = start + len(suite.revisions) / 2
        ax.annotate(
            suite.model,
            (1, middle),
            (5, 0),
            ("axes fraction", "data"),
            "offset points",
            ha="left",
            va="center",
            rotation=270,
        )
        if start:
            ax.axhline(start, color="0.3", lw=0.8)
    ax.set_ylabel("checkpoint (training step)")


@rc_context(STYLE)
def training_loss(losses: Mapping[str, Losses]) -> Figure:
    """Loss against training step, one line per model; step 0 stands beside the logarithmic steps."""
    figure = blank(2.9)
    ax = figure.subplots()
    for i, (model, points) in enumerate(losses.items()):
        ax.plot(*zip(*points, strict=True), ms=4, lw=1.4, label=model, **look(i))
    steps = sorted({step for step, _ in chain.from_iterable(losses.values())})
    ax.set_xscale("symlog", linthresh=1, linscale=0.4)
    ax.set_xticks(steps[:: max(1, len(steps) // 14)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: step_label(f"step{value:.0f}")))
    ax.minorticks_off()
    ax.set(xlabel="training step", ylabel="loss, nats per token")
    figure.legend(loc="outside upper left", ncols=7)
    return figure


def read_losses(folder: Path) -> Losses:
    """The losses that the ranks of a suite recorded, oldest first; empty if there are none."""
    path = folder / "progress.jsonl"
    if not path.is_file():
        return []
    # a killed rank leaves half a line
    lines = [
        json.loads(line)
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.endswith("}")
    ]
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
    return atomic_write(folder / "loss.png", rendered(figure, "png"))
