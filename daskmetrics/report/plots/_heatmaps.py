"""Heat maps of layer x checkpoint, one row per quantity and one column per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, Locator, MaxNLocator
from numpy.typing import NDArray

from daskmetrics.core.names import Arm, Suite
from daskmetrics.core.steps import step_label
from daskmetrics.report.plots._style import STYLE, axes_for, blank, thinned

MOST_STEPS = 26  # checkpoints labelled along the whole width
MOST_LAYERS = 7  # layers labelled beside one map
NO_VALUE: dict[str, Any] = {
    "facecolor": "#f3f3f3",
    "edgecolor": "#d0d0d0",
    "hatch": "////",
    "linewidth": 0,
}
# a white rim around the black one keeps a mark visible on dark and on light colours
_MARK: dict[str, Any] = {
    "linestyle": "none",
    "markeredgecolor": "black",
    "markeredgewidth": 0.9,
    "clip_on": False,
    "path_effects": [withStroke(linewidth=2.4, foreground="white")],
}
STAR = {"marker": "*", "markersize": 10, "markerfacecolor": "white", **_MARK}
RING = {"marker": "o", "markersize": 12, "markerfacecolor": "none", **_MARK}


@dataclass(frozen=True)
class Quantity:
    """One row of maps: a value per arm, and how it is shown; missing arms are hatched."""

    title: str
    units: str
    values: Mapping[Arm, float]
    colours: str = "viridis"
    most: int | None = None  # for counts, the greatest possible one


Marks = Mapping[str, Arm]  # arms that are marked on every map: the ``best`` and the ``default`` one


@rc_context({**STYLE, "axes.grid": False})
def heat_maps(quantities: Sequence[Quantity], suites: Sequence[Suite], marks: Marks) -> Figure:
    """All quantities of all models; the models of one row share their colours."""
    row_height = float(np.clip(0.19 * max(len(suite.layers) for suite in suites), 0.75, 1.6))
    figure = blank(1.0 + len(quantities) * (row_height + 0.36))
    counts = np.array([len(suite.revisions) for suite in suites], dtype=float)
    # no map is too narrow for the name of its model
    shares = np.maximum(counts, 0.4 * counts.mean())
    axes = figure.subplots(
        len(quantities), len(suites), squeeze=False, width_ratios=shares.tolist()
    )
    for quantity, row in zip(quantities, axes, strict=True):
        _row(figure, row, quantity, suites, marks)
    for top, lowest, suite, share in zip(
        axes[0], axes[-1], suites, shares / shares.sum(), strict=True
    ):
        top.annotate(
            suite.model,
            (0.5, 1),
            (0, 19),
            "axes fraction",
            "offset points",
            ha="center",
            fontsize=9.5,
        )
        places = thinned(range(len(suite.revisions)), int(MOST_STEPS * share))
        lowest.set_xticks(places, [step_label(suite.revisions[i]) for i in places])
        lowest.set_xlabel("training step")
    looks = {"best": STAR, "default": RING}
    handles: list[Artist] = [
        Line2D([], [], label=f"{name} arm", **look) for name, look in looks.items() if name in marks
    ]
    handles.append(Patch(label="no value", **NO_VALUE))
    figure.legend(handles=handles, loc="outside upper right", ncols=3)
    return figure


def plane(values: Mapping[Arm, float], suite: Suite) -> NDArray[np.float64]:
    """Values of one model, (layers, checkpoints); NaN where there is none.

    >>> plane({Arm("m", "step1", 0): 0.5}, Suite("m", ("step0", "step1"), (0,), 1))
    array([[nan, 0.5]])
    """
    numbers = np.full((len(suite.layers), len(suite.revisions)), np.nan)
    for (row, column), _ in np.ndenumerate(numbers):
        arm = Arm(suite.model, suite.revisions[column], suite.layers[row])
        numbers[row, column] = values.get(arm, np.nan)
    return numbers


@rc_context({**STYLE, "axes.grid": False})
def heat_map(quantity: Quantity, suite: Suite, marks: Marks, ax: Axes | None = None) -> Axes:
    """One quantity of one model by checkpoint and layer."""
    ax = axes_for(ax, 3.2)
    values = plane(quantity.values, suite)
    norm = _norm(quantity, [values])
    _map(ax, values, norm, quantity, suite, marks)
    ax.grid(visible=False)
    places = thinned(range(len(suite.revisions)), MOST_STEPS // 2)
    ax.set_xticks(places, [step_label(suite.revisions[i]) for i in places])
    ax.set(xlabel="training step", ylabel="layer", title=f"{quantity.title}, {suite.model}")
    bar = ax.figure.colorbar(ScalarMappable(norm, quantity.colours), ax=ax, label=quantity.units)
    bar.outline.set_visible(False)
    return ax


def _norm(quantity: Quantity, planes: Sequence[NDArray[np.float64]]) -> Normalize:
    """The colours of values; of counts, one for each number."""
    if quantity.most is not None:
        return BoundaryNorm(np.arange(quantity.most + 1) + 0.5, 256)
    finite = np.concatenate([values[np.isfinite(values)] for values in planes])
    if not len(finite):
        return Normalize(0, 1)
    return Normalize(float(finite.min()), float(finite.max()))


def _map(
    ax: Axes,
    values: NDArray[np.float64],
    norm: Normalize,
    quantity: Quantity,
    suite: Suite,
    marks: Marks,
) -> None:
    ax.patch.set(**NO_VALUE)
    ax.spines[:].set_visible(False)
    ax.imshow(
        values,
        norm=norm,
        cmap=quantity.colours,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
    )
    places = thinned(range(len(suite.layers)), MOST_LAYERS)
    ax.set_yticks(places, [str(suite.layers[i]) for i in places])
    ax.set_xticks([])
    ax.tick_params(length=0)
    for name, look in (("default", RING), ("best", STAR)):
        arm = marks.get(name)
        if arm and arm.checkpoint in suite.checkpoints() and arm.layer in suite.layers:
            ax.plot(suite.revisions.index(arm.revision), suite.layers.index(arm.layer), **look)


def _row(
    figure: Figure, row: Sequence[Axes], quantity: Quantity, suites: Sequence[Suite], marks: Marks
) -> None:
    planes = [plane(quantity.values, suite) for suite in suites]
    norm = _norm(quantity, planes)
    for ax, values, suite in zip(row, planes, suites, strict=True):
        _map(ax, values, norm, quantity, suite, marks)
    row[0].set_title(quantity.title, loc="left", fontsize=9, fontweight="bold", pad=4)
    row[0].set_ylabel("layer")
    ticks: Locator = MaxNLocator(4)
    if quantity.most is not None:
        ticks = FixedLocator(thinned(range(1, quantity.most + 1), 5))
    colours = ScalarMappable(norm, quantity.colours)
    bar = figure.colorbar(
        colours, ax=row, ticks=ticks, label=quantity.units, aspect=10, fraction=0.02, pad=0.01
    )
    bar.minorticks_off()
    bar.outline.set_visible(False)
