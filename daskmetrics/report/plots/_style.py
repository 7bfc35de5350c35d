"""Size, colours and fonts of all figures, and figures as files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daskmetrics.core.colours import COLOURS

T = TypeVar("T")
WIDTH = 10.0  # inches
DPI = 150
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE: dict[str, Any] = {
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
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "axes.formatter.useoffset": False,
    "hatch.linewidth": 0.4,
    "hatch.color": "#d0d0d0",
}


def look(model: int) -> dict[str, Any]:
    """Colour and marker of the points of a model."""
    return {"color": COLOURS[model % len(COLOURS)], "marker": MARKERS[model % len(MARKERS)]}


def blank(height: float) -> Figure:
    """An empty figure, ``height`` inches high, whose axes and legends make room for each other."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def axes_for(ax: Axes | None, height: float) -> Axes:
    """The axes to draw on; without any, those of a new figure that a notebook shows by itself."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    with rc_context(STYLE):
        axes: Axes = pyplot.subplots(figsize=(0.7 * WIDTH, height), layout="constrained")[1]
    return axes


def rendered(figure: Figure, kind: Literal["png", "svg"], name: str = "") -> bytes:
    """The figure as a file; the same figure gives the same bytes. Texts of an SVG stay texts."""
    file = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with rc_context({**STYLE, "svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format=kind, dpi=DPI, metadata=metadata)
    return file.getvalue()


def thinned(values: Sequence[T], most: int) -> Sequence[T]:
    """Every n-th value, at most ``most`` of them.

    >>> thinned(["a", "b", "c", "d", "e"], 3)
    ['a', 'c', 'e']
    """
    return values[:: -(-len(values) // max(1, most))]
