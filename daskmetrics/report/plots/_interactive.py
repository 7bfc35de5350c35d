"""The interactive figures of the page, drawn with Bokeh: maps, lines along layers, comparisons, the
search, losses.

Figures of arms share one source of data, so that a selection in one is seen in all. They are plain
Bokeh models without code of their own: `page.js` changes what they show. So the page's content
policy can refuse every script but its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from bokeh import models
from bokeh.palettes import Cividis256
from bokeh.plotting import figure

from daskmetrics.answer.analysis import SearchPath
from daskmetrics.core.names import Arm, Suite
from daskmetrics.core.steps import edges, fitting, positions, spread, step_label, ticks
from daskmetrics.report.plots._fields import Field

# those of Okabe and Ito (2008), of which the first is lighter, so that it is seen on dark pages
COLOURS = ("#2b8cc4", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7f7f7f")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "x")
STAGES = {"cover": "#7f7f7f", "search": COLOURS[0], "confirm": "#d55e00"}
NO_VALUE = "#e9ecef"
FIRST = 75  # shade of the first line, which is seen on dark and on light pages
LINES = 8  # checkpoints of a model that have a line
MOST_STEPS, MOST_LAYERS = 14, 13  # labels along the two axes
TOOLS = "pan,box_zoom,wheel_zoom,tap,lasso_select,reset,save"
ZOOM = "pan,box_zoom,wheel_zoom,reset,save"
TIPS = [("", "@name"), ("value", "@value{0.[0000]a} ± @error{0.[0000]}")]


def arms_source(
    arms: Sequence[Arm], suites: Sequence[Suite], shown: Field, against: Field | None
) -> Any:
    """The columns that figures of arms share: name, model, place on the map, and the values that
    are shown.
    """
    sides = {}
    for suite in suites:
        borders = edges(suite.revisions, fitting(suite.revisions))
        for revision, pair in zip(suite.revisions, pairwise(borders), strict=True):
            sides[suite.model, revision] = pair
    pairs = np.array([sides[arm.model, arm.revision] for arm in arms], dtype=np.float32)
    layer = np.array([arm.layer for arm in arms], dtype=np.float32)
    return models.ColumnDataSource(
        {
            "name": [str(arm) for arm in arms],
            "model": [arm.model for arm in arms],
            "layer": layer,
            "left": pairs[:, 0],
            "right": pairs[:, 1],
            "bottom": layer - 0.5,
            "top": layer + 0.5,
            **columns(shown, arms),
            "against": columns(against or shown, arms)["value"],
        },
        name="arms",
    )


def columns(shown: Field, arms: Sequence[Arm]) -> dict[str, Any]:
    """The columns of a quantity: values and errors."""
    keys = [shown.key(arm) for arm in arms]
    value = np.array([shown.values.get(arm, np.nan) for arm in keys], dtype=np.float32)
    error = np.array([shown.errors.get(arm, np.nan) for arm in keys], dtype=np.float32)
    return {"value": value, "error": error, "low": value - error, "high": value + error}


def heat_map(source: Any, suite: Suite, shown: Field, marks: Mapping[str, Arm]) -> Any:
    """Layers by checkpoints of one model, with the best and the default arm; `axes_of` has the axes
    of the others.
    """
    fig = _blank("map", "training step", "layer", 330, TOOLS, x_range=(0, 1), y_range=(0, 1))
    of_model = models.GroupFilter(column_name="model", group=suite.model, name="one")
    view = models.CDSView(filter=of_model)
    mapper = models.LinearColorMapper(
        palette=Cividis256, nan_color=NO_VALUE, name="colours", **span(shown)
    )
    colour: Any = {"field": "value", "transform": mapper}
    cells = fig.quad(
        "left", "right", "bottom", "top", source=source, view=view, fill_color=colour, line_color=colour,
        nonselection_fill_alpha=0.3, nonselection_line_alpha=0.0,
    )  # fmt: skip
    data = source.data
    index = {name: i for i, name in enumerate(data["name"])}
    for name, (marker, size, fill) in {
        "default": ("circle", 15, None),
        "best": ("star", 19, "white"),
    }.items():
        marked = [index[str(arm)] for arm in [marks.get(name)] if str(arm) in index]
        centre = {
            "x": (data["left"] + data["right"])[marked] / 2,
            "y": data["layer"][marked],
            "model": [data["model"][i] for i in marked],
        }
        at = models.ColumnDataSource(centre)
        # a white rim keeps a mark visible on dark colours
        for width, line in ((4, "white"), (1.6, "#000000")):
            fig.scatter(
                "x",
                "y",
                source=at,
                view=models.CDSView(filter=of_model),
                marker=marker,
                size=size,
                fill_color=fill,
                line_color=line,
                line_width=width,
            )
    fig.add_tools(models.HoverTool(renderers=[cells], tooltips=TIPS))
    bar = models.ColorBar(color_mapper=mapper, width=10, padding=4, background_fill_color=None)
    bar.ticker = models.BasicTicker(desired_num_ticks=4)
    fig.add_layout(bar, "right")
    fig.grid.visible = False
    set_axes(fig, axes_of(suite))
    return fig


def span(shown: Field) -> dict[str, float]:
    """The smallest and the greatest value; all models share their colours."""
    defined = [value for value in shown.values.values() if not math.isnan(value)]
    low, high = min(defined, default=0.0), max(defined, default=1.0)
    if low < high:
        return {"low": low, "high": high}
    return {"low": low - 0.5, "high": high + 0.5}


def axes_of(suite: Suite) -> dict[str, Any]:
    """Ranges and labels of a model's map, and the steps of its lines."""
    scale = fitting(suite.revisions)
    borders, labels = edges(suite.revisions, scale), ticks(suite.revisions, scale, MOST_STEPS)
    stride = -(-len(suite.layers) // MOST_LAYERS)
    return {
        "x": [borders[0], borders[-1]],
        "y": [suite.layers[0] - 0.5, suite.layers[-1] + 0.5],
        "steps": [[at, label] for at, label in labels.items()],
        "layers": list(suite.layers[::stride]),
        "lines": [
            [f"{suite.model}@{name}/", step_label(name)] for name in spread(suite.revisions, LINES)
        ],
    }


def set_axes(fig: Any, axes: Mapping[str, Any]) -> None:
    """Show the axes of a model on its map."""
    fig.xaxis.ticker = models.FixedTicker(ticks=[at for at, _ in axes["steps"]])
    fig.xaxis.major_label_overrides = dict(axes["steps"])
    fig.yaxis.ticker = models.FixedTicker(ticks=axes["layers"])
    for range_, (start, end) in ((fig.x_range, axes["x"]), (fig.y_range, axes["y"])):
        range_.update(start=start, end=end, reset_start=start, reset_end=end)


def layer_lines(source: Any, suite: Suite, shown: Field) -> Any:
    """A quantity along the layers: a line for each of a few checkpoints, the later the lighter."""
    fig = _blank("lines", "layer (0 is the embedding)", shown.label, 300, ZOOM)
    lines = models.ColumnDataSource(lines_of(source, axes_of(suite)["lines"]), name="line-data")
    drawn = fig.multi_line("xs", "ys", source=lines, line_color="colour", line_width=2.2)
    fig.add_tools(
        models.HoverTool(
            renderers=[drawn], tooltips=[("step", "@label"), ("layer, value", "$x{0}, $y")]
        )
    )
    fig.xaxis.ticker = _whole_numbers()
    return fig


def lines_of(source: Any, lines: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The columns of lines, each of the arms whose names begin with a text."""
    names, layer, value = (source.data[name] for name in ("name", "layer", "value"))
    xs, ys = [], []
    for prefix, _ in lines:
        on_line = np.array([name.startswith(prefix) for name in names], bool) & ~np.isnan(value)
        xs.append(layer[on_line].tolist())
        ys.append(value[on_line].tolist())
    shades = [Cividis256[FIRST + int(160 * i / max(1, len(lines) - 1))] for i in range(len(lines))]
    return {
        "xs": xs,
        "ys": ys,
        "label": [label for _, label in lines],
        "colour": shades,
    }


def layer_points(source: Any, suites: Sequence[Suite], shown: Field) -> Any:
    """A quantity of single checkpoints by layer: points with standard errors, all models side by
    side.
    """
    fig = _blank("points", "layer (0 is the embedding)", shown.label, 340, TOOLS)
    fig.y_range.name = "fitted"
    drawn = []
    for i, suite in enumerate(suites):
        view = models.CDSView(filter=models.GroupFilter(column_name="model", group=suite.model))
        shift = models.Dodge(value=0.12 * (i - (len(suites) - 1) / 2))
        x = {"field": "layer", "transform": shift}
        look = _look(i)
        fig.segment(
            x,
            "low",
            x,
            "high",
            source=source,
            view=view,
            line_color=look["color"],
            line_width=2,
            nonselection_line_alpha=0.15,
        )
        points = fig.scatter(
            x,
            "value",
            source=source,
            view=view,
            size=10,
            nonselection_alpha=0.15,
            legend_label=suite.model,
            **look,
        )
        drawn.append(points)
    fig.add_tools(models.HoverTool(renderers=drawn, tooltips=TIPS))
    fig.xaxis.ticker = _whole_numbers()
    _legend(fig, len(suites))
    return fig


def comparison(source: Any, suites: Sequence[Suite], shown: Field, against: Field) -> Any:
    """One quantity of the arms against another."""
    fig = _blank("comparison", against.label, shown.label, 340, TOOLS)
    drawn = []
    for i, suite in enumerate(suites):
        view = models.CDSView(filter=models.GroupFilter(column_name="model", group=suite.model))
        points = fig.scatter(
            "against",
            "value",
            source=source,
            view=view,
            size=7,
            alpha=0.7,
            nonselection_alpha=0.08,
            legend_label=suite.model,
            **_look(i),
        )
        drawn.append(points)
    fig.add_tools(
        models.HoverTool(renderers=drawn, tooltips=[*TIPS, ("against", "@against{0.[0000]a}")])
    )
    _legend(fig, len(suites))
    return fig


def search_path(path: SearchPath, expected: Mapping[Arm, float]) -> Any:
    """The score of the best arm so far by cost, and every decision at the score that is expected of
    its arm.
    """
    fig = _blank("search", f"cost spent, {path.unit}", "mean score", 300, ZOOM)
    best = np.array([point.best for point in path.points], float)
    dots = []
    for stage in dict.fromkeys(point.stage for point in path.points):
        points = [(i, point) for i, point in enumerate(path.points) if point.stage == stage]
        data = {
            "spent": [point.spent for _, point in points],
            "y": [expected.get(point.arm, best[i]) for i, point in points],
            "best": [best[i] for i, _ in points],
            "arm": [str(point.arm) for _, point in points],
            "number": [i + 1 for i, _ in points],
        }
        of_stage = fig.scatter(
            "spent",
            "y",
            source=models.ColumnDataSource(data),
            name=stage,
            color=STAGES.get(stage, COLOURS[0]),
            size=6,
            alpha=0.6,
            legend_label=stage,
        )
        dots.append(of_stage)
    spent = [point.spent for point in path.points]
    fig.step(
        spent, best, mode="after", color=COLOURS[1], line_width=2.2, legend_label="best so far"
    )
    if path.default is not None:
        fig.line(
            [0, max(spent)],
            [path.default] * 2,
            line_dash="dashed",
            color=COLOURS[-1],
            line_width=1.4,
            legend_label="default arm",
        )
    tips = [
        ("decision", "@number, $name"),
        ("arm", "@arm"),
        ("expected", "@y{0.0000}"),
        ("best so far", "@best{0.0000}"),
    ]
    fig.add_tools(models.HoverTool(renderers=dots, tooltips=tips))
    _legend(fig, 2)
    return fig


def training_loss(losses: Mapping[str, Sequence[tuple[int, float]]]) -> Any:
    """Loss by training step, a line for each model; step 0 stands beside the logarithmic steps."""
    fig = _blank("losses", "training step", "loss, nats per token", 260, ZOOM)
    recorded = {step for step, _ in chain.from_iterable(losses.values())}
    revisions = [f"step{step}" for step in sorted(recorded)]
    at = dict(zip(revisions, positions(revisions, "log"), strict=True))
    drawn = []
    for i, (model, points) in enumerate(losses.items()):
        steps = [step for step, _ in points]
        source = models.ColumnDataSource(
            {
                "x": [at[f"step{step}"] for step in steps],
                "step": steps,
                "loss": [loss for _, loss in points],
            }
        )
        look = {**_look(i), "legend_label": model, "name": model}
        marker = look.pop("marker")
        fig.line("x", "loss", source=source, line_width=1.6, **look)
        drawn.append(fig.scatter("x", "loss", source=source, marker=marker, size=6, **look))
    tips = [("", "$name"), ("step", "@step"), ("loss", "@loss{0.000}")]
    fig.add_tools(models.HoverTool(renderers=drawn, tooltips=tips))
    labels = ticks(revisions, "log", MOST_STEPS)
    fig.xaxis.ticker = models.FixedTicker(ticks=list(labels))
    fig.xaxis.major_label_overrides = labels
    _legend(fig, 2)
    return fig


def _blank(name: str, x_label: str, y_label: str, height: int, tools: str, **ranges: Any) -> Any:
    """An empty figure; a transparent one, since the page is light or dark."""
    fig = figure(
        name=name, height=height, sizing_mode="stretch_width", tools=tools, **ranges,
        background_fill_color=None, border_fill_color=None, outline_line_color=None, min_border_left=48,
    )  # fmt: skip
    fig.toolbar.logo = None
    fig.toolbar.active_scroll = None  # the wheel scrolls the page, until a reader chooses otherwise
    fig.toolbar.active_drag = None  # and so does a finger
    fig.toolbar_location = "above"
    fig.xaxis.axis_label, fig.yaxis.axis_label = x_label, y_label
    for axis in (fig.xaxis, fig.yaxis):
        axis.axis_label_text_font_style = "normal"
    return fig


def _look(model: int) -> dict[str, str]:
    """Colour and marker of the points of a model."""
    return {"color": COLOURS[model % len(COLOURS)], "marker": MARKERS[model % len(MARKERS)]}


def _whole_numbers() -> Any:
    return models.BasicTicker(mantissas=[1, 2, 5], min_interval=1, num_minor_ticks=0)


def _legend(fig: Any, entries: int) -> None:
    """The legend above the figure, in one line; left out for a single entry. A click on a name
    hides its points.
    """
    legend = fig.legend[0]
    legend.visible = entries > 1
    legend.update(
        orientation="horizontal", click_policy="hide", label_text_font_size="12px", border_line_color=None,
        padding=0, margin=2, spacing=12, background_fill_alpha=0, ncols=3,
    )  # fmt: skip
    fig.add_layout(legend, "above")
