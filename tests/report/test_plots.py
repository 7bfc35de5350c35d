"""What figures show: of a run on given axes, and of thousands of candidates on a page."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args, get_type_hints

import matplotlib
import numpy as np
import pytest
from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document
from bokeh.resources import Resources

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import known_posterior, path_of
from daskmetrics.bandit import Pick
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm, Suite
from daskmetrics.dashboard import drawing
from daskmetrics.report._quantities import fields
from daskmetrics.report.page import MANY
from tests.report.conftest import SUITES, TASKS, scores_of

matplotlib.use("agg")


@pytest.fixture
def ax():
    from matplotlib import pyplot

    yield pyplot.figure().subplots()
    pyplot.close("all")


@pytest.mark.parametrize("name", ["layers", "heatmap", "search", "tradeoff"])
def test_every_plot_draws_on_the_given_axes_or_new_ones_and_returns_them(finished, ax, name):
    draw = getattr(finished.plot, name)
    assert draw(ax=ax) is ax
    assert ax.get_xlabel() and ax.get_ylabel()
    assert draw().figure is not ax.figure


def test_each_of_several_models_has_a_named_line(a_run, ax):
    suites = tuple(replace(suite, revisions=("main",)) for suite in SUITES)
    run = a_run(suites=suites, tasks=TASKS[:1], budget=1.0, trained=False)
    assert run.plot.layers(ax=ax).get_legend_handles_labels()[1] == ["tiny", "small"]
    assert sorted(len(line.get_xdata()) for line in ax.get_lines()) == [3, 4]
    assert len(run.plot.layers(model="tiny").get_lines()) == 1


def test_a_line_is_a_checkpoint_and_has_the_values_of_its_layers(finished, ax):
    (metric, values), *_ = analysis.metrics(finished).items()
    finished.plot.layers(metric, model="small", ax=ax)
    drawn = [line.get_ydata().tolist() for line in ax.get_lines()]
    assert [values[Arm("small", "step8", layer)][0] for layer in range(4)] in drawn
    assert len(drawn) == len({arm.revision for arm in values if arm.model == "small"})


def test_a_map_has_the_values_of_its_model(finished, ax):
    finished.plot.heatmap(TASKS[0], model="small", ax=ax)
    shown = np.ma.filled(ax.images[0].get_array().astype(float), np.nan)
    scores = [
        by_task[TASKS[0]]
        for arm, by_task in scores_of(finished).items()
        if arm.model == "small" and TASKS[0] in by_task
    ]
    np.testing.assert_allclose(np.sort(shown[np.isfinite(shown)]), np.sort(scores))


def test_unknown_names_are_errors_that_name_the_nearest(finished, a_run):
    with pytest.raises(ConfigError, match="Did you mean 'score'"):
        finished.plot.layers("scor")
    with pytest.raises(ConfigError, match="Did you mean 'small'"):
        finished.plot.heatmap(model="smal")
    with pytest.raises(ConfigError, match="Did you mean 'layers'"):
        finished.plot.tradeoff("layer")
    with pytest.raises(DataError, match="no search yet"):
        a_run(tasks=()).plot.search()


def test_the_figures_of_5184_arms_fit_into_a_page():
    steps = tuple(f"step{1000 * i}" for i in range(144))
    suites = [Suite(name, steps, tuple(range(12)), 11) for name in ("small", "medium", "large")]
    arms = [arm for suite in suites for arm in suite.arms()]
    assert len(arms) == 5184 > MANY
    rng = np.random.default_rng(0)
    names = [f"values of metric{i}" for i in range(24)]
    columns = {name: rng.normal(size=len(arms)) for name in names}
    for i in range(33):
        scores, errors = rng.normal(size=(2, len(arms)))
        scores[rng.random(len(arms)) > (0.1 if i else 1.0)] = np.nan
        columns |= {f"values of task{i}": scores, f"errors of task{i}": errors}
    source = drawing.arms_source(arms, suites, **columns)
    document = Document()
    document.add_root(drawing.heat_map(source, {"best": arms[7], "default": arms[-1]}))
    document.add_root(drawing.curves(drawing.LAYER, "x", 320))
    document.add_root(drawing.comparison(source, suites))
    size = len(serialize_json(document.to_json(deferred=False)))
    library = Resources(mode="inline", minified=True, components=["bokeh"]).js_raw[0]
    tables = 500_000
    assert size + len(library) + tables < 5_000_000  # bytes of a page at most


def test_the_quantities_of_a_run_are_what_it_recorded(finished):
    arms = list(finished.recorded)
    known = {field.name: field for field in fields(finished, arms, known_posterior(finished))}
    row, arm = next((i, arm) for i, arm in enumerate(arms) if TASKS[0] in finished.recorded[arm])
    scored, field = finished.recorded[arm][TASKS[0]], known[TASKS[0]]
    assert (field.values[row], field.errors[row]) == (scored.score, scored.stderr)
    place = {"model": arm.model, "checkpoint": arm.revision, "layer": arm.layer}
    stored = finished.metrics["prompt_entropy"].sel(place).item()
    assert known["prompt_entropy"].values[row] == pytest.approx(stored)
    assert known["layers computed"].values[row] == arm.layer


def test_every_decision_is_drawn_at_the_cost_spent_then_in_the_colour_of_its_stage(finished):
    path = path_of(finished)
    dots, *_ = drawing.search_path(path).renderers
    assert list(dots.data_source.data["spent"]) == path["spent"].tolist()
    assert set(get_args(get_type_hints(Pick)["stage"])) == drawing.STAGES.keys()
