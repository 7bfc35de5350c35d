"""Line charts of the pages: the best score by cost, the load of the workers, training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    DataRange1d,
    DatetimeTickFormatter,
    LinearAxis,
    NumeralTickFormatter,
    Range1d,
)
from bokeh.plotting import figure
from numpy.typing import NDArray

from daskmetrics.core.colours import COLOURS
from daskmetrics.dashboard._curves import TrainingCurves
from daskmetrics.dashboard._plugin import WorkerLoad
from daskmetrics.dashboard._state import LiveState

COST = "cost spent, % of the exhaustive sweep (assumed)"
SHOWN = 1800.0  # latest seconds that are shown
DASHES = ("solid", "dashed", "dotdash", "dotted")
LOADS = {
    "gpu_slots": "slots for models",  # the resource GPU, which workers without a GPU have, too
    "cpu_slots": "slots for scoring",
    "cpu": "processor time",
    "gpu": "GPU utilisation",
}
TRAFFIC = {"network": "network, both directions", "disk": "disk, both directions"}
# smallest spans of axes: less is noise, not a finding
LEAST_SCORE, LEAST_REGRET, LEAST_LOSS = (
    0.05,
    0.02,
    0.5,
)
MOST_NAMED = 16  # ranks that the legend of a training names


def plain_figure(title: str, x_label: str, y_label: str, **options: Any) -> Any:
    """An empty figure in the style of the pages."""
    fig = figure(
        title=title, height=230, min_width=340, sizing_mode="stretch_width", tools="save", **options
    )
    fig.toolbar.logo = None
    fig.toolbar.autohide = True
    fig.title.text_font_size = "14px"
    fig.xaxis.axis_label, fig.yaxis.axis_label = x_label, y_label
    for axis in (fig.xaxis, fig.yaxis):
        axis.axis_label_text_font_style = "normal"
    return fig


def legend_above(fig: Any) -> None:
    """Move the legend above the figure, in one line; a click on a name hides its line."""
    legend = fig.legend[0]
    legend.update(
        orientation="horizontal", click_policy="hide", label_text_font_size="12px", border_line_color=None,
        padding=0, margin=2, background_fill_alpha=0,
    )  # fmt: skip
    fig.add_layout(legend, "above")


class CostLine:
    """Best mean score so far, and the possible regret, by cost spent."""

    def __init__(self) -> None:
        self.source = ColumnDataSource({"cost": [], "best": [], "regret": []})
        self.figure = fig = plain_figure(
            "Best so far", COST, "mean raw score", x_range=(0, 100), y_range=(0, 1)
        )
        fig.extra_y_ranges = {"regret": Range1d(0, 1)}
        right = LinearAxis(y_range_name="regret", axis_label="possible regret, reward")
        right.axis_label_text_font_style = "normal"
        fig.add_layout(right, "right")
        fig.step(
            "cost", "best", source=self.source, mode="after", color=COLOURS[0], line_width=2.2,
            legend_label="best mean score",
        )  # fmt: skip
        fig.line(
            "cost", "regret", source=self.source, color=COLOURS[4], line_width=1.6, line_dash="dashed",
            y_range_name="regret", legend_label="possible regret, 95 % bound",
        )  # fmt: skip
        legend_above(fig)

    def update(self, live: LiveState) -> None:
        """Show the live's curve."""
        curve = np.array(live.curve, dtype=float).reshape(-1, 3)
        known = live.exhaustive == live.exhaustive
        unit = live.exhaustive / 100 if known else 1.0
        cost, best, regret = curve[:, 0] / unit, curve[:, 1], curve[:, 2]
        self.source.data = {"cost": cost, "best": best, "regret": regret}
        self.figure.xaxis.axis_label = COST if known else "cost spent, assumed seconds"
        whole = live.budget / unit if live.budget == live.budget else 0.0
        self.figure.x_range.end = max(whole, cost.max(initial=0.0)) or 100
        low, high = span(best, LEAST_SCORE)
        self.figure.y_range.update(start=low, end=high)
        self.figure.extra_y_ranges["regret"].end = max(
            1.1 * np.nanmax(regret, initial=0.0), LEAST_REGRET
        )


def span(values: NDArray[Any], least: float, margin: float = 0.12) -> tuple[float, float]:
    """A range that shows all values with a margin, and spans at least this much.

    >>> span(np.array([0.5, 0.5001, np.nan]), least=0.1, margin=0.0)
    (0.45005, 0.55005)
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    half = max((0.5 + margin) * (high - low), least / 2)
    return (low + high) / 2 - half, (low + high) / 2 + half


class BusyLines:
    """Quantities of the workers over the last half hour: by default used shares of slots,
    processors and GPUs.
    """

    def __init__(
        self,
        title: str = "Load of the workers",
        label: str = "share in use",
        lines: Mapping[str, str] = LOADS,
        unit: float = 1.0,
    ) -> None:
        self._names, self._unit = lines, unit
        self.source = ColumnDataSource({name: [] for name in ("time", *lines)})
        self.figure = plain_figure(title, "time", label, x_axis_type="datetime", x_range=(0, 1))
        self._lines = {
            name: self.figure.line(
                "time", name, source=self.source, color=COLOURS[i], line_dash=DASHES[i], line_width=1.8,
                legend_label=label,
            )
            for i, (name, label) in enumerate(lines.items())
        }  # fmt: skip
        if lines is LOADS:
            self.figure.y_range = Range1d(0, 1.05)
            self.figure.yaxis.formatter = NumeralTickFormatter(format="0 %")
        else:
            self.figure.y_range = DataRange1d(start=0)
        self.figure.xaxis.ticker.desired_num_ticks = 4  # times are long
        self.figure.xaxis.formatter = DatetimeTickFormatter(
            minutes="%H:%M", seconds="%H:%M:%S", minsec="%H:%M:%S"
        )
        legend_above(self.figure)
        self._last = 0.0
        self._show_gpu(False)  # until a worker reports one

    def update(self, busy: Sequence[WorkerLoad]) -> None:
        """Add the new measurements."""
        new = [one for one in busy if one.time > self._last]
        if not new:
            return
        first, self._last = busy[0].time, new[-1].time
        if any(one.gpu == one.gpu for one in new):
            self._show_gpu(True)
        added = {name: [getattr(one, name) / self._unit for one in new] for name in self._names}
        offset = time.localtime(self._last).tm_gmtoff  # bokeh shows Universal Time
        start = max(first, self._last - SHOWN)
        self.figure.x_range.update(
            start=(start + offset) * 1000, end=(max(self._last, start + 60) + offset) * 1000
        )
        self.source.stream(
            {"time": [(one.time + offset) * 1000 for one in new], **added}, rollover=900
        )

    def _show_gpu(self, visible: bool) -> None:
        line = self._lines.get("gpu")
        for item in self.figure.legend[0].items:
            if line is not None and item.renderers == [line]:
                item.visible = line.visible = visible


class TrainingLines:
    """Loss and speed of trainings by model and rank; hidden until one reports."""

    def __init__(self, height: int = 230) -> None:
        self._version = -1
        self._sources: dict[str, ColumnDataSource] = {}
        ranges: dict[str, Any] = {"x_range": (0, 1), "y_range": (0, 1)}
        self.loss = plain_figure("Training loss", "training step", "nats per token", **ranges)
        self.speed = plain_figure(
            "Training speed", "training step", "tokens per second and rank", **ranges
        )
        for fig in (self.loss, self.speed):
            fig.update(height=height, visible=False)

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
        if self._sources:
            self._set_ranges()

    def _set_ranges(self) -> None:
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
        source = self._sources[name] = ColumnDataSource({"step": [], "loss": [], "speed": []})
        dash = DASHES[number // len(COLOURS) % len(DASHES)]
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "line_dash": dash,
            "line_width": 1.8,
        }
        if number < MOST_NAMED:
            style["legend_label"] = name
        self.loss.line("step", "loss", source=source, **style)
        self.speed.line("step", "speed", source=source, **style)
        if number == 0:
            legend_above(self.loss)
            legend_above(self.speed)
