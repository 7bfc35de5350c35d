"""The heat map of layers and checkpoints of one model, with marks for the decisions of the search."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh import models
from bokeh.palettes import Cividis256
from bokeh.plotting import figure
from numpy.typing import NDArray

from daskmetrics.core.names import Suite
from daskmetrics.core.steps import AxisScale, edges, fitting, ticks
from daskmetrics.dashboard._charts import span
from daskmetrics.dashboard._state import SCORED, LiveState

NUMBERED = 5  # latest decisions that are numbered
MOST_STEPS, MOST_LAYERS = 26, 13  # labels along the two axes
NO_VALUE = "#e9ecef"  # colour of arms without a value
ORANGE = "#d55e00"
LEGEND = (
    '<div style="font: 13px Helvetica, Arial, sans-serif; color: #5b6470; padding-top: 22px; line-height: 18px">'
    '<span style="display:inline-block; width:11px; height:11px; border:1.5px solid #1c2128; border-radius:50%;'
    ' background:#fff; margin-right:5px; vertical-align:-2px"></span>scored, the latest with their numbers'
    f'&ensp;<span style="color:{ORANGE}; font-size:17px; vertical-align:-1px">★</span> leading arm'
    '&ensp;<span class="none" style="display:inline-block; width:14px; height:11px;'
    ' border:1px solid #ced4da; margin-right:4px; vertical-align:-1px"></span>no value yet</div>'
)
LEGEND_STYLE = f".none {{ background: {NO_VALUE}; }} @media (prefers-color-scheme: dark) {{ .none {{ background: #2b323a; }} }}"
# smallest span of the colours, as a share of the greatest value: less is noise, not a finding
LEAST_SHARE = 0.02
NUMBER = "return isNaN(value) ? 'not known' : value.toPrecision(4)"
ORDER = "return value == 0 ? 'none' : String(value)"


class Heatmap:
    """One model's heat map; `update` sends the columns that changed."""

    def __init__(self) -> None:
        self._drawn: tuple[Any, ...] = ()
        self.legend = models.Div(
            text=LEGEND, stylesheets=[LEGEND_STYLE], min_width=340, sizing_mode="stretch_width"
        )
        names = (
            "left",
            "right",
            "bottom",
            "top",
            "name",
            "value",
            "mean",
            "sd",
            "first",
            "last",
            "paid",
        )
        self.cells = models.ColumnDataSource({name: [] for name in names})
        self.marks = models.ColumnDataSource({"x": [], "y": []})
        self.numbers = models.ColumnDataSource({"x": [], "y": [], "text": []})
        self.star = models.ColumnDataSource({"x": [], "y": []})
        self.mapper = models.LinearColorMapper(
            palette=Cividis256, low=0, high=1, nan_color=NO_VALUE
        )
        self.figure = self._figure()

    def _figure(self) -> Any:
        fig = figure(
            height=330,
            min_width=340,
            sizing_mode="stretch_width",
            tools="pan,box_zoom,reset,save",
            x_range=(0, 1),
            y_range=(0, 1),
        )
        fig.toolbar_location = "above"
        fig.toolbar.logo = None
        color: Any = {"field": "value", "transform": self.mapper}
        cells = fig.quad(
            "left", "right", "bottom", "top", source=self.cells, fill_color=color, line_color=color
        )
        fig.scatter(
            "x",
            "y",
            source=self.marks,
            size=4.5,
            fill_color="white",
            line_color="#1c2128",
            line_width=0.9,
        )
        fig.scatter(
            "x",
            "y",
            source=self.star,
            marker="star",
            size=19,
            fill_color=ORANGE,
            line_color="white",
            line_width=1.4,
        )
        fig.text(
            "x", "y", "text", source=self.numbers, x_offset=6, y_offset=-2, text_font_size="11px",
            text_color="#1c2128", background_fill_color="white", background_fill_alpha=0.85, padding=1,
        )  # fmt: skip
        tips = [
            ("arm", "@name"), ("value", "@value{custom}"), ("posterior", "@mean{custom} ± @sd{custom}"),
            ("scored tasks", "@paid"), ("decisions", "@first{custom} to @last{custom}"),
        ]  # fmt: skip
        code = dict.fromkeys(("@value", "@mean", "@sd"), NUMBER) | dict.fromkeys(
            ("@first", "@last"), ORDER
        )
        shown = {name: models.CustomJSHover(code=text) for name, text in code.items()}
        fig.add_tools(models.HoverTool(renderers=[cells], tooltips=tips, formatters=shown))
        self.bar = models.ColorBar(
            color_mapper=self.mapper, width=14, padding=6, ticker=models.BasicTicker(desired_num_ticks=5),
            title_text_font_style="normal",
        )  # fmt: skip
        fig.add_layout(self.bar, "right")
        fig.xaxis.axis_label, fig.yaxis.axis_label = "training step", "layer"
        fig.grid.visible = False
        fig.title.text_font_size = "14px"
        for axis in (fig.xaxis, fig.yaxis):
            axis.axis_label_text_font_style = "normal"
        return fig

    def update(self, live: LiveState, model: str, name: str, scale: str) -> None:
        """Show one quantity of one model; a scale other than ``log`` and ``even`` selects the one
        that fits.
        """
        suite, part = live.grid.suite(model)
        fitted: AxisScale = scale if scale in ("log", "even") else fitting(suite.revisions)  # type: ignore[assignment]
        if self._drawn != (live, model, fitted):
            self._drawn = live, model, fitted
            self._lay_out(suite, fitted)
        values = live.values(name)[part]
        self._set_colours(values, name, live)
        mean, sd = live.posterior[:, part]
        self.cells.data.update(
            value=values,
            mean=mean,
            sd=sd,
            first=live.first[part],
            last=live.last[part],
            paid=live.paid[part],
        )
        paid, last = np.flatnonzero(live.paid[part]), live.last[part]
        latest = paid[np.argsort(-last[paid])][:NUMBERED]
        self.marks.data = {"x": self.x[paid], "y": self.y[paid]}
        self.numbers.data = {
            "x": self.x[latest],
            "y": self.y[latest],
            "text": [str(number) for number in last[latest]],
        }
        leader = live.grid.index.get(live.leader, -1) - part.start
        leaders = [leader] if 0 <= leader < len(self.x) else []
        self.star.data = {"x": self.x[leaders], "y": self.y[leaders]}

    def _lay_out(self, suite: Suite, scale: AxisScale) -> None:
        borders = np.array(edges(suite.revisions, scale))
        rows = len(suite.rows)
        left, right = np.repeat(borders[:-1], rows), np.repeat(borders[1:], rows)
        bottom = np.tile(np.arange(rows) - 0.5, len(suite.revisions))
        self.x, self.y = (left + right) / 2, bottom + 0.5
        blank = np.full(len(left), np.nan, np.float32)
        none = np.zeros(len(left), int)
        names = [str(arm) for arm in suite.arms()]
        self.cells.data = {
            "left": left, "right": right, "bottom": bottom, "top": bottom + 1, "name": names, "value": blank,
            "mean": blank, "sd": blank, "first": none, "last": none, "paid": none,
        }  # fmt: skip
        fig, labels = self.figure, ticks(suite.revisions, scale, MOST_STEPS)
        fig.xaxis.ticker, fig.xaxis.major_label_overrides = (
            models.FixedTicker(ticks=list(labels)),
            labels,
        )
        stride = -(-rows // MOST_LAYERS)
        shown = {
            i: f"{layer} {name}".strip()
            for i, (layer, name) in enumerate(suite.rows)
            if i % stride == 0
        }
        fig.yaxis.ticker, fig.yaxis.major_label_overrides = (
            models.FixedTicker(ticks=list(shown)),
            shown,
        )
        for range_, start, end in (
            (fig.x_range, borders[0], borders[-1]),
            (fig.y_range, -0.5, rows - 0.5),
        ):
            range_.update(start=start, end=end, reset_start=start, reset_end=end)

    def _set_colours(self, values: NDArray[np.float32], name: str, live: LiveState) -> None:
        known = values[np.isfinite(values)]
        least = LEAST_SHARE * float(np.abs(known).max(initial=0.0)) or 1.0
        low, high = (
            (0.0, float(len(live.grid.tasks))) if name == SCORED else span(known, least, margin=0.0)
        )
        self.mapper.update(low=low, high=high)
        units = live.units(name)
        share = f"{len(known):,} of {len(values):,} arms"
        self.figure.title.text = (
            f"{name}: {share}" if units in name else f"{name}, {units}: {share}"
        )
        self.bar.title = units if len(units) < 14 else ""
