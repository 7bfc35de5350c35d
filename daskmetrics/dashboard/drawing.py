"""Figures with Bokeh: of the page of a report, of notebooks, and of the live pages of a run.

Figures of arms share one source of data, so that a selection in one is seen in all. Those of a page
are plain Bokeh models without code of their own: its script changes what they show. So the content
policy of the page can refuse every other script.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from bokeh import models
from bokeh.palettes import Cividis256
from bokeh.plotting import figure
from numpy.typing import ArrayLike, NDArray

from daskmetrics.core.names import Arm, Suite
from daskmetrics.core.steps import AxisScale, edges, fitting, positions, spread, step_label, ticks
from daskmetrics.dashboard._state import SCORED, LiveState, TrainingCurves

if TYPE_CHECKING:
    import pandas

    from daskmetrics.dashboard._plugin import WorkerLoad

# those of Okabe and Ito (2008), of which the first is lighter, so that it is seen on dark pages
COLOURS = ("#2b8cc4", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7f7f7f")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "x")
DASHES = ("solid", "dashed", "dotdash", "dotted")
STAGES: Mapping[object, str] = {"cover": "#7f7f7f", "search": COLOURS[0], "confirm": COLOURS[4]}
NO_VALUE = "#e9ecef"
FIRST = 75  # shade of the first line, which is seen on dark and on light pages
LINES = 8  # checkpoints of a model that have a line
MOST_STEPS, MOST_LAYERS = 14, 13  # labels along the two axes
NUMBERED = 5  # latest decisions that are numbered on a live map
MOST_NAMED = 16  # ranks that the legend of a training names
SHOWN = 1800.0  # latest seconds of the load that are shown
# smallest spans of axes and colours (of these a share): less is noise, not a finding
LEAST_SCORE, LEAST_REGRET, LEAST_LOSS, LEAST_SHARE = 0.05, 0.02, 0.5, 0.02
LAYER = "layer (0 is the embedding)"
COST = "cost spent, % of the exhaustive sweep (assumed)"
TOOLS = "pan,box_zoom,wheel_zoom,tap,lasso_select,reset,save"
ZOOM = "pan,box_zoom,wheel_zoom,reset,save"
TIPS = [("", "@name"), ("value", "@value{0.[0000]a} ± @error{0.[0000]}")]
LOADS = {
    "gpu_slots": "slots for models",  # the resource GPU, which workers without a GPU have, too
    "cpu_slots": "slots for scoring",
    "cpu": "processor time",
    "gpu": "GPU utilisation",
}


def blank(x_label: str, y_label: str, height: int, tools: str = "save", **options: Any) -> figure:
    """An empty figure; a transparent one, since a page is light or dark."""
    fig = figure(
        height=height, tools=tools, sizing_mode="stretch_width", background_fill_color=None,
        border_fill_color=None, outline_line_color=None, min_border_left=48, **options,
    )  # fmt: skip
    fig.toolbar.logo = None
    fig.toolbar.active_scroll = None  # the wheel scrolls the page, until a reader chooses otherwise
    fig.toolbar.active_drag = None  # and so does a finger
    fig.toolbar_location = "above"
    fig.title.text_font_size = "14px"
    fig.xaxis.axis_label, fig.yaxis.axis_label = x_label, y_label
    fig.axis.axis_label_text_font_style = "normal"
    return fig


def legend_above(fig: figure, visible: bool = True) -> None:
    """Move the legend above the figure; a click on a name hides what it names."""
    legend = fig.legend[0]
    legend.update(
        visible=visible, orientation="horizontal", click_policy="hide", label_text_font_size="12px",
        border_line_color=None, padding=0, margin=2, spacing=12, background_fill_alpha=0, ncols=3,
    )  # fmt: skip
    fig.add_layout(legend, "above")


def look(number: int) -> dict[str, str]:
    """Colour and marker of the points of a model."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def span(values: NDArray[np.floating], least: float, margin: float = 0.12) -> tuple[float, float]:
    """A range that shows all values with a margin, and spans at least this much.

    >>> span(np.array([0.5, 0.5001, np.nan]), least=0.1, margin=0.0)
    (0.45005, 0.55005)
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    half = max((0.5 + margin) * (high - low), least / 2)
    return (low + high) / 2 - half, (low + high) / 2 + half


# maps of layers and checkpoints


class Map(NamedTuple):
    """A map of layers and checkpoints, its cells, and the colours of their values."""

    figure: figure
    cells: models.GlyphRenderer
    mapper: models.LinearColorMapper


def blank_map(source: models.ColumnDataSource, tools: str, **options: Any) -> Map:
    """A map of the cells that a source describes; `set_axes` says what lies where."""
    fig = blank("training step", "layer", 330, tools, x_range=(0, 1), y_range=(0, 1))
    mapper = models.LinearColorMapper(palette=Cividis256, nan_color=NO_VALUE, name="colours")
    colour = {"field": "value", "transform": mapper}
    sides = ("left", "right", "bottom", "top")
    cells = fig.quad(*sides, source=source, fill_color=colour, line_color=colour, **options)
    bar = models.ColorBar(color_mapper=mapper, width=10, padding=4, background_fill_color=None)
    bar.update(ticker=models.BasicTicker(desired_num_ticks=4), title_text_font_style="normal")
    fig.add_layout(bar, "right")
    fig.grid.visible = False
    return Map(fig, cells, mapper)


def axes_of(suite: Suite) -> dict[str, list[Any]]:
    """Ranges and labels of a model's map, and the steps of its lines."""
    scale = fitting(suite.revisions)
    borders, labels = edges(suite.revisions, scale), ticks(suite.revisions, scale, MOST_STEPS)
    stride = -(-len(suite.layers) // MOST_LAYERS)
    lines = spread(suite.revisions, LINES)
    return {
        "x": [borders[0], borders[-1]],
        "y": [suite.layers[0] - 0.5, suite.layers[-1] + 0.5],
        "steps": [[at, label] for at, label in labels.items()],
        "layers": list(suite.layers[::stride]),
        "lines": [[f"{suite.model}@{name}/", step_label(name)] for name in lines],
    }


def set_axes(
    fig: figure, x: Sequence[float], y: Sequence[float], steps: Mapping[float, str], rows: ArrayLike
) -> None:
    """Show these ranges with labels at these steps and rows."""
    fig.xaxis.ticker, fig.xaxis.major_label_overrides = models.FixedTicker(ticks=[*steps]), steps
    fig.yaxis.ticker = models.FixedTicker(ticks=rows)
    for range_, (start, end) in ((fig.x_range, x), (fig.y_range, y)):
        range_.update(start=start, end=end, reset_start=start, reset_end=end)


# figures of arms, for a page and for notebooks


def arms_source(
    arms: Sequence[Arm], suites: Sequence[Suite], **values: Sequence[float]
) -> models.ColumnDataSource:
    """The columns that figures of arms share: name, model, place on the map, and the ``value``, the
    ``error`` and what is compared, ``against``, of each arm.
    """
    sides = {}
    for suite in suites:
        borders = edges(suite.revisions, fitting(suite.revisions))
        for revision, pair in zip(suite.revisions, pairwise(borders), strict=True):
            sides[suite.model, revision] = pair
    pairs = np.array([sides[arm.model, arm.revision] for arm in arms], dtype=np.float32)
    layer = np.array([arm.layer for arm in arms], dtype=np.float32)
    places = {"left": pairs[:, 0], "right": pairs[:, 1], "bottom": layer - 0.5, "top": layer + 0.5}
    columns = {name: np.array(numbers, dtype=np.float32) for name, numbers in values.items()}
    columns["low"] = columns["value"] - columns["error"]
    columns["high"] = columns["value"] + columns["error"]
    names = {"name": [str(arm) for arm in arms], "model": [arm.model for arm in arms]}
    return models.ColumnDataSource({**names, "layer": layer, **places, **columns}, name="arms")


def heat_map(source: models.ColumnDataSource, suite: Suite, marks: Mapping[str, Arm]) -> figure:
    """Layers by checkpoints of one model, with the best and the default arm; `axes_of` has the axes
    of the others.
    """
    of_model = models.GroupFilter(column_name="model", group=suite.model, name="one")
    faded = {"nonselection_fill_alpha": 0.3, "nonselection_line_alpha": 0.0}
    view = models.CDSView(filter=of_model)
    fig, cells, mapper = blank_map(source, TOOLS, view=view, **faded)
    fig.name = "map"
    data = source.data
    low, high = span(data["value"], 0.0, margin=0.0)  # all models share their colours
    if low == high:
        low, high = low - 0.5, high + 0.5
    mapper.update(low=low, high=high)
    for name, marker, size, fill in (
        ("default", "circle", 15, None),
        ("best", "star", 19, "white"),
    ):
        marked = [i for i, arm in enumerate(data["name"]) if arm == str(marks.get(name))]
        x = (data["left"] + data["right"])[marked] / 2
        names = [data["model"][i] for i in marked]
        at = models.ColumnDataSource({"x": x, "y": data["layer"][marked], "model": names})
        # a white rim keeps a mark visible on dark colours
        for width, colour in ((4, "white"), (1.6, "#000000")):
            rim = {"fill_color": fill, "line_color": colour, "line_width": width}
            view = models.CDSView(filter=of_model)  # each belongs to one source
            fig.scatter("x", "y", source=at, view=view, marker=marker, size=size, **rim)
    fig.add_tools(models.HoverTool(renderers=[cells], tooltips=TIPS))
    axes = axes_of(suite)
    set_axes(fig, axes["x"], axes["y"], dict(axes["steps"]), axes["layers"])
    return fig


def layer_lines(source: models.ColumnDataSource, suite: Suite, label: str) -> figure:
    """A quantity along the layers: a line for each of a few checkpoints, the later the lighter."""
    fig = blank(LAYER, label, 300, ZOOM, name="lines")
    names, layer, value = (source.data[name] for name in ("name", "layer", "value"))
    revisions = spread(suite.revisions, LINES)
    columns: dict[str, list[object]] = {"xs": [], "ys": [], "label": [], "colour": []}
    for i, revision in enumerate(revisions):
        prefix = f"{suite.model}@{revision}/"
        on_line = np.char.startswith(np.array(names), prefix) & ~np.isnan(value)
        columns["xs"].append(layer[on_line].tolist())
        columns["ys"].append(value[on_line].tolist())
        columns["label"].append(step_label(revision))
        columns["colour"].append(Cividis256[FIRST + 160 * i // max(1, len(revisions) - 1)])
    lines = models.ColumnDataSource(columns, name="line-data")
    drawn = fig.multi_line("xs", "ys", source=lines, line_color="colour", line_width=2.2)
    tips = [("step", "@label"), ("layer, value", "$x{0}, $y")]
    fig.add_tools(models.HoverTool(renderers=[drawn], tooltips=tips))
    fig.xaxis.ticker = _whole_numbers()
    return fig


def layer_points(source: models.ColumnDataSource, suites: Sequence[Suite], label: str) -> figure:
    """A quantity of single checkpoints by layer: points with standard errors, all models side by
    side.
    """
    fig = blank(LAYER, label, 340, TOOLS, name="points")
    fig.y_range.name = "fitted"
    drawn = []
    for i, suite in enumerate(suites):
        of_model = models.CDSView(filter=models.GroupFilter(column_name="model", group=suite.model))
        shift = models.Dodge(value=0.12 * (i - (len(suites) - 1) / 2))
        x = {"field": "layer", "transform": shift}
        plain = {"source": source, "view": of_model}
        bars = {"line_color": look(i)["color"], "line_width": 2, "nonselection_line_alpha": 0.15}
        fig.segment(x, "low", x, "high", **plain, **bars)
        points = {**look(i), "size": 10, "nonselection_alpha": 0.15, "legend_label": suite.model}
        drawn.append(fig.scatter(x, "value", **plain, **points))
    fig.add_tools(models.HoverTool(renderers=drawn, tooltips=TIPS))
    fig.xaxis.ticker = _whole_numbers()
    legend_above(fig, len(suites) > 1)
    return fig


def _whole_numbers() -> models.BasicTicker:
    return models.BasicTicker(mantissas=[1, 2, 5], min_interval=1, num_minor_ticks=0)


def comparison(
    source: models.ColumnDataSource, suites: Sequence[Suite], label: str, against: str
) -> figure:
    """One quantity of the arms against another."""
    fig = blank(against, label, 340, TOOLS, name="comparison")
    drawn = []
    for i, suite in enumerate(suites):
        of_model = models.CDSView(filter=models.GroupFilter(column_name="model", group=suite.model))
        points = {**look(i), "size": 7, "alpha": 0.7, "nonselection_alpha": 0.08}
        plain = {"source": source, "view": of_model, "legend_label": suite.model}
        drawn.append(fig.scatter("against", "value", **plain, **points))
    tips = [*TIPS, ("against", "@against{0.[0000]a}")]
    fig.add_tools(models.HoverTool(renderers=drawn, tooltips=tips))
    legend_above(fig, len(suites) > 1)
    return fig


def search_path(decisions: pandas.DataFrame, unit: str, default: float | None) -> figure:
    """The score of the best arm so far by cost, and every decision at the score that is expected of
    its arm.

    The frame has a row for each decision: number, stage, arm, spent, expected and best.
    """
    fig = blank(f"cost spent, {unit}", "mean score", 300, ZOOM, name="search")
    dots = []
    for stage, of_stage in decisions.groupby("stage", sort=False):
        style = {"color": STAGES[stage], "size": 6, "alpha": 0.6, "legend_label": stage}
        source = models.ColumnDataSource(of_stage.to_dict("list"))
        dots.append(fig.scatter("spent", "expected", source=source, name=stage, **style))
    style = {"mode": "after", "color": COLOURS[1], "line_width": 2.2}
    fig.step(decisions["spent"], decisions["best"], legend_label="best so far", **style)
    if default is not None:
        style = {"line_dash": "dashed", "color": COLOURS[-1], "line_width": 1.4}
        ends = [0, decisions["spent"].max()]
        fig.line(ends, [default] * 2, legend_label="default arm", **style)
    tips = [("decision", "@number, $name"), ("arm", "@arm")]
    tips += [("expected", "@expected{0.0000}"), ("best so far", "@best{0.0000}")]
    fig.add_tools(models.HoverTool(renderers=dots, tooltips=tips))
    legend_above(fig)
    return fig


def training_loss(losses: Mapping[str, Sequence[tuple[int, float]]]) -> figure:
    """Loss by training step, a line for each model; step 0 stands beside the logarithmic steps."""
    fig = blank("training step", "loss, nats per token", 260, ZOOM, name="losses")
    recorded: set[int] = set()
    for points in losses.values():
        recorded.update(step for step, _ in points)
    revisions = [f"step{step}" for step in sorted(recorded)]
    at = dict(zip(sorted(recorded), positions(revisions, "log"), strict=True))
    drawn = []
    for i, (model, points) in enumerate(losses.items()):
        steps, values = zip(*points, strict=True)
        columns = {"x": [at[step] for step in steps], "step": steps, "loss": values}
        source = models.ColumnDataSource(columns)
        plain = {"source": source, "legend_label": model, "name": model}
        fig.line("x", "loss", line_width=1.6, color=look(i)["color"], **plain)
        drawn.append(fig.scatter("x", "loss", size=6, **look(i), **plain))
    tips = [("", "$name"), ("step", "@step"), ("loss", "@loss{0.000}")]
    fig.add_tools(models.HoverTool(renderers=drawn, tooltips=tips))
    labels = ticks(revisions, "log", MOST_STEPS)
    fig.xaxis.ticker = models.FixedTicker(ticks=list(labels))
    fig.xaxis.major_label_overrides = labels
    legend_above(fig)
    return fig


# live figures, whose `update` sends what has changed

LIVE: dict[str, Any] = {"min_width": 340}
NUMBER = "return isNaN(value) ? 'not known' : value.toPrecision(4)"
ORDER = "return value == 0 ? 'none' : String(value)"


class LiveMap:
    """One model's map with marks for the decisions of the search."""

    def __init__(self) -> None:
        self._drawn: tuple[object, ...] = ()
        self.cells = models.ColumnDataSource()
        self.marks, self.numbers, self.star = (models.ColumnDataSource() for _ in range(3))
        self.figure, cells, self.mapper = blank_map(self.cells, "pan,box_zoom,reset,save")
        fig = self.figure
        (self._bar,) = fig.right  # kept: to look it up for each update takes longer than to draw
        fig.min_width = 340
        rim = {"fill_color": "white", "line_color": "#1c2128", "line_width": 0.9}
        fig.scatter("x", "y", source=self.marks, size=4.5, **rim)
        rim = {"fill_color": COLOURS[4], "line_color": "white", "line_width": 1.4}
        fig.scatter("x", "y", source=self.star, marker="star", size=19, **rim)
        fig.text(
            "x", "y", "text", source=self.numbers, x_offset=6, y_offset=-2, text_font_size="11px",
            text_color="#1c2128", background_fill_color="white", background_fill_alpha=0.85, padding=1,
        )  # fmt: skip
        tips = [
            ("arm", "@name"), ("value", "@value{custom}"), ("posterior", "@mean{custom} ± @sd{custom}"),
            ("scored tasks", "@paid"), ("decisions", "@first{custom} to @last{custom}"),
        ]  # fmt: skip
        number, order = models.CustomJSHover(code=NUMBER), models.CustomJSHover(code=ORDER)
        shown = {"@value": number, "@mean": number, "@sd": number, "@first": order, "@last": order}
        fig.add_tools(models.HoverTool(renderers=[cells], tooltips=tips, formatters=shown))

    def update(self, live: LiveState, model: str, name: str, scale: str) -> None:
        """Show one quantity of one model; a scale other than ``log`` and ``even`` selects the one
        that fits.
        """
        suite, part = live.grid.suite(model)
        fitted: AxisScale = fitting(suite.revisions)
        if scale == "log":
            fitted = "log"
        elif scale == "even":
            fitted = "even"
        if self._drawn != (live, model, fitted):
            self._drawn = live, model, fitted
            self._lay_out(suite, fitted)
        values = live.values(name)[part]
        self._set_colours(values, name, live)
        mean, sd = live.posterior[:, part]
        first, last, paid = live.first[part], live.last[part], live.paid[part]
        self.cells.data.update(value=values, mean=mean, sd=sd, first=first, last=last, paid=paid)
        chosen = np.flatnonzero(paid)
        latest = chosen[np.argsort(-last[chosen])][:NUMBERED]
        leader = live.grid.index.get(live.leader, -1) - part.start
        leaders = [leader] if 0 <= leader < len(values) else []
        self.marks.data = self._at(chosen)
        self.numbers.data = {**self._at(latest), "text": last[latest].astype(str).tolist()}
        self.star.data = self._at(leaders)

    def _at(self, arms: ArrayLike) -> dict[str, NDArray[np.float64]]:
        """The centres of the cells of some arms."""
        arms = np.asarray(arms, int)
        left, right, bottom = (self._places[side][arms] for side in ("left", "right", "bottom"))
        return {"x": (left + right) / 2, "y": bottom + 0.5}

    def _lay_out(self, suite: Suite, scale: AxisScale) -> None:
        borders, count = np.array(edges(suite.revisions, scale)), len(suite.rows)
        bottom = np.tile(np.arange(count) - 0.5, len(suite.revisions))
        self._places = {
            "left": np.repeat(borders[:-1], count),
            "right": np.repeat(borders[1:], count),
            "bottom": bottom,
            "top": bottom + 1,
            "name": np.array([str(arm) for arm in suite.arms()]),
        }
        values = ("value", "mean", "sd", "first", "last", "paid")
        self.cells.data = self._places | dict.fromkeys(values, np.full(len(bottom), np.nan))
        rows = range(0, count, -(-count // MOST_LAYERS))
        steps = ticks(suite.revisions, scale, 2 * MOST_STEPS)
        set_axes(self.figure, (borders[0], borders[-1]), (-0.5, count - 0.5), steps, list(rows))
        labels = {row: " ".join(map(str, suite.rows[row])).strip() for row in rows}
        self.figure.yaxis.major_label_overrides = labels

    def _set_colours(self, values: NDArray[np.float32], name: str, live: LiveState) -> None:
        defined = values[np.isfinite(values)]
        least = LEAST_SHARE * float(np.abs(defined).max(initial=0.0)) or 1.0
        low, high = span(defined, least, margin=0.0)
        if name == SCORED:
            low, high = 0.0, float(len(live.grid.tasks))
        self.mapper.update(low=low, high=high)
        units = live.units(name)
        label = name if units in name else f"{name}, {units}"
        self.figure.title.text = f"{label}: {len(defined):,} of {len(values):,} arms"
        self._bar.title = units if len(units) < 14 else ""


class CostLine:
    """Best mean score so far, and the possible regret, by cost spent."""

    def __init__(self) -> None:
        self.source = models.ColumnDataSource({"cost": [], "best": [], "regret": []})
        title = "Best so far"
        ranges: dict[str, Any] = {"x_range": (0, 100), "y_range": (0, 1)}
        self.figure = fig = blank(COST, "mean raw score", 230, title=title, **ranges, **LIVE)
        fig.extra_y_ranges = {"regret": models.Range1d(0, 1)}
        right = models.LinearAxis(y_range_name="regret", axis_label="possible regret, reward")
        right.axis_label_text_font_style = "normal"
        fig.add_layout(right, "right")
        style = {"source": self.source, "legend_label": "best mean score", "line_width": 2.2}
        fig.step("cost", "best", mode="after", color=COLOURS[0], **style)
        style = {"source": self.source, "line_width": 1.6, "line_dash": "dashed"}
        style |= {"y_range_name": "regret", "legend_label": "possible regret, 95 % bound"}
        fig.line("cost", "regret", color=COLOURS[4], **style)
        legend_above(fig)

    def update(self, live: LiveState) -> None:
        """Show the curve of a run."""
        curve = np.array(live.curve, dtype=float).reshape(-1, 3)
        unit, label = 1.0, "cost spent, assumed seconds"
        if not math.isnan(live.exhaustive):
            unit, label = live.exhaustive / 100, COST
        cost, best, regret = curve[:, 0] / unit, curve[:, 1], curve[:, 2]
        self.source.data = {"cost": cost, "best": best, "regret": regret}
        self.figure.xaxis.axis_label = label
        budget = np.nan_to_num(live.budget) / unit
        self.figure.x_range.end = float(max(budget, cost.max(initial=0.0))) or 100
        low, high = span(best, LEAST_SCORE)
        self.figure.y_range.update(start=low, end=high)
        greatest = 1.1 * np.nanmax(regret, initial=0.0)
        self.figure.extra_y_ranges["regret"].end = max(greatest, LEAST_REGRET)


class LoadLines:
    """The used shares of slots, processors and GPUs over the last half hour."""

    def __init__(self) -> None:
        self.source = models.ColumnDataSource({name: [] for name in ("time", *LOADS)})
        options: dict[str, Any] = {
            "title": "Load of the workers",
            "x_axis_type": "datetime",
            "x_range": (0, 1),
        }
        self.figure = blank("time", "share in use", 230, y_range=(0, 1.05), **options, **LIVE)
        for i, (name, label) in enumerate(LOADS.items()):
            style = {"color": COLOURS[i], "line_dash": DASHES[i], "line_width": 1.8}
            self.figure.line("time", name, source=self.source, legend_label=label, **style)
        self.figure.yaxis.formatter = models.NumeralTickFormatter(format="0 %")
        self.figure.xaxis.ticker.desired_num_ticks = 4  # times are long
        form = {"minutes": "%H:%M", "seconds": "%H:%M:%S", "minsec": "%H:%M:%S"}
        self.figure.xaxis.formatter = models.DatetimeTickFormatter(**form)
        legend_above(self.figure)
        self._newest = 0.0
        # until a worker reports a GPU
        self.figure.legend[0].items[-1].visible = self.figure.renderers[-1].visible = False

    def update(self, loads: Sequence[WorkerLoad]) -> None:
        """Add the new measurements."""
        new = [load for load in loads if load.time > self._newest]
        if not new:
            return
        self._newest = new[-1].time
        if not all(math.isnan(load.gpu) for load in new):
            self.figure.legend[0].items[-1].visible = self.figure.renderers[-1].visible = True
        offset = time.localtime(self._newest).tm_gmtoff  # bokeh shows Universal Time
        columns = {name: [getattr(load, name) for load in new] for name in LOADS}
        columns["time"] = [(load.time + offset) * 1000 for load in new]
        self.source.stream(columns, rollover=900)
        start = max(loads[0].time, self._newest - SHOWN)
        end = max(self._newest, start + 60)
        self.figure.x_range.update(start=(start + offset) * 1000, end=(end + offset) * 1000)


class TrainingLines:
    """Loss and speed of trainings by model and rank; hidden until one reports."""

    def __init__(self, height: int = 230) -> None:
        self._version = -1
        self._sources: dict[str, models.ColumnDataSource] = {}
        options: dict[str, Any] = {"x_range": (0, 1), "y_range": (0, 1), "visible": False, **LIVE}
        loss, speed = "nats per token", "tokens per second and rank"
        self.loss = blank("training step", loss, height, title="Training loss", **options)
        self.speed = blank("training step", speed, height, title="Training speed", **options)

    def update(self, curves: TrainingCurves) -> None:
        """Show new reports."""
        if curves.version == self._version:
            return
        self._version = curves.version
        for name, points in curves.points.items():
            if name not in self._sources:
                self._add(name)
            step, loss, speed, _ = np.array(points, dtype=float).reshape(-1, 4).T
            self._sources[name].data = {"step": step, "loss": loss, "speed": speed}
        if not self._sources:
            return
        columns = [source.data for source in self._sources.values()]
        step, loss, speed = (
            np.concatenate([data[name] for data in columns]) for name in ("step", "loss", "speed")
        )
        low, high = span(loss, LEAST_LOSS)
        self.loss.y_range.update(start=low, end=high)
        self.speed.y_range.end = 1.1 * np.nanmax(speed, initial=0.0) or 1.0
        for fig in (self.loss, self.speed):
            fig.x_range.end = max(step.max(), 1)
            fig.visible = True

    def _add(self, name: str) -> None:
        number = len(self._sources)
        source = models.ColumnDataSource({"step": [], "loss": [], "speed": []})
        self._sources[name] = source
        dash = DASHES[number // len(COLOURS) % len(DASHES)]
        style = {"color": look(number)["color"], "line_dash": dash, "line_width": 1.8}
        if number < MOST_NAMED:
            style["legend_label"] = name
        self.loss.line("step", "loss", source=source, **style)
        self.speed.line("step", "speed", source=source, **style)
        if number == 0:
            legend_above(self.loss)
            legend_above(self.speed)
