"""Scores against what arms take, one panel for each cost."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from daskmetrics.report._format import si
from daskmetrics.report._tradeoffs import ArmCost, TradeOff, TradeOffs
from daskmetrics.report.plots._fields import COST_OF, telling
from daskmetrics.report.plots._style import COLOURS, MARKERS, STYLE, axes_for, blank

LOGARITHMIC = 20  # a cost whose greatest value is so many times its least positive one


@rc_context(STYLE)
def trade_off_panels(trade_offs: TradeOffs) -> Figure:
    """Score against each cost that differs between arms; the line is the best score at each cost, with its error."""
    chosen = telling([each.cost for each in trade_offs.arms])
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
    models = list(dict.fromkeys(each.arm.model for each in trade_offs.arms))
    for i, model in enumerate(models):
        own = [each for each in trade_offs.arms if each.arm.model == model]
        places = [cost(each.cost) for each in own], [each.score for each in own]
        ax.scatter(*places, s=14, color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], lw=0, label=model)
    front: list[TradeOff] = []
    for each in sorted(trade_offs.arms, key=lambda each: (cost(each.cost), -each.score)):
        if not front or each.score > front[-1].score:
            front.append(each)
    values = [cost(each.cost) for each in front]
    ax.step(values, [each.score for each in front], where="post", color="0.45", lw=1.1, zorder=0)
    errors = [each.stderr for each in front]
    ax.errorbar(values, [each.score for each in front], errors, fmt="none", ecolor="0.45", lw=0.9, capsize=2, zorder=0)
    positive = [value for each in trade_offs.arms if (value := cost(each.cost)) > 0]
    if positive and max(positive) / min(positive) >= LOGARITHMIC:
        ax.set_xscale("symlog", linthresh=min(positive))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si(value)))
