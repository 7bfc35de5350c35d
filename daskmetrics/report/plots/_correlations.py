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
from daskmetrics.report.plots._style import COLOURS, MARKERS, STYLE, blank

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
    shown = [model for model in models if any(arm.model == model for arm in scores)]
    handles = [Line2D([], [], label=model, **_style(models.index(model))) for model in shown]
    figure.legend(handles=handles, loc="outside upper left", ncols=7)
    return figure


def _panel(
    ax: Axes, metric: Mapping[Arm, float], scores: Mapping[Arm, float], models: Sequence[str]
) -> None:
    arms = [arm for arm in scores if arm in metric]
    for i, model in enumerate(models):
        points = [(metric[arm], scores[arm]) for arm in arms if arm.model == model]
        ax.plot([x for x, _ in points], [y for _, y in points], **_style(i))
    rho = "too few arms"
    if len(arms) >= FEWEST:
        rho = f"Spearman's ρ = {signed(rank_correlation([metric[a] for a in arms], [scores[a] for a in arms]))}"
    ax.set_title(f"{rho} (n = {len(arms)})", loc="right")
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_locator(MaxNLocator(5))


def _style(model: int) -> dict[str, Any]:
    colour, marker = COLOURS[model % len(COLOURS)], MARKERS[model % len(MARKERS)]
    return {
        "color": colour,
        "marker": marker,
        "linestyle": "none",
        "ms": 4.8,
        "mew": 0,
        "alpha": 0.75,
    }


@rc_context({**STYLE, "axes.grid": False})
def correlation_table(correlations: Correlations) -> Figure:
    """A row per metric, a column per kind of task: Spearman's rho, and the number of cells that it
    rests on.
    """
    groups, names = list(next(iter(correlations.values()))), closest_first(correlations)[::-1]
    figure = blank(0.5 + 0.3 * len(names))
    ax = figure.subplots()
    rho = np.array([[correlations[name][group][0] for group in groups] for name in names])
    colours = matplotlib.colormaps["PuOr"].with_extremes(bad="#f3f3f3")
    ax.pcolormesh(
        np.ma.masked_invalid(rho), cmap=colours, vmin=-1, vmax=1, edgecolors="white", linewidth=1.2
    )
    for (row, column), value in np.ndenumerate(rho):
        count = correlations[names[row]][groups[column]][1]
        text = "too few" if np.isnan(value) else f"{signed(value)}  ({count:,})"
        style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 8}
        ax.text(
            column + 0.5,
            row + 0.5,
            text,
            color="white" if abs(value) > LIGHT else "#1c2128",
            **style,
        )
    ax.set_xticks(np.arange(len(groups)) + 0.5, groups)
    ax.set_yticks(np.arange(len(names)) + 0.5, names)
    ax.tick_params(
        length=0, labelsize=8.5, top=True, bottom=False, labeltop=True, labelbottom=False
    )
    ax.spines[:].set_visible(False)
    return figure
