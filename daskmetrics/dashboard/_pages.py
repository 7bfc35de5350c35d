"""The live pages: of a run (heat map, decisions of the search, progress, load) and of trainings
(loss, speed).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from bokeh.layouts import column, row
from bokeh.models import CustomJS, Div, Select
from distributed.dashboard.components.scheduler import env

from daskmetrics.core.text import duration, plural
from daskmetrics.dashboard._charts import TRAFFIC, BusyLines, CostLine, TrainingLines
from daskmetrics.dashboard._curves import TrainingCurves
from daskmetrics.dashboard._heatmap import Heatmap
from daskmetrics.dashboard._plugin import DashboardPlugin, plugin_of
from daskmetrics.dashboard._state import KINDS, POSTERIOR_MEAN, SCORED, Decision, LiveState

WIDE = ("reason", "first")  # columns whose text may need more than one line
INTERVAL = 1000  # milliseconds between updates
FITTING, FOLLOW = "fitting", "current phase"
WRAPPED = {"flex-wrap": "wrap"}  # a narrow window shows one thing below the other
STYLE = """
:host { font-family: Helvetica, Arial, sans-serif; color: #1c2128; }
.facts { display: flex; flex-wrap: wrap; gap: 6px 26px; font-size: 14px; line-height: 1.35; }
.facts div { white-space: nowrap; } .facts b { display: block; font-size: 17px; font-variant-numeric: tabular-nums; }
.facts span { color: #5b6470; } .title { font-size: 14px; font-weight: 600; margin: 10px 0 0; }
.scroll { max-height: 225px; overflow: auto; max-width: calc(100vw - 60px); margin-top: 4px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th { text-align: left; color: #5b6470; font-weight: 500; position: sticky; top: 0; background: #fafafa; }
th, td { padding: 2px 12px 2px 0; border-bottom: 1px solid #dee2e6; vertical-align: top; white-space: nowrap; }
td.wide { white-space: normal; overflow-wrap: anywhere; }
.line { margin-top: 4px; color: #5b6470; font-size: 13px; }
@media (prefers-color-scheme: dark) {
  :host { color: #e3e7ec; } .facts span, .line, th { color: #9aa5b1; } th { background: #14181d; }
  th, td { border-color: #343b44; }
}
"""
SELECT_STYLE = """
@media (prefers-color-scheme: dark) {
  :host { color: #e3e7ec; } .bk-input { color: #e3e7ec; background-color: #1d2329; border-color: #343b44; }
}
"""
TEMPLATE = env.from_string("""{% extends "simple.html" %}
{% block extra_resources %}
<style>
  :root { color-scheme: light dark; }
  @media (prefers-color-scheme: dark) {
    html { background: #14181d; color: #e3e7ec; }
    .navbar ul, .dropdown-content { background-color: #1d2329; } .navbar li a { color: #e3e7ec; }
    #navbar-toggle-icon img { filter: invert(1); }
  }
</style>
{% endblock %}""")
# figures are drawn on a canvas, which style sheets do not reach
PAINT = """
const dark = window.matchMedia('(prefers-color-scheme: dark)')
const paint = () => {
  const [text, soft, line, page, none] = dark.matches
    ? ['#e3e7ec', '#9aa5b1', '#343b44', '#14181d', '#2b323a'] : ['#1c2128', '#5b6470', '#e5e5e5', '#ffffff', '#e9ecef']
  const colours = {
    background_fill_color: page, border_fill_color: page, outline_line_color: line, text_color: text,
    axis_label_text_color: soft, major_label_text_color: soft, label_text_color: soft, title_text_color: soft,
    axis_line_color: soft, major_tick_line_color: soft, minor_tick_line_color: soft, grid_line_color: line,
  }
  for (const figure of figures)
    for (const part of [figure, figure.title, ...figure.center, ...figure.above, ...figure.below, ...figure.left,
                        ...figure.right])
      for (const [name, colour] of Object.entries(colours))
        if (part != null && name in part.properties) part[name] = colour
  if (mapper != null) mapper.nan_color = none
}
paint()
dark.addEventListener('change', paint)
"""


def run_doc(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Fill a bokeh document with the page of the scheduler's run; Dask calls it for every viewer."""
    _fill(doc, extra, "daskmetrics", Page(plugin_of(scheduler)))


def training_doc(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Fill a bokeh document with the page of training; Dask calls it for every viewer."""
    _fill(doc, extra, "daskmetrics: training", TrainingPage(plugin_of(scheduler).training))


def _fill(doc: Any, extra: dict[str, Any], title: str, page: Page | TrainingPage) -> None:
    doc.title = title
    doc.template = TEMPLATE
    doc.template_variables.update(extra)
    doc.add_root(page.root)
    doc.js_on_event(
        "document_ready",
        CustomJS(args={"figures": page.figures, "mapper": page.mapper}, code=PAINT),
    )
    page.update()
    doc.add_periodic_callback(page.update, INTERVAL)


class Page:
    """One viewer's page; it sends what has changed since its last update."""

    def __init__(self, plugin: DashboardPlugin) -> None:
        self.plugin = plugin
        self._live: LiveState | None = None
        self._version = -1
        self.head = Div(stylesheets=[STYLE], sizing_mode="stretch_width")
        style: dict[str, Any] = {"stylesheets": [SELECT_STYLE]}
        self.model = Select(title="Model", width=170, **style)
        self.quantity = Select(title="Shown", width=220, **style)
        scales = [FITTING, "log", "even"]
        self.scale = Select(title="Checkpoints", value=FITTING, options=scales, width=110, **style)
        self.heat = Heatmap()
        self.cost, self.busy, self.training = CostLine(), BusyLines(), TrainingLines()
        self.memory = BusyLines("Memory of the workers", "GB", {"memory": "all workers"}, 1e9)
        self.traffic = BusyLines("Traffic of their machines", "MB per second", TRAFFIC, 1e6)
        self.loads = [self.busy, self.memory, self.traffic]
        self.figures = [self.heat.figure, self.cost.figure, self.training.loss, self.training.speed]
        self.figures += [load.figure for load in self.loads]
        self.mapper = self.heat.mapper
        self.decisions, self.failures, self.workers = (
            Div(stylesheets=[STYLE], min_width=340, sizing_mode="stretch_width") for _ in range(3)
        )
        for select in (self.model, self.quantity, self.scale):
            select.on_change("value", self._on_select)
        wide: dict[str, Any] = {"sizing_mode": "stretch_width"}
        rows = [
            row(*parts, styles=WRAPPED, **wide)
            for parts in (
                (self.model, self.quantity, self.scale, self.heat.legend),
                (self.heat.figure,),
                (self.training.loss, self.training.speed),
                (self.cost.figure, self.busy.figure),
                (self.memory.figure, self.traffic.figure),
                (self.workers,),
                (self.decisions, self.failures),
            )
        ]
        self._of_runs = [*rows[:2], self.failures]  # which a map does not have
        self.cost.figure.visible = self.decisions.visible = False
        self.root = column(self.head, *rows, margin=(0, 14, 14, 14), **wide)

    def update(self) -> None:
        """Show the latest state; called once a second."""
        for load in self.loads:
            load.update(self.plugin.load)
        self.workers.text = _workers(self.plugin.readings())
        self.training.update(self.plugin.training)
        live = self.plugin.live
        for part in self._of_runs:
            part.visible = live is not None
        if live is None:
            items = self.plugin.items
            counts = (
                ", ".join(f"{count} {status}" for status, count in items["counts"].items())
                if items
                else ""
            )
            title = f"Map of {items['items']} items: {counts}" if items else "Waiting for a run"
            self.head.text = f'<p class="title">{title}</p>'
            return
        self.head.text = _head(live, self.plugin)
        if live is not self._live:
            self._live, self._version = None, -1  # while the choices change
            models = [suite.model for suite in live.grid.suites]
            self.model.update(options=models, value=models[-1])
            self.quantity.update(options={"": [FOLLOW], **live.names()}, value=FOLLOW)
            self._live = live
        if live.version != self._version:
            self._version = live.version
            self._show(live)

    def _on_select(self, attribute: str, old: str, new: str) -> None:
        if self._live is not None:
            self._show(self._live)

    def _show(self, live: LiveState) -> None:
        name = _current(live) if self.quantity.value == FOLLOW else self.quantity.value
        self.heat.update(live, self.model.value, name, self.scale.value)
        self.cost.update(live)
        self.cost.figure.visible = self.decisions.visible = bool(live.curve or live.latest)
        latest = [live.latest[index] for index in sorted(live.latest, reverse=True)]
        self.decisions.text = _table(
            "Latest decisions",
            ("number", "cell", "stage", "score", "cost"),
            [
                (f"{one.index:,}", one.name, one.stage, _score_text(one), duration(one.cost))
                for one in latest
            ],
        )
        self.failures.text = _table(
            "Failures",
            ("count", "what", "status", "reason", "first"),
            [
                (f"{one.count:,}", one.kind, one.status, one.reason, one.example)
                for one in live.failures
            ],
        )


def _current(live: LiveState) -> str:
    """The quantity of the current phase: the first metric, then the posterior mean."""
    if live.phase == "measuring" or not live.grid.tasks:
        return next(iter(live.grid.metrics), SCORED)
    return POSTERIOR_MEAN if (live.posterior == live.posterior).any() else SCORED


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls, as HTML; its text is escaped, since it may come from foreign code."""
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, header, one))}</tr>" for one in rows)
    body = body or f'<tr><td colspan="{len(header)}">none</td></tr>'
    return f'<p class="title">{title}</p><div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


USED = {
    "CPU": ("cpu", 1, "{:.0f} %"),
    "memory": ("memory", 1e9, "{:.2f} GB"),
    "received": ("received", 1e6, "{:.1f} MB/s"),
    "sent": ("sent", 1e6, "{:.1f} MB/s"),
    "read": ("read", 1e6, "{:.1f} MB/s"),
    "written": ("written", 1e6, "{:.1f} MB/s"),
    "GPU": ("gpu", 1, "{:.0f} %"),
    "GPU memory": ("gpu_memory", 1e9, "{:.1f} GB"),
    "power": ("power", 1, "{:.0f} W"),
    "temperature": ("temperature", 1, "{:.0f} °C"),
}
"""Column, quantity of `core._telemetry`, unit and form of a number in the table of workers."""
MOST_WORKERS = 100  # rows of the table of workers


def _workers(readings: Mapping[str, Mapping[str, float]]) -> str:
    """What each worker uses now, as HTML; a quantity that none reports has no column."""
    reported = {quantity for own in readings.values() for quantity in own}
    columns = {name: part for name, part in USED.items() if part[0] in reported}
    shown = sorted(readings, key=lambda name: (len(name), name))[:MOST_WORKERS]
    more = (
        f", the first {MOST_WORKERS} of {len(readings):,}" if len(readings) > MOST_WORKERS else ""
    )
    return _table(
        f"Workers now{more} (network and disk: of the machine)",
        ("worker", *columns),
        [
            (
                name,
                *(
                    form.format(own[q] / unit) if q in own else ""
                    for q, unit, form in columns.values()
                ),
            )
            for name, own in ((name, readings[name]) for name in shown)
        ],
    )


def _cell(name: str, text: str) -> str:
    return f'<td class="{"wide" if name in WIDE else "narrow"}">{escape(text)}</td>'


def _score_text(decision: Decision) -> str:
    return "open" if decision.score != decision.score else f"{decision.score:.3f}"


def _head(live: LiveState, plugin: DashboardPlugin) -> str:
    """State, progress and best score, as HTML."""
    facts = [(escape(live.phase), f"run {escape(live.name)}"), *_progress(live)]
    if live.best == live.best:
        facts.append((f"{live.best:.3f}", "best mean score so far"))
    if live.leader:
        ended = "best arm" if live.confirmed else "expected to be the best arm"
        facts.append((escape(live.leader), ended if live.phase == "finished" else "leading arm"))
    if left := live.left(time.monotonic()):
        facts.append((duration(left), f"left of {escape(live.phase)}"))
    facts.append((f"{len(plugin.scheduler.workers)}", "workers"))
    tiles = "".join(f"<div><b>{value}</b><span>{label}</span></div>" for value, label in facts)
    cluster = f'<div class="line">{escape(plugin.cluster)}</div>' if plugin.cluster else ""
    return f'<div class="facts" style="margin-top: 8px">{tiles}</div>{cluster}'


def _progress(live: LiveState) -> list[tuple[str, str]]:
    """Values and labels of the finished units and of the cost."""
    facts = []
    words = {
        "train": "checkpoints trained",
        "measure": "checkpoints measured",
        "score": "cells scored",
    }
    for kind in (kind for kind in KINDS if kind != "measure" or live.grid.metrics):
        done, total = live.counts[kind, "ok"], live.planned.get(kind, 0)
        failed = live.done(kind) - done
        if total or done:
            facts.append(
                (f"{done:,} of {total:,}", words[kind] + (f", {failed:,} failed" if failed else ""))
            )
    if live.budget == live.budget:
        shares = f"{live.spent / live.exhaustive:.1%} of {live.budget / live.exhaustive:.1%}"
        facts.append((shares.replace("%", " %"), "of the exhaustive cost spent"))
    return facts


class TrainingPage:
    """One viewer's page of training."""

    def __init__(self, curves: TrainingCurves) -> None:
        self.curves = curves
        self.head = Div(stylesheets=[STYLE], sizing_mode="stretch_width")
        self.lines = TrainingLines(height=340)
        self.root = column(
            self.head,
            self.lines.loss,
            self.lines.speed,
            margin=(8, 14, 14, 14),
            sizing_mode="stretch_width",
        )
        self.figures, self.mapper = [self.lines.loss, self.lines.speed], None

    def update(self) -> None:
        """Show new reports; called once a second."""
        self.lines.update(self.curves)
        self.head.text = f'<p class="title">{self._summary()}</p>'

    def _summary(self) -> str:
        last = self.curves.last
        if not self.curves.points:
            return "No training has reported yet. Suites that an earlier run has trained are not trained again."
        if not last:
            return "The training has ended."
        steps = ", ".join(f"{escape(name)}: step {point.step:,}" for name, point in last.items())
        total = sum(
            point.tokens_per_second for point in last.values() if point.tokens_per_second > 0
        )
        steps = (
            steps
            if len(last) < 3
            else f"{plural(len(last), 'rank')}, step {max(p.step for p in last.values()):,}"
        )
        return f"{steps}, {total:,.0f} tokens per second in total"
