"""The live pages: of a run (heat map, decisions of the search, progress, load) and of trainings
(loss, speed).
"""

from __future__ import annotations

import math
import time

from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models import CustomJS, Div, Select
from distributed import Scheduler
from distributed.dashboard.components.scheduler import env
from jinja2 import Environment

from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, plural
from daskmetrics.dashboard._plugin import DashboardPlugin, plugin_of
from daskmetrics.dashboard._state import (
    KINDS,
    POSTERIOR_MEAN,
    SCORED,
    LiveState,
    TrainingCurves,
)
from daskmetrics.dashboard.drawing import (
    COLOURS,
    NO_VALUE,
    CostLine,
    LiveMap,
    LoadLines,
    TrainingLines,
)

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
.line { margin-top: 4px; color: #5b6470; font-size: 13px; }
@media (prefers-color-scheme: dark) {
  :host { color: #e3e7ec; } .facts span, .line, th { color: #9aa5b1; } th { background: #14181d; }
  th, td { border-color: #343b44; }
}
"""
# reasons and examples may need more than one line
WIDE = "td:nth-child(4), td:nth-child(5) { white-space: normal; overflow-wrap: anywhere; }"
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


HTML = Environment(autoescape=True, trim_blocks=True)
HEAD = HTML.from_string("""<div class="facts" style="margin-top: 8px">
{% for value, label in facts %}
<div><b>{{ value }}</b><span>{{ label }}</span></div>
{% endfor %}
</div>
{% if cluster %}<div class="line">{{ cluster }}</div>{% endif %}""")
TABLE = HTML.from_string("""<p class="title">{{ table.title }}</p>
<div class="scroll"><table><tr>{% for name in table.header %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in table.rows %}
<tr>{% for text in row %}<td>{{ text }}</td>{% endfor %}</tr>
{% else %}
<tr><td colspan="{{ table.header | length }}">none</td></tr>
{% endfor %}
</table></div>""")
LINE = HTML.from_string('<p class="title">{{ text }}</p>')
LEGEND = f"""<div style="font: 13px Helvetica, Arial, sans-serif; color: #5b6470; padding-top: 22px; line-height: 18px">
<span style="display:inline-block; width:11px; height:11px; border:1.5px solid #1c2128; border-radius:50%;
 background:#fff; margin-right:5px; vertical-align:-2px"></span>scored, the latest with their numbers
&ensp;<span style="color:{COLOURS[4]}; font-size:17px; vertical-align:-1px">★</span> leading arm
&ensp;<span class="none" style="display:inline-block; width:14px; height:11px;
 border:1px solid #ced4da; margin-right:4px; vertical-align:-1px"></span>no value yet</div>"""
LEGEND_STYLE = f".none {{ background: {NO_VALUE}; }} @media (prefers-color-scheme: dark) {{ .none {{ background: #2b323a; }} }}"


def run_doc(scheduler: Scheduler, extra: dict[str, object], doc: Document) -> None:
    """Fill a bokeh document with the page of the scheduler's run; Dask calls it for every viewer."""
    _fill(doc, extra, "daskmetrics", Page(plugin_of(scheduler)))


def training_doc(scheduler: Scheduler, extra: dict[str, object], doc: Document) -> None:
    """Fill a bokeh document with the page of training; Dask calls it for every viewer."""
    _fill(doc, extra, "daskmetrics: training", TrainingPage(plugin_of(scheduler).training))


def _fill(doc: Document, extra: dict[str, object], title: str, page: Page | TrainingPage) -> None:
    doc.title = title
    doc.template = TEMPLATE
    doc.template_variables.update(extra)
    doc.add_root(page.root)
    painted = {"figures": page.figures, "mapper": page.mapper}
    doc.js_on_event("document_ready", CustomJS(args=painted, code=PAINT))
    page.update()
    doc.add_periodic_callback(page.update, INTERVAL)


class Page:
    """One viewer's page; it sends what has changed since its last update."""

    def __init__(self, plugin: DashboardPlugin) -> None:
        self.plugin = plugin
        self._live: LiveState | None = None
        self._version = -1
        wide = {"sizing_mode": "stretch_width"}
        self.head = Div(stylesheets=[STYLE], **wide)
        style = {"stylesheets": [SELECT_STYLE]}
        self.model = Select(title="Model", width=170, **style)
        self.quantity = Select(title="Shown", width=220, **style)
        scales = [FITTING, "log", "even"]
        self.scale = Select(title="Checkpoints", value=FITTING, options=scales, width=110, **style)
        legend = Div(text=LEGEND, stylesheets=[LEGEND_STYLE], min_width=340, **wide)
        self.map, self.cost, self.load = LiveMap(), CostLine(), LoadLines()
        self.training = TrainingLines()
        self.figures = [self.map.figure, self.cost.figure, self.load.figure]
        self.figures += [self.training.loss, self.training.speed]
        self.mapper = self.map.mapper
        self.decisions = Div(stylesheets=[STYLE], min_width=340, **wide)
        self.failures = Div(stylesheets=[STYLE, WIDE], min_width=340, **wide)
        self.workers = Div(stylesheets=[STYLE], min_width=340, **wide)
        for select in (self.model, self.quantity, self.scale):
            select.on_change("value", self._on_select)
        choices = row(self.model, self.quantity, self.scale, legend, styles=WRAPPED, **wide)
        rows = [
            choices,
            self.map.figure,
            row(self.training.loss, self.training.speed, styles=WRAPPED, **wide),
            row(self.cost.figure, self.load.figure, styles=WRAPPED, **wide),
            self.workers,
            row(self.decisions, self.failures, styles=WRAPPED, **wide),
        ]
        self._of_runs = [choices, self.map.figure, self.failures]  # which a map does not have
        self.cost.figure.visible = self.decisions.visible = False
        self.root = column(self.head, *rows, margin=(0, 14, 14, 14), **wide)

    def update(self) -> None:
        """Show the latest state; called once a second."""
        self.load.update(self.plugin.load)
        self._show_workers()
        self.training.update(self.plugin.training)
        live, items = self.plugin.live, self.plugin.items
        for part in self._of_runs:
            part.visible = live is not None
        if live is None:
            text = "Waiting for a run"
            if items:
                counts = [f"{count} {status}" for status, count in items["counts"].items()]
                text = f"Map of {items['items']} items: {', '.join(counts)}"
            self.head.text = LINE.render(text=text)
            return
        self._show_head(live)
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
        name = current_quantity(live) if self.quantity.value == FOLLOW else self.quantity.value
        self.map.update(live, self.model.value, name, self.scale.value)
        self.cost.update(live)
        self.cost.figure.visible = self.decisions.visible = bool(live.curve or live.latest)
        rows = []
        for index in sorted(live.latest, reverse=True):
            decision = live.latest[index]
            score = "open" if math.isnan(decision.score) else f"{decision.score:.3f}"
            cost = duration(decision.cost)
            rows.append((f"{index:,}", decision.name, decision.stage, score, cost))
        header = ("number", "cell", "stage", "score", "cost")
        self.decisions.text = TABLE.render(table=Table(header, tuple(rows), "Latest decisions"))
        rows = []
        for failure in live.failures:
            reason = (failure.status, failure.reason, failure.example)
            rows.append((f"{failure.count:,}", failure.kind, *reason))
        header = ("count", "what", "status", "reason", "first")
        self.failures.text = TABLE.render(table=Table(header, tuple(rows), "Failures"))

    def _show_workers(self) -> None:
        """What each worker uses now; a quantity that none reports has no column."""
        readings = self.plugin.readings()
        reported = set().union(*readings.values())
        columns = {name: form for name, form in USED.items() if form[0] in reported}
        rows = []
        for worker in sorted(readings, key=lambda name: (len(name), name))[:MOST_WORKERS]:
            texts = [worker]
            for quantity, unit, form in columns.values():
                value = readings[worker].get(quantity)
                texts.append("" if value is None else form.format(value / unit))
            rows.append(tuple(texts))
        title = "Workers now"
        if len(readings) > MOST_WORKERS:
            title += f", the first {MOST_WORKERS} of {len(readings):,}"
        title += " (network and disk: of the machine)"
        self.workers.text = TABLE.render(table=Table(("worker", *columns), tuple(rows), title))

    def _show_head(self, live: LiveState) -> None:
        """State, progress and best score."""
        facts = [(live.phase, f"run {live.name}"), *progress_of(live)]
        if not math.isnan(live.best):
            facts.append((f"{live.best:.3f}", "best mean score so far"))
        if live.leader:
            label = "leading arm"
            if live.phase == "finished":
                label = "best arm" if live.confirmed else "expected to be the best arm"
            facts.append((live.leader, label))
        if left := live.left(time.monotonic()):
            facts.append((duration(left), f"left of {live.phase}"))
        facts.append((f"{len(self.plugin.scheduler.workers)}", "workers"))
        self.head.text = HEAD.render(facts=facts, cluster=self.plugin.cluster)


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
"""Column, quantity of `core.telemetry`, unit and form of a number in the table of workers."""
MOST_WORKERS = 100  # rows of the table of workers


def current_quantity(live: LiveState) -> str:
    """The quantity of the current phase: the first metric, then the posterior mean."""
    if live.phase == "measuring" or not live.grid.tasks:
        return next(iter(live.grid.metrics), SCORED)
    return SCORED if math.isnan(live.posterior.max()) else POSTERIOR_MEAN


DONE = {
    "train": "checkpoints trained",
    "measure": "checkpoints measured",
    "score": "cells scored",
}


def progress_of(live: LiveState) -> list[tuple[str, str]]:
    """Values and labels of the finished units and of the cost."""
    facts = []
    for kind in KINDS:
        done, total = live.counts[kind, "ok"], live.planned.get(kind, 0)
        if not (total or done) or (kind == "measure" and not live.grid.metrics):
            continue
        label = DONE[kind]
        if failed := live.done(kind) - done:
            label += f", {failed:,} failed"
        facts.append((f"{done:,} of {total:,}", label))
    if not math.isnan(live.budget):
        spent, budget = (100 * cost / live.exhaustive for cost in (live.spent, live.budget))
        facts.append((f"{spent:.1f} % of {budget:.1f} %", "of the exhaustive cost spent"))
    return facts


class TrainingPage:
    """One viewer's page of training."""

    def __init__(self, curves: TrainingCurves) -> None:
        self.curves = curves
        wide = {"sizing_mode": "stretch_width"}
        self.head = Div(stylesheets=[STYLE], **wide)
        self.lines = TrainingLines(height=340)
        self.figures, self.mapper = [self.lines.loss, self.lines.speed], None
        self.root = column(self.head, *self.figures, margin=(8, 14, 14, 14), **wide)

    def update(self) -> None:
        """Show new reports; called once a second."""
        self.lines.update(self.curves)
        latest = self.curves.last
        text = "The training has ended."
        if not self.curves.points:
            text = "No training has reported yet. Suites that an earlier run has trained are not trained again."
        elif latest:
            steps = ", ".join(f"{name}: step {point.step:,}" for name, point in latest.items())
            if len(latest) > 2:
                furthest = max(point.step for point in latest.values())
                steps = f"{plural(len(latest), 'rank')}, step {furthest:,}"
            speed = sum(p.tokens_per_second for p in latest.values() if p.tokens_per_second > 0)
            text = f"{steps}, {speed:,.0f} tokens per second in total"
        self.head.text = LINE.render(text=text)
