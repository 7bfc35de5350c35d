from __future__ import annotations

import numpy as np
import pytest
from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document
from bokeh.resources import Resources

from daskmetrics.answer.posterior import known_posterior, path_of
from daskmetrics.core.names import Suite
from daskmetrics.dashboard import drawing
from daskmetrics.report._quantities import (
    METRICS,
    SCORES,
    Field,
    fields,
)
from daskmetrics.report.page import MANY

STEPS = tuple(f"step{1000 * i}" for i in range(144))
GRID = tuple(Suite(name, STEPS, tuple(range(12)), 11) for name in ("small", "medium", "large"))
ARMS = [arm for suite in GRID for arm in suite.arms()]
LIMIT = 5_000_000  # bytes of a page


def a_field(name, group, share, errors=True):
    rng = np.random.default_rng(list(name.encode()))
    values, noise = rng.normal(size=(2, len(ARMS)))
    values[rng.random(len(ARMS)) > share] = np.nan
    return Field(name, group, "nats", values, noise if errors else np.full(len(ARMS), np.nan))


def test_the_figures_of_5184_arms_fit_into_a_page():
    fields_ = [a_field("expected score", SCORES, 1.0)]
    fields_ += [a_field(f"task{i}", SCORES, 0.1) for i in range(32)]
    fields_ += [a_field(f"m{i}", METRICS, 1.0, errors=False) for i in range(24)]
    shown = fields_[0]
    columns = {"value": shown.values, "error": shown.errors, "against": shown.values}
    for field in fields_:
        columns[f"values of {field.name}"] = field.values
        if field.group == SCORES:
            columns[f"errors of {field.name}"] = field.errors
    source = drawing.arms_source(ARMS, GRID, **columns)
    document = Document()
    for fig in (
        drawing.heat_map(source, GRID[0], {"best": ARMS[7], "default": ARMS[-1]}),
        drawing.curves(drawing.LAYER, "x", 320),
        drawing.comparison(source, GRID, "x", "y"),
    ):
        document.add_root(fig)
    assert len(ARMS) == 5184 > MANY
    size = len(serialize_json(document.to_json(deferred=False)))
    library = Resources(mode="inline", minified=True, components=["bokeh"]).js_raw[0]
    tables = 500_000
    assert size + len(library) + tables < LIMIT


def test_the_quantities_of_a_run_are_what_it_recorded(finished):
    arms = list(finished.recorded)
    known = {field.name: field for field in fields(finished, arms, known_posterior(finished))}
    task = "stdlib:order"
    row, arm = next((i, arm) for i, arm in enumerate(arms) if task in finished.recorded[arm])
    scored = finished.recorded[arm][task]
    assert (known[task].values[row], known[task].errors[row]) == (scored.score, scored.stderr)
    place = {"model": arm.model, "checkpoint": arm.revision, "layer": arm.layer}
    stored = finished.metrics["prompt_entropy"].sel(place).item()
    assert known["prompt_entropy"].values[row] == pytest.approx(stored)
    assert np.isfinite(known["expected score"].errors).all()
    assert known["layers computed"].values[row] == arm.layer


def test_every_decision_is_drawn_at_the_cost_spent_then(finished):
    path = path_of(finished)
    drawn = drawing.search_path(path, path.attrs["unit"], path.attrs["default"]).renderers
    dots = [x for renderer in drawn for x in renderer.data_source.data.get("spent", ())]
    assert sorted(dots) == path["spent"].tolist()
