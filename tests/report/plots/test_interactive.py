from __future__ import annotations

import json

import numpy as np
import pytest
from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document
from bokeh.resources import Resources

from daskmetrics.answer.analysis import path_of
from daskmetrics.core.names import Suite
from daskmetrics.dashboard import drawing
from daskmetrics.report.page import EMBEDDED
from daskmetrics.report.plots.interactive import MANY, figures
from daskmetrics.report.plots.quantities import METRICS, SCORES, Field, decisions, fields

STEPS = tuple(f"step{1000 * i}" for i in range(144))
GRID = tuple(Suite(name, STEPS, tuple(range(12)), 11) for name in ("small", "medium", "large"))
ARMS = [arm for suite in GRID for arm in suite.arms()]
LIMIT = 5_000_000  # bytes of a page


def a_field(name, group, share):
    rng = np.random.default_rng(list(name.encode()))
    arms = [ARMS[i] for i in np.flatnonzero(rng.random(len(ARMS)) < share)]
    values, errors = rng.normal(size=(2, len(arms))).tolist()
    return Field(
        name,
        group,
        "nats",
        dict(zip(arms, values, strict=True)),
        dict(zip(arms, errors, strict=True)),
    )


def test_the_figures_of_5184_arms_fit_into_a_page():
    known = [a_field("expected score", SCORES, 1.0)]
    known += [a_field(f"task{i}", SCORES, 0.1) for i in range(32)]
    known += [
        Field(one.name, one.group, "nats", one.values)
        for i in range(24)
        for one in [a_field(f"m{i}", METRICS, 1)]
    ]
    values = known[0].columns(ARMS)
    source = drawing.arms_source(ARMS, GRID, **values, against=values["value"])
    document = Document()
    for each in (
        drawing.heat_map(source, GRID[0], {"best": ARMS[7], "default": ARMS[-1]}),
        drawing.layer_lines(source, GRID[0], "x"),
        drawing.comparison(source, GRID, "x", "y"),
    ):
        document.add_root(each)
    assert len(ARMS) == 5184 > MANY
    size = len(
        serialize_json([document.to_json(deferred=False), [one.as_json(ARMS) for one in known]])
    )
    library = Resources(mode="inline", minified=True, components=["bokeh"]).js_raw[0]
    tables = 500_000
    assert size + len(library) + EMBEDDED * 4 / 3 + tables < LIMIT


def test_a_sparse_field_names_its_arms_and_missing_values_are_null():
    one = Field(
        "m", METRICS, "nats", {ARMS[1]: 0.123456789, ARMS[2]: float("nan")}, {ARMS[1]: 0.01234}
    )
    sparse, dense = one.as_json(ARMS[:9]), one.as_json(ARMS[:3])
    assert sparse == {
        "name": "m",
        "group": METRICS,
        "label": "m, nats",
        "i": [1, 2],
        "v": [0.12346, None],
        "e": [0.012, None],
    }
    assert dense["v"] == [None, 0.12346, None] and "i" not in dense
    assert json.loads(serialize_json(dense)) == dense


def test_the_quantities_of_a_run_are_what_it_recorded(finished):
    arms = [arm for arm, _ in finished.recorded.items()]
    known = {each.name: each for each in fields(finished, arms)}
    task, arm = (
        "stdlib:order",
        next(arm for arm, scores in finished.recorded.items() if "stdlib:order" in scores),
    )
    assert known[task].values[arm] == finished.recorded[arm][task].score
    assert known[task].errors[arm] == finished.recorded[arm][task].stderr
    stored = (
        finished.metrics["prompt_entropy"]
        .sel(model=arm.model, checkpoint=arm.revision, layer=arm.layer)
        .item()
    )
    assert known["prompt_entropy"].values[arm] == pytest.approx(stored)
    assert (
        known["expected score"].errors.keys() >= set(arms)
        and known["layers computed"].values[arm] == arm.layer
    )


def test_a_line_has_the_values_of_one_checkpoint():
    shown = a_field("m", METRICS, 1.0)
    suite = GRID[1]
    columns = shown.columns(ARMS)
    source = drawing.arms_source(ARMS, GRID, **columns, against=columns["value"])
    data = drawing.layer_lines(source, suite, "m").renderers[0].data_source.data
    assert (
        data["label"][0] == "0" and data["label"][-1] == "143k" and len(data["xs"]) == drawing.LINES
    )
    last = [shown.values[arm] for arm in suite.arms() if arm.revision == STEPS[-1]]
    assert data["ys"][-1] == pytest.approx(last, rel=1e-6)


def test_every_decision_is_drawn_at_the_cost_spent_then(finished):
    path = path_of(finished)
    drawn = drawing.search_path(decisions(path, None), path.unit, path.default).renderers
    dots = [x for each in drawn for x in each.data_source.data.get("spent", ())]
    assert sorted(dots) == [point.spent for point in path.points]


def test_a_run_without_data_has_no_figures(a_run):
    names = tuple(f"{model}@step{step}" for model in ("tiny", "small") for step in (0, 1, 2, 4, 8))
    assert figures(a_run(tasks=(), failing=names, trained=False)) is None
