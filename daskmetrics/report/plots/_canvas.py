"""A blank sheet measured in inches, on which figures of many panels are drawn.

All panels of a figure share one pair of axes without ticks: matplotlib's own, of which there would be dozens, take most
of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

WIDTH = 10.0  # inches
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")  # Okabe and Ito (2008)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def blank(height: float) -> tuple[Figure, Any]:
    """A figure of so many inches, and the axes that cover it."""
    figure = Figure(figsize=(WIDTH, height))
    ax = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, height), autoscale_on=False)
    ax.set_axis_off()
    return figure, ax


@dataclass(frozen=True)
class Box:
    """Where something lies on the page, in inches from its lower left corner."""

    left: float
    bottom: float
    width: float
    height: float

    @property
    def top(self) -> float:
        return self.bottom + self.height

    @property
    def extent(self) -> tuple[float, float, float, float]:
        return self.left, self.left + self.width, self.bottom, self.top

    def x(self, value: float, low: float, high: float) -> float:
        """Where a value lies between the left edge (low) and the right one (high)."""
        return self.left + (value - low) / ((high - low) or 1.0) * self.width

    def y(self, value: float, low: float, high: float) -> float:
        """Where a value lies between the lower edge (low) and the upper one (high)."""
        return self.bottom + (value - low) / ((high - low) or 1.0) * self.height

    def columns(self, n: int) -> NDArray[np.float64]:
        """The middles of n columns."""
        return np.asarray(self.left + (np.arange(n) + 0.5) * self.width / n)

    def rows(self, n: int) -> NDArray[np.float64]:
        """The middles of n rows, from below."""
        return np.asarray(self.bottom + (np.arange(n) + 0.5) * self.height / n)


def round_values(low: float, high: float) -> list[tuple[float, str]]:
    """About four round values in a range, with labels of equally many decimals.

    Examples
    --------
    >>> [label for _, label in round_values(0.478, 0.524)]
    ['0.480', '0.495', '0.510']
    """
    values = MaxNLocator(4).tick_values(low, high) if high > low else np.array([low])
    inside = [float(value) for value in values if low <= value <= high]
    if not 1e-3 <= max(map(abs, inside)) < 1e5:
        return [(value, f"{value:.3g}") for value in inside]
    decimals = max(len(f"{value:.6f}".rstrip("0").partition(".")[2]) for value in inside)
    return [(value, f"{value:.{decimals}f}") for value in inside]


Range = tuple[float, float]
ROOM = 0.06  # between the outermost points and the edge of their panel, as a share of their range


def spanned(values: Sequence[float]) -> Range:
    """From the least to the greatest value, with some room on either side.

    Examples
    --------
    >>> spanned([]), spanned([0.0, 100.0])
    ((0.0, 1.0), (-6.0, 106.0))
    """
    if not values:
        return 0.0, 1.0
    room = ROOM * ((max(values) - min(values)) or abs(values[0]) or 1.0)
    return min(values) - room, max(values) + room


def frame(
    ax: Any, box: Box, across: Range, up: Range, label: str | None, ticks: Sequence[tuple[float, str]] | None = None
) -> None:
    """The two axes of a panel with a light grid, ticks across as given or at round values.

    With a label, what lies up is written beside it.
    """
    right = box.left + box.width
    for value, text in round_values(*across) if ticks is None else ticks:
        x = box.x(value, *across)
        ax.plot([x, x], [box.bottom, box.top], color="0.9", lw=0.6, zorder=0)
        ax.text(x, box.bottom - 0.07, text, ha="center", va="top", fontsize=7.5)
    for value, text in round_values(*up):
        y = box.y(value, *up)
        ax.plot([box.left, right], [y, y], color="0.9", lw=0.6, zorder=0)
        if label is not None:
            ax.text(box.left - 0.06, y, text, ha="right", va="center_baseline", fontsize=7.5)
    ax.plot([box.left, box.left, right], [box.top, box.bottom, box.bottom], color="black", lw=0.7, zorder=1)
    if label is not None:
        at = box.left - 0.48, box.bottom + box.height / 2
        ax.text(*at, label, rotation=90, ha="center", va="center", fontsize=8.5)
