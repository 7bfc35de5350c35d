"""Metric against score: whether a label-free metric ranks arms as the tasks do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from daskmetrics.core.names import Arm
from daskmetrics.report._analysis import rank_correlation
from daskmetrics.report.plots._canvas import COLOURS, MARKERS, WIDTH, Box, blank, frame, spanned

COLUMNS = 3
FEWEST = 5  # points below which a rank correlation says nothing
LEFT, TOP, ACROSS, DOWN = 0.62, 0.58, 0.24, 0.78  # inches: margins, and gaps between panels
PANEL_HEIGHT = 1.7


def metric_against_score(
    metrics: Mapping[str, Mapping[Arm, float]],
    units: Mapping[str, str],
    scores: Mapping[Arm, float],
    models: Sequence[str],
) -> Figure:
    """One panel per metric: each point an arm, its metric against its score in standard deviations."""
    rows = -(-len(metrics) // COLUMNS)
    height = TOP + rows * (PANEL_HEIGHT + DOWN) - 0.22
    figure, ax = blank(height)
    width = (WIDTH - LEFT - 0.15 - ACROSS * (COLUMNS - 1)) / COLUMNS
    for i, (name, values) in enumerate(metrics.items()):
        row, column = divmod(i, COLUMNS)
        bottom = height - TOP - (row + 1) * PANEL_HEIGHT - row * DOWN
        box = Box(LEFT + column * (width + ACROSS), bottom, width, PANEL_HEIGHT)
        label = f"{name}, {units[name]}" if units.get(name) else name
        _panel(ax, box, label, values, scores, models, outer=column == 0)
    shown = [model for model in models if any(arm.model == model for arm in scores)]
    _legend(ax, height, [(model, models.index(model)) for model in shown])
    return figure


def _panel(
    ax: Any,
    box: Box,
    label: str,
    metric: Mapping[Arm, float],
    scores: Mapping[Arm, float],
    models: Sequence[str],
    outer: bool,
) -> None:
    points = [(metric[arm], score, models.index(arm.model)) for arm, score in scores.items() if arm in metric]
    across, up = spanned([x for x, _, _ in points]), spanned(list(scores.values()))
    frame(ax, box, across, up, "score, sd of a task" if outer else None)
    for model in sorted({model for _, _, model in points}):
        own = [(box.x(x, *across), box.y(y, *up)) for x, y, of in points if of == model]
        ax.plot(*zip(*own, strict=True), **_style(model))
    middle = box.left + box.width / 2
    ax.text(box.left + box.width, box.top + 0.07, _rho([p[:2] for p in points]), ha="right", fontsize=8.5)
    ax.text(middle, box.bottom - 0.28, label, ha="center", va="top", fontsize=8.5)


def _rho(points: Sequence[tuple[float, float]]) -> str:
    if len(points) < FEWEST:
        return f"too few arms (n = {len(points)})"
    rho = f"{rank_correlation(*zip(*points, strict=True)):+.2f}".replace("-", "\N{MINUS SIGN}")
    return f"Spearman's ρ = {rho} (n = {len(points)})"


def _style(model: int) -> dict[str, Any]:
    colour, marker = COLOURS[model % len(COLOURS)], MARKERS[model % len(MARKERS)]
    return {"color": colour, "marker": marker, "linestyle": "none", "ms": 4.8, "mew": 0, "alpha": 0.75, "zorder": 2}


def _legend(ax: Any, height: float, models: Sequence[tuple[str, int]]) -> None:
    x = LEFT
    for name, model in models:
        ax.plot([x + 0.06], [height - 0.15], **_style(model))
        ax.text(x + 0.16, height - 0.15, name, va="center_baseline", fontsize=8.5)
        x += 0.45 + 0.075 * len(name)


LEFT, TOP, ROW, BOTTOM = 1.9, 0.5, 0.3, 0.15  # inches
WIDEST = 1.6  # inches of a column
LIGHT = 0.55  # a correlation beyond which the colour is so dark that its number is white
Table = Mapping[str, Mapping[str, tuple[float, int]]]


def correlation_table(found: Table) -> Figure:
    """A row per metric, a column per kind of task: Spearman's rho, and the number of cells that it rests on."""
    groups = list(dict.fromkeys(group for row in found.values() for group in row))
    height = TOP + ROW * len(found) + BOTTOM
    figure, ax = blank(height)
    width = min(WIDEST, (WIDTH - LEFT - 0.2) / len(groups))
    for column, group in enumerate(groups):
        ax.text(LEFT + (column + 0.5) * width, height - TOP + 0.1, group, ha="center", fontsize=8.5)
    for row, name in enumerate(sorted(found, key=lambda name: -_strength(found[name][groups[0]]))):
        bottom = height - TOP - (row + 1) * ROW
        ax.text(LEFT - 0.12, bottom + ROW / 2, name, ha="right", va="center_baseline", fontsize=8.5)
        for column, group in enumerate(groups):
            _cell(ax, Box(LEFT + column * width, bottom, width, ROW), *found[name][group])
    return figure


def _strength(told: tuple[float, int]) -> float:
    rho, _ = told
    return abs(rho) if rho == rho else -1.0


def _cell(ax: Any, box: Box, rho: float, count: int) -> None:
    colour: Any = matplotlib.colormaps["PuOr"](0.5 + rho / 2) if rho == rho else "#f3f3f3"
    ax.add_patch(Rectangle((box.left, box.bottom), box.width, box.height, facecolor=colour, edgecolor="white", lw=1.2))
    text = f"{rho:+.2f}".replace("-", "\N{MINUS SIGN}") + f"  ({count:,})" if rho == rho else "too few"
    style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 8}
    ax.text(
        box.left + box.width / 2, box.bottom + box.height / 2, text,
        color="white" if rho == rho and abs(rho) > LIGHT else "#1c2128", **style,
    )  # fmt: skip
