"""Which metrics predict quality here: rank correlations as a table of colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from daskmetrics.report.sheet import WIDTH, Box, blank

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
