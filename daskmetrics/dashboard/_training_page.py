"""The page of training: loss and throughput of every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, Div
from distributed.dashboard.components.scheduler import env

from daskmetrics.core._text import plural
from daskmetrics.dashboard._charts import COLOURS, DASHES, legend_above, plain_figure
from daskmetrics.dashboard._curves import TrainingCurves
from daskmetrics.dashboard._plugin import plugin_of

INTERVAL = 1000  # milliseconds between updates
MOST_NAMED = 16  # ranks that the legend names


def training_doc(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Fill a bokeh document with the page of training; Dask calls it for every viewer."""
    page = TrainingPage(plugin_of(scheduler).training)
    doc.title = "daskmetrics: training"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.add_root(page.root)
    page.update()
    doc.add_periodic_callback(page.update, INTERVAL)


class TrainingPage:
    """One viewer's page of training."""

    def __init__(self, curves: TrainingCurves) -> None:
        self.curves = curves
        self._version = -1
        self._sources: dict[str, ColumnDataSource] = {}
        self.head = Div(sizing_mode="stretch_width")
        self.loss = plain_figure("Loss", "training step", "nats per token")
        self.speed = plain_figure("Throughput", "training step", "tokens per second and rank")
        self.loss.height = self.speed.height = 340
        self.root = column(self.head, self.loss, self.speed, margin=(8, 14, 14, 14), sizing_mode="stretch_width")

    def update(self) -> None:
        """Show new reports; called once a second."""
        if self.curves.version == self._version:
            return
        self._version = self.curves.version
        for name, points in self.curves.points.items():
            if name not in self._sources:
                self._add(name)
            step, loss, speed, _ = np.array(points, dtype=float).reshape(-1, 4).T
            self._sources[name].data = {"step": step, "loss": loss, "speed": speed}
        self.head.text = f'<div style="font: 16px Helvetica, Arial, sans-serif">{self._summary()}</div>'

    def _summary(self) -> str:
        last = self.curves.last.values()
        if not last:
            return "No training has reported yet."
        total = sum(speed for _, _, speed, _ in last if speed == speed)
        step = max(step for step, *_ in last)
        return f"{plural(len(last), 'rank')}, step {step:,}, {total:,.0f} tokens per second in total"

    def _add(self, name: str) -> None:
        number = len(self._sources)
        source = self._sources[name] = ColumnDataSource({"step": [], "loss": [], "speed": []})
        dash = DASHES[number // len(COLOURS) % len(DASHES)]
        style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "line_dash": dash, "line_width": 1.8}
        if number < MOST_NAMED:
            style["legend_label"] = name
        self.loss.line("step", "loss", source=source, **style)
        self.speed.line("step", "speed", source=source, **style)
        if number == 0:
            legend_above(self.loss)
            legend_above(self.speed)
