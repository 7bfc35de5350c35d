"""A quantity along the layers of each model, one line per checkpoint: how depth matters, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from daskmetrics.arms import Arm, Suite
from daskmetrics.report.maps import Quantity
from daskmetrics.report.sheet import WIDTH, Box, blank, frame, spanned
from daskmetrics.steps import step_label

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
