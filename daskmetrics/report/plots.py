"""Figures along one axis: the search's path by cost, training loss by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from daskmetrics.arms import Arm, Suite
from daskmetrics.report.sheet import COLOURS, MARKERS, WIDTH
from daskmetrics.steps import step_label

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
    _legend(figure, lower)
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
    _legend(figure, ax)
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


def _legend(figure: Figure, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles, labels, loc="upper left", bbox_to_anchor=(0.055, 1.0), ncols=7, frameon=False, fontsize=8.5,
            borderaxespad=0.2, handletextpad=0.3, columnspacing=1.4,
        )  # fmt: skip
