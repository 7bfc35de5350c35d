"""The page of training: loss and throughput of every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, Div
from distributed.dashboard.components.scheduler import env

from daskmetrics.dashboard._charts import COLOURS, DASHES, legend_above, plain_figure
from daskmetrics.dashboard._plugin import desk_of
from daskmetrics.dashboard._state import Curves

EVERY = 1000  # milliseconds between looks at the desk
MOST_NAMED = 16  # ranks that the legend names


def training_doc(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Fill a bokeh document with the page of training; Dask calls it for every viewer."""
    page = TrainingPage(desk_of(scheduler).training)
    doc.title = "daskmetrics: training"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.add_root(page.root)
    page.update()
    doc.add_periodic_callback(page.update, EVERY)


class TrainingPage:
    """One viewer's page of training."""

    def __init__(self, curves: Curves) -> None:
        self.curves = curves
        self._version = -1
        self._sources: dict[str, ColumnDataSource] = {}
        self.head = Div(sizing_mode="stretch_width")
        self.loss = plain_figure("Loss", "training step", "nats per token")
        self.speed = plain_figure("Throughput", "training step", "tokens per second and rank")
        self.loss.height = self.speed.height = 340
        self.root = column(self.head, self.loss, self.speed, margin=(8, 14, 14, 14), sizing_mode="stretch_width")

    def update(self) -> None:
        """Look at what was heard; called once a second."""
        if self.curves.version == self._version:
            return
        self._version = self.curves.version
        for name, points in self.curves.points.items():
            if name not in self._sources:
                self._add(name)
            step, loss, speed, _ = np.array(points, dtype=float).reshape(-1, 4).T
            self._sources[name].data = {"step": step, "loss": loss, "speed": speed}
        self.head.text = self._said()

    def _said(self) -> str:
        last = self.curves.last.values()
        style = "font: 16px Helvetica, Arial, sans-serif"
        if not last:
            return f'<div style="{style}">No training has reported yet.</div>'
        total = sum(speed for _, _, speed, _ in last if speed == speed)
        step = max(step for step, *_ in last)
        ranks = "1 rank" if len(last) == 1 else f"{len(last)} ranks"
        return f'<div style="{style}">{ranks}, step {step:,}, {total:,.0f} tokens per second in all</div>'

    def _add(self, name: str) -> None:
        number = len(self._sources)
        source = self._sources[name] = ColumnDataSource({"step": [], "loss": [], "speed": []})
        look: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "line_dash": DASHES[number // len(COLOURS) % len(DASHES)],
            "line_width": 1.8,
        }
        named = {"legend_label": name} if number < MOST_NAMED else {}
        self.loss.line("step", "loss", source=source, **look, **named)
        self.speed.line("step", "speed", source=source, **look, **named)
        if number == 0:
            legend_above(self.loss)
            legend_above(self.speed)
