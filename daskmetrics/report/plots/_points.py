"""Mean scores as points: along the layers of a checkpoint, as a list of the best arms, and against
what arms take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from daskmetrics.answer.trade_offs import ArmCost, TradeOff, TradeOffs
from daskmetrics.core.colours import COLOURS
from daskmetrics.report._format import si
from daskmetrics.report.plots._fields import COST_OF, telling
from daskmetrics.report.plots._style import STYLE, axes_for, blank, look

MOST_ARMS = 24  # in the list
POINT: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5.5, "color": COLOURS[0]}
TIED: dict[str, Any] = {**POINT, "markerfacecolor": COLOURS[0]}
WORSE: dict[str, Any] = {**POINT, "markerfacecolor": "white"}
LOGARITHMIC = 20  # a cost whose greatest value is so many times its least positive one


@rc_context(STYLE)
def along_layers(
    layers: Sequence[int],
    means: Sequence[float],
    errors: Sequence[float],
    tied: Sequence[bool],
    ax: Axes | None = None,
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
    names: Sequence[str],
    means: Sequence[float],
    errors: Sequence[float],
    tied: Sequence[bool],
    ax: Axes | None = None,
) -> Axes:
    """The arms with the greatest mean scores, the best above; filled: tied with the best."""
    count = min(MOST_ARMS, len(names))
    ax = axes_for(ax, 0.9 + 0.22 * count)
    _points(
        ax,
        np.array(means[:count]),
        np.arange(count),
        {"xerr": np.array(errors[:count])},
        np.array(tied[:count]),
    )
    ax.set_yticks(range(count), names[:count])
    ax.set_ylim(count - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    label = "mean score"
    if count < len(names):
        label = f"mean score of the best {count} of {len(names)} arms"
    ax.set_xlabel(label)
    return ax


def _points(
    ax: Axes, x: np.ndarray, y: np.ndarray, errors: dict[str, np.ndarray], tied: np.ndarray
) -> None:
    """Points with bars of one standard error."""
    for chosen, style in ((tied, TIED), (~tied, WORSE)):
        bars = {side: values[chosen] for side, values in errors.items()}
        ax.errorbar(
            x[chosen],
            y[chosen],
            **bars,
            ecolor="0.45",
            elinewidth=0.9,
            capsize=2,
            zorder=3,
            **style,
        )
    styles = (("tied with the best", TIED, tied), ("worse", WORSE, ~tied))
    handles = [
        Line2D([], [], label=label, **style) for label, style, chosen in styles if chosen.any()
    ]
    ax.legend(handles=handles, loc="best")


@rc_context(STYLE)
def trade_off_panels(trade_offs: TradeOffs) -> Figure:
    """Score against each cost that differs between arms; the line is the best score at each cost,
    with its error.
    """
    chosen = telling([trade_off.cost for trade_off in trade_offs.arms])
    figure = blank(3.1)
    axes = figure.subplots(1, max(1, len(chosen)), squeeze=False, sharey=True)[0]
    for ax, name in zip(axes, chosen or ["layers computed"], strict=True):
        _panel(ax, trade_offs, COST_OF[name])
        ax.set_xlabel(name)
    axes[0].set_ylabel("mean score")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=7)
    return figure


@rc_context(STYLE)
def trade_off_axes(trade_offs: TradeOffs, name: str, ax: Axes | None = None) -> Axes:
    """Score against one cost of `COST_OF`."""
    ax = axes_for(ax, 3.2)
    _panel(ax, trade_offs, COST_OF[name])
    ax.set(xlabel=name, ylabel="mean score")
    ax.legend(loc="best")
    return ax


def _panel(ax: Axes, trade_offs: TradeOffs, cost: Callable[[ArmCost], float]) -> None:
    by_model: dict[str, list[TradeOff]] = {}
    for trade_off in trade_offs.arms:
        by_model.setdefault(trade_off.arm.model, []).append(trade_off)
    for i, (model, of_model) in enumerate(by_model.items()):
        ax.scatter(
            [cost(trade_off.cost) for trade_off in of_model],
            [trade_off.score for trade_off in of_model],
            s=14,
            lw=0,
            label=model,
            **look(i),
        )
    front: list[TradeOff] = []
    for trade_off in sorted(trade_offs.arms, key=lambda arm: (cost(arm.cost), -arm.score)):
        if not front or trade_off.score > front[-1].score:
            front.append(trade_off)
    costs = [cost(trade_off.cost) for trade_off in front]
    scores = [trade_off.score for trade_off in front]
    errors = [trade_off.stderr for trade_off in front]
    ax.step(costs, scores, where="post", color="0.45", lw=1.1, zorder=0)
    ax.errorbar(costs, scores, errors, fmt="none", ecolor="0.45", lw=0.9, capsize=2, zorder=0)
    all_costs = [cost(trade_off.cost) for trade_off in trade_offs.arms]
    positive = [value for value in all_costs if value > 0]
    if positive and max(positive) / min(positive) >= LOGARITHMIC:
        ax.set_xscale("symlog", linthresh=min(positive))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si(value)))
