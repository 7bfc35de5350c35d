"""Mean scores with standard errors: along the layers of a checkpoint, or as a list of the best arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from daskmetrics.report.plots._style import COLOURS, STYLE, axes_for

MOST_ARMS = 24  # in the list
POINT: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5.5, "color": COLOURS[0]}
TIED: dict[str, Any] = {**POINT, "markerfacecolor": COLOURS[0]}
WORSE: dict[str, Any] = {**POINT, "markerfacecolor": "white"}


@rc_context(STYLE)
def along_layers(
    layers: Sequence[int], means: Sequence[float], errors: Sequence[float], tied: Sequence[bool], ax: Axes | None = None
) -> Axes:
    """The mean score of each layer; filled: tied with the best."""
    ax = axes_for(ax, 3.2)
    order = np.argsort(layers)
    ax.plot(np.take(layers, order), np.take(means, order), color=COLOURS[0], lw=1.0, alpha=0.5)
    _points(ax, np.array(layers), np.array(means), {"yerr": np.array(errors)}, np.array(tied))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="layer (0 is the embedding)", ylabel="mean score")
    return ax


@rc_context(STYLE)
def best_arms(
    names: Sequence[str], means: Sequence[float], errors: Sequence[float], tied: Sequence[bool], ax: Axes | None = None
) -> Axes:
    """The arms with the greatest mean scores, the best above; filled: tied with the best."""
    count = min(MOST_ARMS, len(names))
    ax = axes_for(ax, 0.9 + 0.22 * count)
    _points(ax, np.array(means[:count]), np.arange(count), {"xerr": np.array(errors[:count])}, np.array(tied[:count]))
    ax.set_yticks(range(count), names[:count])
    ax.set_ylim(count - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"mean score of the best {count} of {len(names)} arms" if count < len(names) else "mean score")
    return ax


def _points(ax: Axes, x: np.ndarray, y: np.ndarray, errors: dict[str, np.ndarray], tied: np.ndarray) -> None:
    """Points with bars of one standard error."""
    for chosen, look in ((tied, TIED), (~tied, WORSE)):
        own = {side: values[chosen] for side, values in errors.items()}
        ax.errorbar(x[chosen], y[chosen], **own, ecolor="0.45", elinewidth=0.9, capsize=2, zorder=3, **look)
    looks = (("tied with the best", TIED, tied), ("worse", WORSE, ~tied))
    handles = [Line2D([], [], label=label, **look) for label, look, chosen in looks if chosen.any()]
    ax.legend(handles=handles, loc="best")
