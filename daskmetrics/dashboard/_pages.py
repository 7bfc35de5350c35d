"""The live page: what is measured, scores by layer and checkpoint, decisions of the search,
trainings, workers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas
from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models import CustomJS, Div, Select
from bokeh.plotting import figure
from dask.utils import format_bytes
from distributed import Scheduler
from distributed.dashboard.components.scheduler import env
from jinja2 import Environment
from numpy.typing import NDArray

from daskmetrics.core.text import duration, plural, score_text, shortened
from daskmetrics.dashboard import drawing
from daskmetrics.dashboard._plugin import USED, DashboardPlugin, plugin_of
from daskmetrics.dashboard._state import (
    KINDS,
    POSTERIOR_MEAN,
    SCORED,
    LiveState,
    TrainingCurves,
)
from daskmetrics.domain.failures import failures_table
from daskmetrics.domain.names import Suite

INTERVAL = 1000  # milliseconds between updates
FOLLOW = "current phase"
WIDE = {"sizing_mode": "stretch_width"}
BESIDE = {**WIDE, "min_width": 340}
WRAPPED = {**WIDE, "styles": {"flex-wrap": "wrap"}}  # a narrow window shows one below the other
HIDDEN = {"visible": False}  # until there is something to show
# smallest spans of axes and colours (of these a share): less is noise, not a finding
LEAST_SCORE = 0.05
LEAST_LOSS = 0.5
LEAST_SHARE = 0.02
MOST_WORKERS = 100  # rows of the table of workers
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
progress { width: 100%; max-width: 600px; display: block; margin-top: 6px; accent-color: #2b8cc4; }
@media (prefers-color-scheme: dark) {
  :host { color: #e3e7ec; } .facts span, .line, th { color: #9aa5b1; } th { background: #14181d; }
  th, td { border-color: #343b44; }
}
"""
# reasons and examples may need more than one line
BREAK = "td:nth-child(4), td:nth-child(5) { white-space: normal; overflow-wrap: anywhere; }"
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
HTML.filters.update(
    duration=duration,
    number=score_text,
    plural=plural,
    shortened=shortened,
    format_bytes=format_bytes,
)
HEAD = HTML.from_string("""{% macro fact(value, label) %}
<div><b>{{ value }}</b><span>{{ label }}</span></div>
{% endmacro %}
<div class="facts" style="margin-top: 8px">
{{ fact(live.phase, "run " ~ live.name) }}
{% for kind, label in kinds.items() %}
{% set done, total = live.counts[(kind, "ok")], live.planned.get(kind, 0) %}
{% set failed = live.done(kind) - done %}
{% if (total or done) and (kind != "measure" or live.metrics) %}
{{ fact("{:,} of {:,}".format(done, total), label ~ (", {:,} failed".format(failed) if failed else "")) }}
{% endif %}
{% endfor %}
{% if live.budget == live.budget %}
{% set spent, budget = 100 * live.spent / live.exhaustive, 100 * live.budget / live.exhaustive %}
{{ fact("%.1f %% of %.1f %%" % (spent, budget), "of the cost of scoring everything") }}
{% endif %}
{% if left %}{{ fact(left | duration, "left of " ~ live.phase) }}{% endif %}
{% if live.best == live.best %}{{ fact(live.best | number, "best mean score so far") }}{% endif %}
{% if live.leader and live.phase != "finished" %}
{{ fact(live.leader, "leading candidate") }}
{% elif live.leader %}
{{ fact(live.leader, "best" if live.confirmed else "expected to be the best") }}
{% endif %}
{% if live.phase == "searching" and live.loss == live.loss %}
{{ fact(live.loss | number, "expected loss of it") }}
{% endif %}
{{ fact(workers, "workers") }}
</div>
{% set done, total = live.progress %}
{% if total == total and total %}<progress value="{{ done }}" max="{{ total }}"></progress>{% endif %}
{% if cluster %}<div class="line">{{ cluster }}</div>{% endif %}
{% if live.phase == "measuring" %}
<div class="line">{{ live.metrics | length | plural("metric") }} of
{% for suite in live.suites %}{{ ", " if not loop.first }}{{ suite.model }} ({{ suite.revisions | length | plural("checkpoint") }}){% endfor %}</div>
{% endif %}
{% if live.open and live.phase in ("measuring", "searching") %}
<div class="line">now: {{ (live.open.values() | list)[::-1] | shortened(3) }}</div>
{% endif %}""")
DECISIONS = HTML.from_string("""<p class="title">Latest decisions</p>
<div class="scroll"><table>
<tr><th>number</th><th>score of</th><th>why</th><th>score</th><th>cost</th></tr>
{% for index, decision in latest | dictsort(reverse=true) %}
<tr><td>{{ "{:,}".format(index) }}</td><td>{{ decision.name }}</td><td>{{ decision.why }}</td>
<td>{{ decision.score | number if decision.score == decision.score else "open" }}</td>
<td>{{ decision.cost | duration }}</td></tr>
{% endfor %}
</table></div>""")
WORKERS = HTML.from_string("""<p class="title">Workers now: {{ names | length }} of
{{ "{:,}".format(readings | length) }} (network and disk: of the machine)</p>
<div class="scroll"><table>
<tr><th>worker</th>{% for label, _ in columns.values() %}<th>{{ label }}</th>{% endfor %}</tr>
{% for name in names %}
<tr><td>{{ name }}</td>
{% for quantity, (_, unit) in columns.items() %}
{% set value = readings[name][quantity] %}
<td>{{ "" if value is undefined else value | int | format_bytes ~ unit[1:] if unit[0] == "B" else "%.0f %s" % (value, unit) }}</td>
{% endfor %}
</tr>
{% endfor %}
</table></div>""")
HEAD_OF_OTHERS = HTML.from_string("""{% if map %}
<p class="title">Map of {{ map['items'] }} items:
{% for status, count in map['counts'].items() %}{{ ", " if not loop.first }}{{ count }} {{ status }}{% endfor %}</p>
{% endif %}
{% if training.last %}
{% set steps = training.last.values() | map(attribute="step") | list %}
<p class="title">{{ steps | length }} rank{{ "s" if steps | length > 1 }}, step {{ "{:,}".format(steps | max) -}}
{% if training.speed %}, {{ "{:,.0f}".format(training.speed) }} tokens per second in total{% endif %}</p>
{% elif not map %}
<p class="title">Waiting for a run</p>
{% endif %}""")
FAILURES = '<p class="title">Failures</p><div class="scroll">{}</div>'
LEGEND = """<div style="font: 13px Helvetica, Arial, sans-serif; color: #5b6470; padding-top: 22px; line-height: 18px">
<span style="font-size: 17px">○</span> scored &ensp;<span style="font-size: 17px">☆</span> leading candidate &ensp;grey: no value yet</div>"""


UNKNOWN = Suite("", ("main",), (0,), 0)  # of a map before a run begins


def run_doc(scheduler: Scheduler, extra: dict[str, object], doc: Document) -> None:
    """Fill a bokeh document with the page of a run.

    Dask calls it for every viewer.
    """
    page = Page(plugin_of(scheduler))
    doc.title = "daskmetrics"
    doc.template = TEMPLATE
    doc.template_variables.update(extra)
    doc.add_root(page.root)
    painted = {"figures": list(page.root.select({"type": figure})), "mapper": page.mapper}
    doc.js_on_event("document_ready", CustomJS(args=painted, code=PAINT))
    page.update()
    doc.add_periodic_callback(page.update, INTERVAL)


class Page:
    """One viewer's page, which sends what has changed."""

    def __init__(self, plugin: DashboardPlugin) -> None:
        self.plugin = plugin
        self._live: LiveState | None = None
        self._version = self._trained = -1
        self.head = Div(stylesheets=[STYLE], **WIDE)
        self.model = Select(title="Model", width=170, stylesheets=[SELECT_STYLE])
        self.quantity = Select(title="Shown", width=220, stylesheets=[SELECT_STYLE])
        for select in (self.model, self.quantity):
            select.on_change("value", lambda name, old, new: self._show())
        legend = Div(text=LEGEND, **BESIDE)
        self.choices = row(self.model, self.quantity, legend, **WRAPPED, **HIDDEN)
        no_arms = drawing.arms_source(UNKNOWN.arms(), [UNKNOWN])
        self.map = drawing.heat_map(no_arms)
        self.map.visible = False
        self.mapper = self.map.select_one({"name": "colours"})
        self.source = self.map.select_one({"name": "arms"})
        self.lines = drawing.layer_lines(title=" ", **HIDDEN)
        panel: dict[str, Any] = {"height": 230, "min_width": 340, "visible": False}
        step = "training step"
        speed = "tokens per second and rank"
        self.best = drawing.curves("", "mean score", title="Best so far", **panel)
        self.lost = drawing.curves("", "mean score", title="Expected loss", **panel)
        self.loss = drawing.curves(step, "loss", title="Training loss", **panel)
        self.speed = drawing.curves(step, speed, title="Training speed", **panel)
        self.decisions = Div(stylesheets=[STYLE], **BESIDE, **HIDDEN)
        self.failures = Div(stylesheets=[STYLE, BREAK], **BESIDE, **HIDDEN)
        self.workers = Div(stylesheets=[STYLE], **BESIDE)
        self.root = column(
            self.head,
            self.choices,
            self.map,
            self.lines,
            row(self.best, self.lost, **WRAPPED),
            row(self.loss, self.speed, **WRAPPED),
            self.workers,
            row(self.decisions, self.failures, **WRAPPED),
            margin=(0, 14, 14, 14),
            **WIDE,
        )

    def update(self) -> None:
        """Show the latest state; called once a second."""
        live = self.plugin.live
        training = self.plugin.training
        self._show_workers()
        if training.version != self._trained:
            self._trained = training.version
            self._show_training(training)
        if live is None:
            self.head.text = HEAD_OF_OTHERS.render(map=self.plugin.items, training=training)
            return
        self.head.text = HEAD.render(
            live=live,
            kinds=KINDS,
            left=live.left(time.monotonic()),
            workers=len(self.plugin.scheduler.workers),
            cluster=self.plugin.cluster,
        )
        if live is not self._live:
            self._begin(live)
        if live.version != self._version:
            self._version = live.version
            self._show()

    def _begin(self, live: LiveState) -> None:
        self._live = None  # while the choices change
        self._version = -1
        models = [suite.model for suite in live.suites]
        self.model.update(options=[FOLLOW, *models], value=FOLLOW)
        self.quantity.update(options={"": [FOLLOW], **live.names}, value=FOLLOW)
        arms = drawing.arms_source(live.arms, live.suites)
        self.source.data = dict(arms.data)
        self._live = live

    def _show(self) -> None:
        """Show what is known so far, and nothing without values."""
        live = self._live
        if live is None:
            return
        suites = {suite.model: suite for suite in live.suites}
        suite = suites.get(self.model.value, current_model(live))
        name = self.quantity.value
        if name == FOLLOW:
            name = current_quantity(live)
        of_model = np.array([arm.model == suite.model for arm in live.arms])
        defined = np.isfinite(live.values[name][of_model])
        is_map = len(suite.revisions) > 1  # of a single checkpoint it would be a stripe
        self.map.visible = bool(defined.any()) and is_map
        self.lines.visible = bool(defined.any()) and not is_map
        title = f"{suite.model}: {name}"
        if self.map.visible:
            self._show_map(live, name)
            drawing.show_model(self.map, suite)
            self.map.title.text = f"{title}, {defined.sum():,} of {defined.size:,}"
        elif self.lines.visible:
            names = [name]
            if self.quantity.value == FOLLOW and np.isfinite(live.scores).any():
                names = live.tasks[: drawing.LINES]
                title = f"{suite.model}: scores by task"
            points = layer_points(live, names, of_model, suite)
            are_scores = set(names) <= set(live.tasks)
            drawing.draw_curves(self.lines, points, are_scores=are_scores)
            self.lines.xaxis.axis_label = "layer" if suite.layer_names else drawing.LAYER
            self.lines.xaxis.major_label_overrides = dict(enumerate(suite.layer_names))
            self.lines.title.text = title
        self.choices.visible = True
        self._show_cost(live)
        self.best.visible = self.decisions.visible = bool(live.latest)
        self.lost.visible = bool(live.losses)
        self.decisions.text = DECISIONS.render(latest=live.latest)
        failures = failures_table(live.failures)
        self.failures.visible = bool(failures.rows)
        self.failures.text = FAILURES.format(failures.as_html())

    def _show_map(self, live: LiveState, name: str) -> None:
        values = live.values[name]
        self.source.data.update({"value": values, "error": live.errors[name]})
        greatest = float(np.abs(values[np.isfinite(values)]).max())
        least = max(LEAST_SHARE * greatest, drawing.least_span(live.errors[name]))
        low, high = drawing.span(values, least, margin=0.0)
        self.mapper.update(low=low, high=high)
        marks = self.map.select_one({"name": "marks"})
        marks.data = drawing.marked(self.source, {"paid": live.paid, "best": [live.leader]})

    def _show_cost(self, live: LiveState) -> None:
        unit = 1.0
        label = "cost so far, estimated seconds"
        if not math.isnan(live.exhaustive):
            unit = live.exhaustive / 100
            label = "cost so far, % of scoring everything (estimated)"
        cost, best = np.transpose([*live.curve, (live.spent, live.best)])
        losses = pandas.DataFrame(live.losses, columns=["spent", "loss"], dtype=float)
        # a step: the best stays as it is until it rises
        points = pandas.DataFrame(
            {"x": np.repeat(cost / unit, 2)[1:], "y": np.repeat(best, 2)[:-1]}
        )
        drawing.draw_curves(self.best, points.assign(label="best"), LEAST_SCORE, are_scores=True)
        drawing.draw_losses(self.lost, losses["spent"] / unit, losses["loss"])
        greatest = float(np.fmax(live.budget, live.spent))
        for fig in (self.best, self.lost):
            fig.xaxis.axis_label = label
            fig.x_range.end = greatest / unit or 100.0

    def _show_training(self, training: TrainingCurves) -> None:
        rows = []
        for name, of_name in training.points.items():
            rows += [(name, *point) for point in of_name]
        points = pandas.DataFrame(rows, columns=["label", "x", "loss", "speed", "time"])
        for name, fig in {"loss": self.loss, "speed": self.speed}.items():
            drawing.draw_curves(fig, points.rename(columns={name: "y"}), least=LEAST_LOSS)
            fig.visible = bool(points[name].notna().any())  # a program may report no tokens
        self.speed.y_range.start = 0.0

    def _show_workers(self) -> None:
        readings = self.plugin.readings()
        reported = set().union(*readings.values())
        columns = {name: USED[name][:2] for name in USED if name in reported}
        names = sorted(readings, key=lambda name: (len(name), name))[:MOST_WORKERS]
        self.workers.text = WORKERS.render(names=names, columns=columns, readings=readings)


def layer_points(
    live: LiveState, names: Sequence[str], chosen: NDArray[np.bool_], suite: Suite
) -> pandas.DataFrame:
    """Quantities of the chosen arms along the layers.

    Of each layer it is the readout with the greatest value.
    """
    table = pandas.DataFrame({"x": [arm.layer for arm in live.arms]})
    tables = [
        table.assign(label=name, y=live.values[name], error=live.errors[name])[chosen]
        for name in names
    ]
    points = pandas.concat(tables).sort_values("y")
    greatest = points.drop_duplicates(["label", "x"], keep="last")
    greatest = greatest.assign(at=[suite.layer_name(layer) for layer in greatest["x"]])
    return greatest.sort_values("x", kind="stable")


def current_model(live: LiveState) -> Suite:
    """The model of the leading arm or latest result."""
    name = live.leader or live.recent
    suites = (suite for suite in live.suites if name.startswith(f"{suite.model}@"))
    return next(suites, live.suites[0])


def current_quantity(live: LiveState) -> str:
    """The first metric, then the posterior mean."""
    if live.phase == "measuring" or not live.tasks:
        return next(iter(live.metrics), SCORED)
    if np.isnan(live.values[POSTERIOR_MEAN]).all():
        return SCORED
    return POSTERIOR_MEAN
