"""Heat maps of layer x checkpoint, one row per quantity and one column per model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from daskmetrics.core._steps import step_label
from daskmetrics.core.names import Arm, Suite
from daskmetrics.report.plots._canvas import WIDTH, Box, blank, round_values

LEFT, RIGHT, TOP, BOTTOM = 0.6, 0.95, 0.72, 0.52  # margins in inches
GAP = 0.4  # inches between two rows, for the title of the lower one
BESIDE = 0.32  # inches between two maps of a row, for the layers of the right one
MOST_STEPS = 26  # checkpoints labelled along the whole width
MOST_LAYERS = 7  # layers labelled beside one map
NO_VALUE: dict[str, Any] = {
    "facecolor": "#f3f3f3",
    "edgecolor": "#d0d0d0",
    "hatch": "////",
    "linewidth": 0,
    "zorder": -1,
}
STAR: dict[str, Any] = {"marker": "*", "markersize": 10, "markerfacecolor": "white"}
RING: dict[str, Any] = {"marker": "o", "markersize": 12, "markerfacecolor": "none"}


@dataclass(frozen=True)
class Quantity:
    """One row of maps: a value per arm, and how it is shown.

    Attributes
    ----------
    title, units : str
    values : mapping of Arm to float
        Arms that are lacking are hatched.
    colours : str
        A perceptually uniform colour map.
    most : int or None
        For counts, the greatest possible one.
    """

    title: str
    units: str
    values: Mapping[Arm, float]
    colours: str = "viridis"
    most: int | None = None


@dataclass(frozen=True)
class Marks:
    """Arms that are pointed out on every map."""

    best: Arm | None = None
    default: Arm | None = None


def heat_maps(quantities: Sequence[Quantity], suites: Sequence[Suite], marks: Marks) -> Figure:
    """All quantities of all models; the models of one row share their colours."""
    row_height = float(np.clip(0.19 * max(len(suite.layers) for suite in suites), 0.75, 1.6))
    height = TOP + BOTTOM + len(quantities) * (row_height + GAP) - GAP
    figure, ax = blank(height)
    for i, quantity in enumerate(quantities):
        bottom = height - TOP - (i + 1) * row_height - i * GAP
        boxes = list(_boxes(suites, bottom, row_height))
        _row(ax, quantity, suites, boxes, marks)
        if i == 0:
            _models(ax, suites, boxes)
    _steps(ax, suites, boxes)
    _legend(ax, height, marks)
    return figure


def plane(values: Mapping[Arm, float], suite: Suite) -> NDArray[np.float64]:
    """Values of one model, (layers, checkpoints); NaN where there is none.

    Examples
    --------
    >>> plane({Arm("m", "step1", 0): 0.5}, Suite("m", ("step0", "step1"), (0,), 1))
    array([[nan, 0.5]])
    """
    rows = [[values.get(Arm(suite.model, r, layer), np.nan) for r in suite.revisions] for layer in suite.layers]
    return np.array(rows, dtype=float)


def _boxes(suites: Sequence[Suite], bottom: float, height: float) -> Iterator[Box]:
    """One box per model, as wide as its number of checkpoints asks, none too narrow for its name."""
    counts = np.array([len(suite.revisions) for suite in suites], dtype=float)
    shares = np.maximum(counts, 0.4 * counts.mean())
    room = WIDTH - LEFT - RIGHT - BESIDE * (len(suites) - 1)
    left = LEFT
    for share in shares / shares.sum():
        yield Box(left, bottom, float(share * room), height)
        left += float(share * room) + BESIDE


def _row(ax: Any, quantity: Quantity, suites: Sequence[Suite], boxes: Sequence[Box], marks: Marks) -> None:
    planes = [plane(quantity.values, suite) for suite in suites]
    style = {"norm": _norm(quantity, planes), "cmap": quantity.colours, "interpolation": "nearest", "aspect": "auto"}
    for suite, values, box in zip(suites, planes, boxes, strict=True):
        ax.add_patch(Rectangle((box.left, box.bottom), box.width, box.height, **NO_VALUE))
        ax.imshow(np.ma.masked_invalid(values), origin="lower", extent=box.extent, **style)
        for at, layer in _thinned(box.rows(len(suite.layers)), suite.layers, MOST_LAYERS):
            ax.text(box.left - 0.05, at, str(layer), ha="right", va="center_baseline", fontsize=7.5)
        for arm, look in ((marks.default, RING), (marks.best, STAR)):
            _mark(ax, suite, box, arm, look)
    first = boxes[0]
    ax.text(first.left, first.top + 0.06, quantity.title, fontsize=9, fontweight="bold")
    ax.text(
        first.left - 0.36, first.bottom + first.height / 2, "layer", rotation=90, fontsize=8, ha="center", va="center"
    )
    _colour_bar(ax, quantity, Box(WIDTH - RIGHT + 0.14, first.bottom, 0.13, first.height), style)


def _norm(quantity: Quantity, planes: Sequence[NDArray[np.float64]]) -> Normalize:
    if quantity.most is not None:
        return BoundaryNorm(np.arange(quantity.most + 1) + 0.5, 256)
    finite = np.concatenate([values[np.isfinite(values)] for values in planes])
    return Normalize(float(finite.min()), float(finite.max())) if len(finite) else Normalize(0, 1)


def _colour_bar(ax: Any, quantity: Quantity, box: Box, style: Mapping[str, Any]) -> None:
    if quantity.most is not None:
        counts = np.arange(1, quantity.most + 1)
        ax.imshow(counts[:, None], origin="lower", extent=box.extent, **style)
        ticks = list(_thinned(box.rows(len(counts)), counts, 5))
    else:
        low, high = style["norm"].vmin, style["norm"].vmax
        ax.imshow(np.linspace(low, high, 64)[:, None], origin="lower", extent=box.extent, **style)
        ticks = [(box.y(value, low, high), label) for value, label in round_values(low, high)]
    for at, label in ticks:
        ax.text(box.left + box.width + 0.05, at, str(label), va="center_baseline", fontsize=7)
    middle = box.bottom + box.height / 2
    ax.text(WIDTH - 0.14, middle, quantity.units, rotation=90, fontsize=8, ha="center", va="center")


def _mark(ax: Any, suite: Suite, box: Box, arm: Arm | None, look: Mapping[str, Any]) -> None:
    if arm is None or arm.model != suite.model or arm.revision not in suite.revisions or arm.layer not in suite.layers:
        return
    x = box.columns(len(suite.revisions))[suite.revisions.index(arm.revision)]
    y = box.rows(len(suite.layers))[suite.layers.index(arm.layer)]
    _symbol(ax, x, y, look)


def _symbol(ax: Any, x: float, y: float, look: Mapping[str, Any]) -> None:
    # a white rim below the black one keeps a mark visible on dark and on light colours
    ax.plot([x], [y], markeredgecolor="white", markeredgewidth=2.4, zorder=5, **look)
    ax.plot([x], [y], markeredgecolor="black", markeredgewidth=0.9, zorder=6, **look)


def _models(ax: Any, suites: Sequence[Suite], boxes: Sequence[Box]) -> None:
    for suite, box in zip(suites, boxes, strict=True):
        ax.text(box.left + box.width / 2, box.top + 0.27, suite.model, ha="center", fontsize=9.5)


def _steps(ax: Any, suites: Sequence[Suite], boxes: Sequence[Box]) -> None:
    """Training steps below the lowest maps."""
    for suite, box in zip(suites, boxes, strict=True):
        labels = [step_label(revision) for revision in suite.revisions]
        most = int(MOST_STEPS * box.width / (WIDTH - LEFT - RIGHT))
        for at, label in _thinned(box.columns(len(labels)), labels, most):
            ax.text(at, box.bottom - 0.06, label, ha="center", va="top", fontsize=7.5)
        ax.text(box.left + box.width / 2, box.bottom - 0.24, "training step", ha="center", va="top", fontsize=8.5)


def _thinned(
    places: NDArray[np.float64], labels: Sequence[Any] | NDArray[Any], most: int
) -> Iterator[tuple[float, Any]]:
    """At most so many labels with their places, evenly spaced."""
    stride = max(1, -(-len(labels) // max(1, most)))
    return zip(places[::stride].tolist(), labels[::stride], strict=True)


def _legend(ax: Any, height: float, marks: Marks) -> None:
    """What the marks mean, in the upper right corner."""
    y, x = height - 0.16, WIDTH - RIGHT - 0.75
    ax.add_patch(Rectangle((x, y - 0.07), 0.24, 0.14, **NO_VALUE))
    ax.text(x + 0.3, y, "no value", va="center_baseline", fontsize=8)
    for arm, look, label in ((marks.default, RING, "default arm"), (marks.best, STAR, "best arm")):
        if arm is not None:
            x -= 1.02
            _symbol(ax, x + 0.12, y, look)
            ax.text(x + 0.26, y, label, va="center_baseline", fontsize=8)
