"""Figures with Bokeh: of the page of a report, and of the live page of a run.

Figures of arms share one source of data, so that a selection in one is seen in all. All figures are
plain Bokeh models without code of their own: the script of a page, or the live page, changes what
they show. So the content policy of a page can refuse every other script.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas
from bokeh import models
from bokeh.palettes import Cividis256
from bokeh.plotting import figure
from bokeh.transform import factor_cmap, factor_mark
from numpy.typing import NDArray

from daskmetrics.domain.names import Arm, Suite, spread, step_label

# those of Okabe and Ito (2008), of which the first is lighter, so that it is seen on dark pages
COLOURS = ("#2b8cc4", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7f7f7f")
DASHES = ("solid", "dashed", "dotted")  # of curves of one colour
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "x")
STAGES: Mapping[object, str] = {"cover": "#7f7f7f", "search": COLOURS[0], "confirm": COLOURS[4]}
#: Marker and size of the arms that a map marks.
MARKS = {
    "best": ("star", 19),
    "default": ("circle", 11),
    "tied": ("circle", 4.5),
    "paid": ("circle", 4.5),
}
NO_VALUE = "#e9ecef"
LINES = 8  # checkpoints of a model that have a line
LEAST_ERRORS = 8  # standard errors that an axis spans at least, so that noise looks like noise
MOST_STEPS, MOST_LAYERS = 14, 13  # labels along the two axes
LAYER = "layer (0 is the embedding)"
TOOLS = "pan,box_zoom,wheel_zoom,tap,lasso_select,reset,save"
ZOOM = "pan,box_zoom,wheel_zoom,reset,save"
TIPS = [("", "@name"), ("value", "@value{0.[0000]a} ± @error{0.[0000]}")]


def blank(
    x_label: str,
    y_label: str,
    height: int,
    tools: str = ZOOM,
    **options: Any,
) -> figure:
    """An empty, transparent figure for light and dark pages."""
    fig = figure(
        height=height,
        tools=tools,
        sizing_mode="stretch_width",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_left=48,
        **options,
    )
    fig.toolbar.logo = None
    fig.toolbar.active_scroll = None  # the wheel scrolls the page, until a reader chooses otherwise
    fig.toolbar.active_drag = None  # and so does a finger
    fig.toolbar_location = "above"
    fig.title.text_font_size = "14px"
    fig.xaxis.axis_label = x_label
    fig.yaxis.axis_label = y_label
    fig.axis.axis_label_text_font_style = "normal"
    return fig


def legend_above(fig: figure, visible: bool = True) -> None:
    """Move the legend above the figure."""
    legend = fig.legend[0]
    legend.update(
        visible=visible,
        orientation="horizontal",
        label_text_font_size="12px",
        padding=0,
        margin=2,
        border_line_color=None,
        spacing=12,
        background_fill_alpha=0,
        ncols=3,
    )
    fig.add_layout(legend, "above")


def span(
    values: NDArray[np.floating], least: float, margin: float = 0.12, most: float = math.inf
) -> tuple[float, float]:
    """A range of all values with a margin, which ends at the most that a value can be.

    It spans at least this much.

    >>> span(np.array([0.5, 0.5001, np.nan]), least=0.1, margin=0.0)
    (0.45005, 0.55005)
    >>> span(np.array([1.0, 1.0]), least=0.0), span(np.array([1.0, 1.0]), least=0.0, most=1.0)
    ((0.5, 1.5), (0.0, 1.0))
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    low = float(finite.min())
    high = float(finite.max())
    centre = (low + high) / 2
    half = max((0.5 + margin) * (high - low), least / 2) or 0.5  # equal values without an error
    above = max(0.0, centre + half - most)
    return centre - half - above, centre + half - above


def most_of(scores: NDArray[np.floating]) -> float:
    """The most that a score can be: 1, unless one is greater.

    >>> most_of(np.array([0.5, np.nan])), most_of(np.array([2.0]))
    (1.0, inf)
    """
    return math.inf if (scores > 1).any() else 1.0


def least_span(errors: NDArray[np.floating]) -> float:
    """What an axis or the colours span at least: some errors, so that noise is not stretched.

    >>> least_span(np.array([0.01, np.nan]))
    0.08
    """
    known = errors[np.isfinite(errors)]
    return LEAST_ERRORS * float(np.median(known)) if len(known) else 0.0


# figures of arms


def arms_source(
    arms: Sequence[Arm], suites: Sequence[Suite], **values: NDArray[np.floating]
) -> models.ColumnDataSource:
    """The columns that figures of arms share.

    Name, model, layer, place on the map (the readouts of a layer above each other), given values,
    and what is shown of them, at first zeros: ``value``, ``error``, and what the value is compared
    ``against``.
    """
    suite_of = {suite.model: suite for suite in suites}
    rows = []
    for arm in arms:
        suite = suite_of[arm.model]
        x = suite.revisions.index(arm.revision)
        y = suite.layers.index(arm.layer)
        rows.append((suite.arm_name(arm), arm.model, arm.layer, x, y))
    frame = pandas.DataFrame(rows, columns=["name", "model", "layer", "x", "y"])
    of_layer = frame.groupby(["model", "x", "y"])
    frame["height"] = 1 / of_layer["layer"].transform("size")
    readouts_below = of_layer.cumcount()
    frame["y"] += (readouts_below + 0.5) * frame["height"] - 0.5
    frame = frame.assign(**values, value=0.0, error=0.0, against=0.0)
    columns = frame[["name", "model"]].to_dict("list")
    for name in frame.columns.drop(["name", "model"]):
        columns[name] = frame[name].to_numpy(np.float32)
    return models.ColumnDataSource(columns, name="arms")


def axes_of(suite: Suite) -> dict[str, list[Any]]:
    """Ranges and labels of a map, and lined checkpoints."""
    lines = []
    for revision in spread(suite.revisions, LINES):
        start = f"{suite.model}@{revision}/"  # of the names of its arms
        lines.append((start, step_label(revision)))
    steps = [step_label(revision) for revision in suite.revisions]
    return {
        "x": [-0.5, len(steps) - 0.5],
        "y": [-0.5, len(suite.layers) - 0.5],
        "steps": labels(steps, MOST_STEPS),
        "layers": labels(suite.layer_labels, MOST_LAYERS),
        "names": list(enumerate(suite.layer_names)),
        "lines": lines,
    }


def labels(names: Sequence[object], most: int) -> list[tuple[int, str]]:
    """Names that label an axis by their position, evenly chosen.

    >>> labels(["0", "1", "2", "4", "8"], most=3)
    [(0, '0'), (2, '2'), (4, '8')]
    """
    every = math.ceil(len(names) / most)
    return list(enumerate(map(str, names)))[::every]


def heat_map(source: models.ColumnDataSource) -> figure:
    """Layers by checkpoints of one model; `marked` has its marks.

    At first it is of none; `show_model` and the script of the page change it.
    """
    fig = blank(
        "training step",
        "layer",
        330,
        TOOLS,
        x_range=(0, 1),
        y_range=(0, 1),
        name="map",
    )
    of_model = models.GroupFilter(column_name="model", group="", name="one")
    mapper = models.LinearColorMapper(palette=Cividis256, nan_color=NO_VALUE, name="colours")
    shade = {"field": "value", "transform": mapper}
    cells = fig.rect(
        "x",
        "y",
        width=1,
        height="height",
        source=source,
        view=models.CDSView(filter=of_model),
        fill_color=shade,
        line_color=shade,
        nonselection_fill_alpha=0.3,
        nonselection_line_alpha=0,
    )
    bar = models.ColorBar(color_mapper=mapper, width=10, padding=4, background_fill_color=None)
    bar.update(ticker=models.BasicTicker(desired_num_ticks=4), title_text_font_style="normal")
    fig.add_layout(bar, "right")
    fig.grid.visible = False
    for axis in fig.axis:
        axis.ticker = models.FixedTicker()  # its labels are those of a model
    fig.scatter(
        "x",
        "y",
        marker="marker",
        size="size",
        source=models.ColumnDataSource(marked(source, {}), name="marks"),
        view=models.CDSView(filter=of_model),
        fill_color="white",  # seen on dark and on light colours
        line_color="#1c2128",
    )
    fig.add_tools(models.HoverTool(renderers=[cells], tooltips=TIPS))
    return fig


def marked(
    source: models.ColumnDataSource, arms: Mapping[str, Iterable[str]]
) -> dict[Hashable, Any]:
    """The columns of marks, from arms by their kind."""
    rows = []
    for kind, names in arms.items():
        marker, size = MARKS[kind]
        rows += [(name, kind, marker, size) for name in names]
    marks = pandas.DataFrame(rows, columns=["name", "kind", "marker", "size"])
    marks = marks.merge(pandas.DataFrame(source.data), on="name")
    return marks[["name", "kind", "x", "y", "model", "marker", "size"]].to_dict("list")


def show_model(fig: figure, suite: Suite) -> None:
    """Let a map show a model, with axes that fit."""
    axes = axes_of(suite)
    fig.select_one({"name": "one"}).group = suite.model
    show_labels(fig.xaxis, axes["steps"])
    show_labels(fig.yaxis, axes["layers"])
    show_range(fig.x_range, *axes["x"])
    show_range(fig.y_range, *axes["y"])


def show_labels(axis: models.Axis, names: Sequence[tuple[int, str]]) -> None:
    """Let an axis have these labels."""
    label_at = dict(names)
    axis.ticker = models.FixedTicker(ticks=list(label_at))
    axis.major_label_overrides = label_at


def show_range(side: models.Range1d, start: float, end: float) -> None:
    """Let an axis show this range, also after a reset."""
    side.update(start=start, end=end, reset_start=start, reset_end=end)


def comparison(source: models.ColumnDataSource, suites: Sequence[Suite]) -> figure:
    """One quantity of the arms against another.

    The script of the page shows their names.
    """
    fig = blank("", "", 340, TOOLS, name="comparison")
    names = [suite.model for suite in suites]
    colours = np.resize(COLOURS, len(names)).tolist()
    markers = np.resize(MARKERS, len(names)).tolist()
    dots = fig.scatter(
        "against",
        "value",
        source=source,
        color=factor_cmap("model", colours, names),
        marker=factor_mark("model", markers, names),
        legend_field="model",
        size=7,
        alpha=0.7,
        nonselection_alpha=0.08,
    )
    tips = [*TIPS, ("against", "@against{0.[0000]a}")]
    fig.add_tools(models.HoverTool(renderers=[dots], tooltips=tips))
    legend_above(fig, len(suites) > 1)
    return fig


# figures of curves: all curves of one are one glyph, so that their number may change


def curves(x_label: str, y_label: str, height: int, **options: Any) -> figure:
    """A figure of named curves with points and errors.

    `curve_columns` has its data.
    """
    fig = blank(
        x_label,
        y_label,
        height,
        x_range=(0, 1),
        y_range=(0, 1),
        **options,
    )
    joined = models.ColumnDataSource(name="curves")
    points = models.ColumnDataSource(name="points")
    fig.multi_line(
        "xs",
        "ys",
        source=joined,
        legend_field="label",
        line_color="colour",
        line_dash="dash",
        line_width=2,
    )
    fig.segment("x", "low", "x", "high", source=points, line_color="colour")
    dots = fig.scatter(
        "x",
        "y",
        source=points,
        size="size",
        color="colour",
    )
    tips = [("", "@label"), ("at", "@at"), ("value", "@y{0.[0000]a} ± @error{0.[0000]}")]
    fig.add_tools(models.HoverTool(renderers=[dots], tooltips=tips))
    legend_above(fig)
    draw_curves(fig, pandas.DataFrame())
    return fig


def draw_curves(
    fig: figure, points: pandas.DataFrame, least: float = 0.0, are_scores: bool = False
) -> None:
    """Let `curves` show these points in their colours.

    A point has label, x, y, and perhaps ``error`` and ``at``; the axis spans at least this much, and
    some errors. That of scores ends at the most that they can be.
    """
    columns = ["label", "x", "y", "at", "error"]
    points = points.reindex(columns=columns).dropna(subset=["y"])
    by_label = points.groupby("label", sort=False)
    joined = by_label.agg(xs=("x", list), ys=("y", list)).reset_index()
    joined["colour"] = np.resize(COLOURS, len(joined))
    # the next dash, when all colours are used
    joined["dash"] = np.resize(np.repeat(DASHES, len(COLOURS)), len(joined))
    colours = joined.set_index("label")["colour"]
    points = points.assign(
        size=5,
        colour=points["label"].map(colours),
        at=points["at"].fillna(points["x"]),
        low=points["y"] - points["error"],
        high=points["y"] + points["error"],
    )
    fig.select_one({"name": "points"}).data = points.to_dict("list")
    fig.select_one({"name": "curves"}).data = joined.to_dict("list")
    most = most_of(points["y"].to_numpy(float)) if are_scores else math.inf
    heights = points[["y", "low", "high"]].to_numpy(float).clip(max=most)
    widths = points["x"].to_numpy(float)
    least = max(least, least_span(points["error"].to_numpy(float)))
    show_range(fig.x_range, *span(widths, 1.0, margin=0.03))
    show_range(fig.y_range, *span(heights, least, most=most))


def layer_lines(**options: Any) -> figure:
    """Named lines along the layers."""
    fig = curves(LAYER, "score", 320, name="lines", **options)
    fig.xaxis.ticker = models.BasicTicker(mantissas=[1, 2, 5], min_interval=1, num_minor_ticks=0)
    return fig


def training_loss(losses: Mapping[str, Sequence[tuple[int, float]]]) -> figure:
    """Loss by training step, a line for each model.

    The steps of all stand side by side.
    """
    rows = []
    for model, of_model in losses.items():
        rows += [(model, step, loss) for step, loss in of_model]
    points = pandas.DataFrame(rows, columns=["label", "at", "y"])
    points["x"] = points["at"].rank(method="dense") - 1
    fig = curves("training step", "loss, nats per token", 260, name="losses")
    draw_curves(fig, points)
    steps = sorted(points["at"].unique())
    names = [step_label(f"step{step}") for step in steps]
    show_labels(fig.xaxis, labels(names, MOST_STEPS))
    return fig


def search_path(decisions: pandas.DataFrame) -> figure:
    """The best score so far by cost, and every decision.

    Every decision is at the score that is expected of its arm. The frame has a row for each
    decision: number, stage, arm, spent, expected and best; its ``attrs`` are the unit of the cost
    and the score of the default arm.
    """
    unit = decisions.attrs["unit"]
    default = decisions.attrs["default"]
    fig = blank(f"cost spent, {unit}", "mean score", 300, name="search", y_range=(0, 1))
    scores = decisions[["expected", "best"]].to_numpy(float)
    show_range(fig.y_range, *span(scores, 0.0, margin=0.05, most=most_of(scores)))
    source = models.ColumnDataSource(decisions.to_dict("list"))
    dots = fig.scatter(
        "spent",
        "expected",
        source=source,
        color=factor_cmap("stage", [*STAGES.values()], [*STAGES]),
        legend_field="stage",
        size=6,
        alpha=0.6,
    )
    fig.step(
        "spent",
        "best",
        source=source,
        mode="after",
        legend_label="best so far",
        color=COLOURS[1],
        line_width=2.2,
    )
    if default is not None:
        fig.line(
            [0, decisions["spent"].max()],
            [default, default],
            legend_label="last layer",
            line_dash="dashed",
            color=COLOURS[-1],
            line_width=1.4,
        )
    tips = [
        ("decision", "@number, @why"),
        ("candidate", "@arm"),
        ("expected", "@expected{0.0000}"),
        ("best so far", "@best{0.0000}"),
    ]
    fig.add_tools(models.HoverTool(renderers=[dots], tooltips=tips))
    legend_above(fig)
    return fig


def expected_loss(decisions: pandas.DataFrame) -> figure:
    """What the leader was expected to lose by cost; the frame is that of `search_path`."""
    fig = curves(f"cost spent, {decisions.attrs['unit']}", "mean score", 300, name="expected-loss")
    draw_losses(fig, decisions["spent"], decisions["loss"])
    return fig


def draw_losses(fig: figure, spent: pandas.Series, loss: pandas.Series) -> None:
    """Let `curves` show expected losses; the first are as wide as the prior, and leave the axis."""
    points = pandas.DataFrame({"label": "expected loss", "x": spent, "y": loss}).dropna()
    draw_curves(fig, points)
    if len(points):
        show_range(fig.y_range, 0.0, float(1.1 * points["y"].quantile(0.8)))
