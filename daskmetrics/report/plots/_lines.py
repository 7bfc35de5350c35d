"""A quantity along the layers of each model, one line per checkpoint: how depth matters, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from daskmetrics.core._steps import step_label
from daskmetrics.core.names import Arm, Suite
from daskmetrics.report.plots._canvas import COLOURS, MARKERS, WIDTH, Box, blank, frame, spanned
from daskmetrics.report.plots._heatmaps import Quantity

LINES = 8  # checkpoints of a model that are drawn: evenly chosen, the first and the last among them
MOST_LAYERS = 9  # labelled below one panel
LEFT, TOP, ACROSS, DOWN, HEIGHT = 0.72, 0.42, 0.3, 0.55, 1.45  # inches: margins, gaps between panels, a panel


def layer_curves(quantities: Sequence[Quantity], suites: Sequence[Suite]) -> Figure:
    """One row of panels per quantity, one column per model; a line's colour says how late its checkpoint is."""
    height = TOP + len(quantities) * (HEIGHT + DOWN)
    figure, ax = blank(height)
    width = (WIDTH - LEFT - 0.95 - ACROSS * (len(suites) - 1)) / len(suites)
    for i, quantity in enumerate(quantities):
        up = spanned([value for arm, value in quantity.values.items() if _is_drawn(arm, suites)])
        for column, suite in enumerate(suites):
            bottom = height - TOP - (i + 1) * HEIGHT - i * DOWN
            box = Box(LEFT + column * (width + ACROSS), bottom, width, HEIGHT)
            _panel(ax, box, quantity, suite, up, first=column == 0)
            if i == 0:
                ax.text(box.left + width / 2, box.top + 0.2, suite.model, ha="center", fontsize=9.5)
    _legend(ax, suites[-1], WIDTH - 0.85, height - TOP)
    ax.text(LEFT + (WIDTH - LEFT - 0.95) / 2, 0.08, "layer (0 is the embedding)", ha="center", fontsize=8.5)
    return figure


def chosen(revisions: Sequence[str]) -> tuple[str, ...]:
    """The checkpoints that have a line.

    Examples
    --------
    >>> chosen([f"step{i}" for i in range(15)])
    ('step0', 'step2', 'step4', 'step6', 'step8', 'step10', 'step12', 'step14')
    """
    if len(revisions) <= LINES:
        return tuple(revisions)
    last = len(revisions) - 1
    return tuple(revisions[round(i * last / (LINES - 1))] for i in range(LINES))


def _is_drawn(arm: Arm, suites: Sequence[Suite]) -> bool:
    return any(arm.model == suite.model and arm.revision in chosen(suite.revisions) for suite in suites)


def _panel(ax: Any, box: Box, quantity: Quantity, suite: Suite, up: tuple[float, float], first: bool) -> None:
    across = (suite.layers[0] - 0.15, suite.layers[-1] + 0.15)
    stride = -(-len(suite.layers) // MOST_LAYERS)
    ticks = [(float(layer), str(layer)) for layer in suite.layers[::stride]]
    frame(ax, box, across, up, (quantity.units or quantity.title) if first else None, ticks)
    if first:
        ax.text(box.left, box.top + 0.05, quantity.title, fontsize=8.5, fontweight="bold")
    for revision, colour in _colours(suite).items():
        points = _line(quantity.values, suite, revision)
        places = [(box.x(layer, *across), box.y(value, *up)) for layer, value in points]
        if places:
            ax.plot(*zip(*places, strict=True), color=colour, lw=1.5, marker="o", ms=2.6, mew=0, zorder=2)


def _line(values: Mapping[Arm, float], suite: Suite, revision: str) -> list[tuple[int, float]]:
    arms = [Arm(suite.model, revision, layer) for layer in suite.layers]
    return [(arm.layer, values[arm]) for arm in arms if arm in values]


def _colours(suite: Suite) -> dict[str, Any]:
    shown = chosen(suite.revisions)
    shades = matplotlib.colormaps["cividis"]
    return {revision: shades(0.92 * i / max(1, len(shown) - 1)) for i, revision in enumerate(shown)}


def _legend(ax: Any, suite: Suite, left: float, top: float) -> None:
    ax.text(left, top, "training step", fontsize=8, va="center_baseline")
    for i, (revision, colour) in enumerate(_colours(suite).items(), start=1):
        y = top - 0.17 * i
        ax.plot([left, left + 0.2], [y, y], color=colour, lw=1.8)
        ax.text(left + 0.28, y, step_label(revision), fontsize=8, va="center_baseline")


STAGES = {"baseline": ("#7f7f7f", "o", 14), "search": ("#0072b2", ".", 34), "confirm": ("#d55e00", "D", 16)}
MOST_CHECKPOINTS = 26  # labelled beside the search's path


@dataclass(frozen=True)
class Step:
    """One decision of the search: what it had cost in all, for which arm, and the best mean score known then."""

    spent: float
    arm: Arm
    stage: str
    best: float | None


def search_path(steps: Sequence[Step], suites: Sequence[Suite], default: float | None, unit: str) -> Figure:
    """Above the best mean score known so far, below the arm that was looked at, both by cost spent."""
    figure = Figure(figsize=(WIDTH, 5.6))
    grid = _margins(figure, 0.4, 0.5, 0.12, rows=2) | {"height_ratios": (1, 2.2), "left": 1.5 / WIDTH}
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw=grid)
    _best_so_far(upper, steps, default)
    _looked_at(lower, steps, suites)
    lower.set_xlabel(f"cost spent, {unit}", fontsize=8.5)
    lower.set_xlim(left=0)
    for ax in (upper, lower):
        _plain(ax)
    lower.grid(axis="y", visible=False)
    _axes_legend(figure, lower)
    return figure


def _best_so_far(ax: Any, steps: Sequence[Step], default: float | None) -> None:
    known = [(step.spent, step.best) for step in steps if step.best is not None]
    if known:
        ax.step(*zip(*known, strict=True), where="post", color=COLOURS[0], lw=1.6)
    if default is not None:
        ax.axhline(default, color="0.35", lw=1, ls="--")
        ax.annotate("default arm", (0, default), (5, 3), ("axes fraction", "data"), "offset points", fontsize=8)
    ax.set_ylabel("best mean score\nso far", fontsize=8.5)
    ax.margins(y=0.2)


def _looked_at(ax: Any, steps: Sequence[Step], suites: Sequence[Suite]) -> None:
    """Arms from below: model by model, a unit per checkpoint, in which deeper layers lie higher."""
    starts = np.cumsum([0, *(len(suite.revisions) for suite in suites)])
    heights = {
        arm: start + i // len(suite.layers) + (i % len(suite.layers) + 0.5) / len(suite.layers)
        for start, suite in zip(starts.tolist(), suites, strict=False)
        for i, arm in enumerate(suite.arms())
    }
    for stage, (colour, marker, size) in STAGES.items():
        own = [(step.spent, heights[step.arm]) for step in steps if step.stage == stage and step.arm in heights]
        if own:
            ax.scatter(*zip(*own, strict=True), s=size, color=colour, marker=marker, lw=0, label=stage, clip_on=False)
    ax.set_ylim(0, starts[-1])
    _checkpoint_axis(ax, suites, starts.tolist())


def _checkpoint_axis(ax: Any, suites: Sequence[Suite], starts: Sequence[int]) -> None:
    """Training steps as ticks, and a line and a name for every model."""
    stride = -(-starts[-1] // MOST_CHECKPOINTS)
    # a tick just below the next model's first would touch it
    ticks = [
        (start + i + 0.5, step_label(suite.revisions[i]))
        for start, suite in zip(starts, suites, strict=False)
        for i in range(0, len(suite.revisions), stride)
        if i == 0 or len(suite.revisions) - i >= 0.8 * stride
    ]
    ax.set_yticks(*zip(*ticks, strict=True))
    for start, suite in zip(starts, suites, strict=False):
        _sideways(ax, -48, start + len(suite.revisions) / 2, suite.model)
        if start:
            ax.axhline(start, color="0.3", lw=0.8)
    _sideways(ax, -76, starts[-1] / 2, "checkpoint (training step)")


def _sideways(ax: Any, points: float, y: float, text: str) -> None:
    """A text beside the vertical axis, so many points from it."""
    style: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 90, "fontsize": 8.5}
    ax.annotate(text, (0, y), (points, 0), ("axes fraction", "data"), "offset points", **style)


def training_loss(losses: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Loss against training step, one line per model; step 0 stands beside the logarithmic steps."""
    figure = Figure(figsize=(WIDTH, 2.9))
    ax = figure.subplots(gridspec_kw=_margins(figure, 0.35, 0.5, 0, rows=1))
    for i, (model, points) in enumerate(losses.items()):
        style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        ax.plot(*zip(*points, strict=True), ms=4, lw=1.4, label=model, **style)
    steps = sorted({step for points in losses.values() for step, _ in points})
    ax.set_xscale("symlog", linthresh=1, linscale=0.4)
    ax.set_xticks(steps[:: max(1, len(steps) // 14)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: step_label(f"step{value:.0f}")))
    ax.minorticks_off()
    ax.set_xlabel("training step", fontsize=8.5)
    ax.set_ylabel("loss, nats per token", fontsize=8.5)
    _plain(ax)
    _axes_legend(figure, ax)
    return figure


def _margins(figure: Figure, top: float, bottom: float, gap: float, rows: int) -> dict[str, Any]:
    """The place of the axes, from margins and the gap between rows in inches."""
    height = float(figure.get_figheight())
    room = (height - top - bottom - gap * (rows - 1)) / rows
    return {
        "left": 0.62 / WIDTH,
        "right": 1 - 0.15 / WIDTH,
        "top": 1 - top / height,
        "bottom": bottom / height,
        "hspace": gap / room,
        "wspace": 0.07,
    }


def _plain(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=7.5, length=3)
    ax.grid(True, color="0.9", lw=0.6)
    ax.set_axisbelow(True)


def _axes_legend(figure: Figure, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles, labels, loc="upper left", bbox_to_anchor=(0.055, 1.0), ncols=7, frameon=False, fontsize=8.5,
            borderaxespad=0.2, handletextpad=0.3, columnspacing=1.4,
        )  # fmt: skip
