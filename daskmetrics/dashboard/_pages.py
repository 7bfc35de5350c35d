"""The live pages: of a run (what is measured, scores by layer and checkpoint, decisions of the search,
workers) and of trainings (loss, speed).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas
from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, CustomJS, Div, Select
from bokeh.plotting import figure
from dask.utils import format_bytes
from distributed import Scheduler
from distributed.dashboard.components.scheduler import env
from jinja2 import Environment
from numpy.typing import NDArray

from daskmetrics.core.names import Arm, Suite
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, plural, shortened
from daskmetrics.dashboard import drawing
from daskmetrics.dashboard._plugin import DashboardPlugin, plugin_of
from daskmetrics.dashboard._state import (
    KINDS,
    POSTERIOR_MEAN,
    SCORED,
    LiveState,
    TrainingCurves,
)

INTERVAL = 1000  # milliseconds between updates
FOLLOW = "current phase"
WIDE = {"sizing_mode": "stretch_width"}
BESIDE = {**WIDE, "min_width": 340}
WRAPPED = {**WIDE, "styles": {"flex-wrap": "wrap"}}  # a narrow window shows one below the other
# smallest spans of axes and colours (of these a share): less is noise, not a finding
LEAST_SCORE, LEAST_LOSS, LEAST_SHARE = 0.05, 0.5, 0.02
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
HEAD = HTML.from_string("""<div class="facts" style="margin-top: 8px">
{% for value, label in facts %}
<div><b>{{ value }}</b><span>{{ label }}</span></div>
{% endfor %}
</div>
{% if total %}<progress value="{{ done }}" max="{{ total }}"></progress>{% endif %}
{% for line in lines %}<div class="line">{{ line }}</div>{% endfor %}""")
TABLE = HTML.from_string("""<p class="title">{{ table.title }}</p>
<div class="scroll"><table><tr>{% for name in table.header %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in table.rows %}
<tr>{% for text in row %}<td>{{ text }}</td>{% endfor %}</tr>
{% else %}
<tr><td colspan="{{ table.header | length }}">none</td></tr>
{% endfor %}
</table></div>""")
LINE = HTML.from_string('<p class="title">{{ text }}</p>')
LEGEND = """<div style="font: 13px Helvetica, Arial, sans-serif; color: #5b6470; padding-top: 22px; line-height: 18px">
<span style="font-size: 17px">○</span> scored &ensp;<span style="font-size: 17px">☆</span> leading candidate &ensp;grey: no value yet</div>"""


MAP_TIPS = [
    ("candidate", "@name"),
    ("value", "@value{0.[0000]a} ± @error{0.[0000]a}"),
    ("scored tasks", "@tasks"),
]
UNKNOWN = Suite("", ("main",), (0,), 0)  # of a map before a run begins


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
    painted = {"figures": list(page.root.select({"type": figure})), "mapper": page.mapper}
    doc.js_on_event("document_ready", CustomJS(args=painted, code=PAINT))
    page.update()
    doc.add_periodic_callback(page.update, INTERVAL)


class Page:
    """One viewer's page; it sends what has changed since its last update."""

    def __init__(self, plugin: DashboardPlugin) -> None:
        self.plugin = plugin
        self._live: LiveState | None = None
        self._version = -1
        self.head = Div(stylesheets=[STYLE], **WIDE)
        self.model = Select(title="Model", width=170, stylesheets=[SELECT_STYLE])
        self.quantity = Select(title="Shown", width=220, stylesheets=[SELECT_STYLE])
        for select in (self.model, self.quantity):
            select.on_change("value", self._on_select)
        legend = Div(text=LEGEND, **BESIDE)
        self.choices = row(self.model, self.quantity, legend, **WRAPPED)
        self.map = drawing.heat_map(
            _source(UNKNOWN.arms(), [UNKNOWN]), UNKNOWN, {}, MAP_TIPS, "reset,save"
        )
        self.lines = drawing.layer_lines(title=" ")
        self.cost = drawing.blank(
            "",
            "mean score",
            230,
            "save",
            title="Best so far",
            x_range=(0, 100),
            y_range=(0, 1),
            min_width=340,
        )
        self.best = ColumnDataSource({"cost": [], "best": []})
        style = {"source": self.best, "mode": "after", "line_width": 2.2}
        self.cost.step("cost", "best", color=drawing.COLOURS[0], **style)
        self.training = TrainingLines(230)
        self.decisions = Div(stylesheets=[STYLE], **BESIDE)
        self.failures = Div(stylesheets=[STYLE, BREAK], **BESIDE)
        self.workers = Div(stylesheets=[STYLE], **BESIDE)
        self.mapper = self.map.select_one({"name": "colours"})
        figures = [self.choices, self.map, self.lines, self.cost]
        training = row(self.training.loss, self.training.speed, **WRAPPED)
        lists = row(self.decisions, self.failures, **WRAPPED)
        margin = (0, 14, 14, 14)
        self.root = column(
            self.head, *figures, training, self.workers, lists, margin=margin, **WIDE
        )
        self._of_runs = (*figures, self.decisions, self.failures)
        for panel in self._of_runs:
            panel.visible = False

    def update(self) -> None:
        """Show the latest state; called once a second."""
        self._show_workers()
        self.training.update(self.plugin.training)
        live, items = self.plugin.live, self.plugin.items
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
            models = [suite.model for suite in live.suites]
            self.model.update(options=[FOLLOW, *models], value=FOLLOW)
            self.quantity.update(options={"": [FOLLOW], **live.names()}, value=FOLLOW)
            source = self.map.select_one({"name": "arms"})
            source.data = dict(_source(live.arms, live.suites).data)
            self._live = live
        if live.version != self._version:
            self._version = live.version
            self._show(live)

    def _on_select(self, attribute: str, old: str, new: str) -> None:
        if self._live is not None:
            self._show(self._live)

    def _show(self, live: LiveState) -> None:
        """What is known so far; nothing is drawn of what has no value yet."""
        suite = current_model(live)
        if self.model.value != FOLLOW:
            suite = next(suite for suite in live.suites if suite.model == self.model.value)
        name = self.quantity.value
        if name == FOLLOW:
            name = current_quantity(live)
        of_model = np.array([arm.model == suite.model for arm in live.arms])
        defined = np.isfinite(live.values(name)[of_model])
        is_map = len(suite.revisions) > 1  # of a single checkpoint it would be a stripe
        self.map.visible = is_map and bool(defined.any())
        self.lines.visible = not is_map and bool(defined.any())
        title = f"{suite.model}: {name}"
        if self.map.visible:
            self._show_map(live, name)
            drawing.show_model(self.map, suite)
            self.map.title.text = f"{title}, {defined.sum():,} of {defined.size:,}"
        elif self.lines.visible:
            names = [name]
            if self.quantity.value == FOLLOW and np.isfinite(live.scores).any():
                names = list(live.tasks)[: drawing.LINES]
                title = f"{suite.model}: scores by task"
            drawing.draw_curves(self.lines, layer_points(live, names, of_model))
            self.lines.title.text = title
        self.choices.visible = True
        self._show_cost(live)
        for panel in (self.decisions, self.cost):
            panel.visible = bool(live.latest)
        self.failures.visible = bool(live.failures)
        rows = []
        for index in sorted(live.latest, reverse=True):
            decision = live.latest[index]
            score = f"{decision.score:.3f}"
            if math.isnan(decision.score):
                score = "open"
            rows.append(
                (f"{index:,}", decision.name, decision.stage, score, duration(decision.cost))
            )
        header = ("number", "score of", "stage", "score", "cost")
        self.decisions.text = TABLE.render(table=Table(header, tuple(rows), "Latest decisions"))
        rows = []
        for failure in live.failures:
            reason = (failure.status, failure.reason, failure.example)
            rows.append((f"{failure.count:,}", failure.kind, *reason))
        header = ("count", "what", "status", "reason", "first")
        self.failures.text = TABLE.render(table=Table(header, tuple(rows), "Failures"))

    def _show_map(self, live: LiveState, name: str) -> None:
        values = live.values(name)
        source = self.map.select_one({"name": "arms"})
        new = {"value": values, "error": live.errors_of(name), "tasks": live.values(SCORED)}
        source.data.update(new)
        defined = values[np.isfinite(values)]
        low, high = drawing.colours_of(
            defined, LEAST_SHARE * float(np.abs(defined).max(initial=0.0))
        )
        self.mapper.update(low=low, high=high)
        marks = {"paid": live.paid, "best": [live.leader]}
        self.map.select_one({"name": "marks"}).data = drawing.marked(source, marks)

    def _show_cost(self, live: LiveState) -> None:
        unit, label = 1.0, "cost so far, estimated seconds"
        if not math.isnan(live.exhaustive):
            unit, label = live.exhaustive / 100, "cost so far, % of scoring everything (estimated)"
        cost, best = np.array([*live.curve, (live.spent, live.best)]).T
        self.best.data = {"cost": cost / unit, "best": best}
        self.cost.xaxis.axis_label = label
        self.cost.x_range.end = float(np.fmax(live.budget, live.spent)) / unit or 100.0
        low, high = drawing.span(best, LEAST_SCORE)
        self.cost.y_range.update(start=low, end=high)

    def _show_workers(self) -> None:
        """What each worker uses now; a quantity that none reports has no column."""
        readings = self.plugin.readings()
        reported = set().union(*readings.values())
        columns = {name: used for name, used in USED.items() if name in reported}
        names = sorted(readings, key=lambda name: (len(name), name))[:MOST_WORKERS]
        rows = []
        for worker in names:
            texts = []
            for name, (_, form) in columns.items():
                value = readings[worker].get(name)
                texts.append("" if value is None else form(value))
            rows.append((worker, *texts))
        title = f"Workers now: {len(names)} of {len(readings):,} (network and disk: of the machine)"
        header = ("worker", *(label for label, _ in columns.values()))
        self.workers.text = TABLE.render(table=Table(header, tuple(rows), title))

    def _show_head(self, live: LiveState) -> None:
        """State, progress and best score."""
        facts = [(live.phase, f"run {live.name}"), *progress_of(live)]
        if seconds := live.left(time.monotonic()):
            facts.append((duration(seconds), f"left of {live.phase}"))
        if not math.isnan(live.best):
            facts.append((f"{live.best:.3f}", "best mean score so far"))
        if live.leader:
            label = "leading candidate"
            if live.phase == "finished":
                label = "expected to be the best"
                if live.confirmed:
                    label = "best"
            facts.append((live.leader, label))
        if live.phase == "searching" and not math.isnan(live.shortfall):
            facts.append((f"{live.shortfall:.3f}", "possible regret, 95 % bound"))
        facts.append((f"{len(self.plugin.scheduler.workers)}", "workers"))
        lines = []
        if self.plugin.cluster:
            lines.append(self.plugin.cluster)
        done, total = live.progress
        if live.phase == "measuring":
            models = ", ".join(
                f"{suite.model} ({plural(len(suite.revisions), 'checkpoint')})"
                for suite in live.suites
            )
            lines.append(f"{plural(len(live.metrics), 'metric')} of {models}")
        if live.open and live.phase in ("measuring", "searching"):
            lines.append(f"now: {shortened(list(live.open.values())[::-1], 3)}")
        self.head.text = HEAD.render(
            facts=facts, lines=lines, done=done, total=np.nan_to_num(total)
        )


def _rate(value: float) -> str:
    return f"{format_bytes(int(value))}/s"


#: Column and form of each quantity of `core.telemetry` in the table of workers.
USED: dict[str, tuple[str, Callable[[float], str]]] = {
    "cpu": ("CPU", "{:.0f} %".format),
    "memory": ("memory", format_bytes),
    "received": ("received", _rate),
    "sent": ("sent", _rate),
    "read": ("read", _rate),
    "written": ("written", _rate),
    "gpu": ("GPU", "{:.0f} %".format),
    "gpu_memory": ("GPU memory", format_bytes),
    "power": ("power", "{:.0f} W".format),
    "temperature": ("temperature", "{:.0f} °C".format),
}


def _source(arms: Sequence[Arm], suites: Sequence[Suite]) -> ColumnDataSource:
    """The source of the map, without values."""
    empty = np.full(len(arms), np.nan)
    return drawing.arms_source(arms, suites, value=empty, error=empty, tasks=empty)


def layer_points(
    live: LiveState, names: Sequence[str], chosen: NDArray[np.bool_]
) -> pandas.DataFrame:
    """Quantities of the chosen arms along the layers; of each layer the readout with the greatest
    value.
    """
    layers = [arm.layer for arm, is_chosen in zip(live.arms, chosen, strict=True) if is_chosen]
    columns = []
    for name in names:
        values = {"y": live.values(name)[chosen], "error": live.errors_of(name)[chosen]}
        columns.append(pandas.DataFrame({"label": name, "x": layers, **values}))
    points = pandas.concat(columns).sort_values("y").drop_duplicates(["label", "x"], keep="last")
    return points.sort_values("x", kind="stable")


def current_model(live: LiveState) -> Suite:
    """The model of the leading arm or, before a search, of the latest result."""
    name = live.leader or live.recent
    suites = (suite for suite in live.suites if name.startswith(f"{suite.model}@"))
    return next(suites, live.suites[0])


def current_quantity(live: LiveState) -> str:
    """The quantity of the current phase: the first metric, then the posterior mean."""
    if live.phase == "measuring" or not live.tasks:
        return next(iter(live.metrics), SCORED)
    if np.isnan(live.posterior).all():
        return SCORED
    return POSTERIOR_MEAN


DONE = {
    "train": "checkpoints trained",
    "measure": "checkpoints measured",
    "score": "scores",
}


def progress_of(live: LiveState) -> list[tuple[str, str]]:
    """Values and labels of the finished units and of the cost."""
    facts = []
    for kind in KINDS:
        done, total = live.counts[kind, "ok"], live.planned.get(kind, 0)
        if not (total or done) or (kind == "measure" and not live.metrics):
            continue
        label = DONE[kind]
        if failed := live.done(kind) - done:
            label += f", {failed:,} failed"
        facts.append((f"{done:,} of {total:,}", label))
    if not math.isnan(live.budget):
        spent, budget = (100 * cost / live.exhaustive for cost in (live.spent, live.budget))
        facts.append((f"{spent:.1f} % of {budget:.1f} %", "of the cost of scoring everything"))
    return facts


class TrainingLines:
    """Loss and speed of trainings by model and rank; hidden until one reports."""

    def __init__(self, height: int) -> None:
        self._version = -1
        options = {"visible": False, "min_width": 340}
        step = "training step"
        self.loss = drawing.curves(step, "nats per token", height, title="Training loss", **options)
        self.speed = drawing.curves(
            step, "tokens per second and rank", height, title="Training speed", **options
        )

    def update(self, training: TrainingCurves) -> None:
        """Show new reports."""
        if training.version == self._version:
            return
        self._version = training.version
        rows = [(name, *point) for name, points in training.points.items() for point in points]
        points = pandas.DataFrame(rows, columns=["label", "x", "loss", "speed", "time"])
        for fig, name in ((self.loss, "loss"), (self.speed, "speed")):
            drawing.draw_curves(fig, points.rename(columns={name: "y"}), least=LEAST_LOSS)
            fig.visible = bool(rows)
        self.speed.y_range.start = 0.0


class TrainingPage:
    """One viewer's page of training."""

    mapper = None

    def __init__(self, training: TrainingCurves) -> None:
        self.training = training
        self.head = Div(stylesheets=[STYLE], **WIDE)
        self.lines = TrainingLines(340)
        figures = (self.lines.loss, self.lines.speed)
        self.root = column(self.head, *figures, margin=(8, 14, 14, 14), **WIDE)

    def update(self) -> None:
        """Show new reports; called once a second."""
        self.lines.update(self.training)
        latest = self.training.last
        text = "The training has ended."
        if not self.training.points:
            text = (
                "No training has reported yet. Suites that an earlier run has trained are not"
                " trained again."
            )
        elif latest:
            steps = ", ".join(f"{name}: step {point.step:,}" for name, point in latest.items())
            if len(latest) > 2:
                furthest = max(point.step for point in latest.values())
                steps = f"{plural(len(latest), 'rank')}, step {furthest:,}"
            speed = sum(p.tokens_per_second for p in latest.values() if p.tokens_per_second > 0)
            text = f"{steps}, {speed:,.0f} tokens per second in total"
        self.head.text = LINE.render(text=text)
