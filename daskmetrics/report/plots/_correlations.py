"""Metrics against scores: whether a label-free metric ranks arms as the tasks do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from daskmetrics.answer.analysis import FEWEST, closest_first, rank_correlation
from daskmetrics.core.names import Arm
from daskmetrics.report._format import signed
from daskmetrics.report.plots._style import STYLE, blank, look

COLUMNS = 3
LIGHT = 0.55  # a greater correlation has such a dark colour that its number is white

#: Spearman's rho and the cells that it rests on, by metric and kind of task.
Correlations = Mapping[str, Mapping[str, tuple[float, int]]]


@rc_context(STYLE)
def metric_against_score(
    metrics: Mapping[str, Mapping[Arm, float]],
    units: Mapping[str, str],
    scores: Mapping[Arm, float],
    models: Sequence[str],
) -> Figure:
    """One panel per metric: each point an arm, its metric against its score in standard deviations."""
    rows = -(-len(metrics) // COLUMNS)
    figure = blank(0.4 + 2.4 * rows)
    axes = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True)
    for ax, (name, values) in zip(axes.flat, metrics.items(), strict=False):
        _panel(ax, values, scores, models)
        ax.set_xlabel(f"{name}, {units[name]}" if units.get(name) else name)
    for ax in axes[:, 0]:
        ax.set_ylabel("score, sd of a task")
    for ax in axes.flat[len(metrics) :]:
        ax.remove()
    scored = {arm.model for arm in scores}
    handles = [
        Line2D([], [], label=model, **_style(i))
        for i, model in enumerate(models)
        if model in scored
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=7)
    return figure


def _panel(
    ax: Axes, metric: Mapping[Arm, float], scores: Mapping[Arm, float], models: Sequence[str]
) -> None:
    arms = [arm for arm in scores if arm in metric]
    for i, model in enumerate(models):
        of_model = [arm for arm in arms if arm.model == model]
        ax.plot([metric[arm] for arm in of_model], [scores[arm] for arm in of_model], **_style(i))
    title = "too few arms"
    if len(arms) >= FEWEST:
        rho = rank_correlation([metric[arm] for arm in arms], [scores[arm] for arm in arms])
        title = f"Spearman's ρ = {signed(rho)}"
    ax.set_title(f"{title} (n = {len(arms)})", loc="right")
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_locator(MaxNLocator(5))


def _style(model: int) -> dict[str, Any]:
    return {**look(model), "linestyle": "none", "ms": 4.8, "mew": 0, "alpha": 0.75}


@rc_context({**STYLE, "axes.grid": False})
def correlation_table(correlations: Correlations) -> Figure:
    """A row per metric, a column per kind of task: Spearman's rho, and the number of cells that it
    rests on.
    """
    names = closest_first(correlations)[::-1]
    groups = list(correlations[names[0]])
    figure = blank(0.5 + 0.3 * len(names))
    ax = figure.subplots()
    cells = np.array([list(correlations[name].values()) for name in names])
    rho = cells[..., 0]
    colours = matplotlib.colormaps["PuOr"].with_extremes(bad="#f3f3f3")
    ax.pcolormesh(
        np.ma.masked_invalid(rho), cmap=colours, vmin=-1, vmax=1, edgecolors="white", linewidth=1.2
    )
    for (row, column), value in np.ndenumerate(rho):
        text = "too few"
        if not np.isnan(value):
            text = f"{signed(value)}  ({cells[row, column, 1]:,.0f})"
        ax.text(
            column + 0.5,
            row + 0.5,
            text,
            color="white" if abs(value) > LIGHT else "#1c2128",
            ha="center",
            va="center_baseline",
            fontsize=8,
        )
    ax.set_xticks(np.arange(len(groups)) + 0.5, groups)
    ax.set_yticks(np.arange(len(names)) + 0.5, names)
    ax.tick_params(
        length=0, labelsize=8.5, top=True, bottom=False, labeltop=True, labelbottom=False
    )
    ax.spines[:].set_visible(False)
    return figure
