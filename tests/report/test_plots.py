"""What figures show of a run."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import get_args, get_type_hints

import matplotlib
import numpy as np
import pytest

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import path_of
from daskmetrics.bandit import Pick
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.dashboard import drawing
from daskmetrics.domain.names import Arm
from daskmetrics.report._quantities import Quantities
from daskmetrics.report.page import figures
from tests.report.conftest import SUITES, TASKS, scores_of

matplotlib.use("agg")


@pytest.fixture
def ax():
    from matplotlib import pyplot

    yield pyplot.figure().subplots()
    pyplot.close("all")


@pytest.mark.parametrize("name", ["layers", "heatmap", "search", "tradeoff"])
def test_every_plot_draws_on_the_given_axes_or_new_ones(finished, ax, name):
    draw = getattr(finished.plot, name)
    assert draw(ax=ax) is ax
    assert ax.get_xlabel() and ax.get_ylabel()
    assert all(line.get_zorder() > 0.5 for line in ax.lines)  # above the grid
    assert draw().figure is not ax.figure


def test_each_of_several_models_has_a_named_line(a_run, ax):
    suites = tuple(replace(suite, revisions=("main",)) for suite in SUITES)
    run = a_run(suites=suites, tasks=TASKS[:1], budget=1.0, trained=False)
    assert run.plot.layers(ax=ax).get_legend_handles_labels()[1] == ["tiny", "small"]
    assert sorted(len(line.get_xdata()) for line in ax.get_lines()) == [3, 4]
    assert len(run.plot.layers(model="tiny").get_lines()) == 1


def test_a_line_is_a_checkpoint_and_has_the_values_of_its_layers(finished, ax):
    (metric, values), *_ = analysis.metrics(finished.records).items()
    finished.plot.layers(metric, model="small", ax=ax)
    drawn = [line.get_ydata().tolist() for line in ax.get_lines()]
    assert [values[Arm("small", "step8", layer)][0] for layer in range(4)] in drawn
    assert len(drawn) == len({arm.revision for arm in values if arm.model == "small"})


def test_the_star_on_a_tasks_map_is_that_tasks_best(finished, ax):
    marks = figures(finished)["data"]["marks"]
    for part in finished.verdict.parts[1:]:
        ax.clear()
        finished.plot.heatmap(part.what, model=part.arm.model, ax=ax)
        (star,) = (line for line in ax.lines if line.get_label() == "best candidate")
        suite = next(suite for suite in SUITES if suite.model == part.arm.model)
        assert star.get_xdata().tolist() == [suite.revisions.index(part.arm.revision)]
        assert star.get_ydata().tolist() == [part.arm.layer]
        shown = marks[part.what]
        named = dict(zip(shown["kind"], shown["name"], strict=True))
        assert named["best"] == str(part.arm)
        assert shown["kind"].count("tied") == len(part.tied) - 1


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
    failing = tuple(str(checkpoint) for suite in SUITES for checkpoint in suite.checkpoints())
    with pytest.raises(DataError, match="no measurement yet"):
        a_run(tasks=(), failing=failing).plot.layers()


def test_the_quantities_of_a_run_are_what_it_recorded(finished):
    arms = list(finished.recorded)
    known = {field.name: field for field in Quantities(finished).fields(arms)}
    row, arm = next((i, arm) for i, arm in enumerate(arms) if TASKS[0] in finished.recorded[arm])
    scored, field = finished.recorded[arm][TASKS[0]], known[TASKS[0]]
    assert (field.values[row], field.errors[row]) == (scored.score, scored.stderr)
    place = {"model": arm.model, "checkpoint": arm.revision, "layer": arm.layer}
    stored = finished.metrics["prompt_entropy"].sel(place).item()
    assert known["prompt_entropy"].values[row] == pytest.approx(stored)
    assert known["layers computed"].values[row] == arm.layer
    columns = drawing.arms_source(
        arms, analysis.suites(finished.plan, finished.records), x=known[TASKS[0]].values
    ).data
    assert columns["x"].dtype == np.float32  # the page of thousands of candidates stays small


def test_every_decision_is_drawn_at_the_cost_spent_by_then(finished):
    path = path_of(finished)
    dots, *_ = drawing.search_path(path).renderers
    assert list(dots.data_source.data["spent"]) == path["spent"].tolist()
    # what the finalists cost on fresh items is in both sums of the result, and in no decision
    result = finished.result
    best = result.recommendation
    best = replace(best, spent=best.spent + 7, exhaustive=best.exhaustive + 7)
    changed = copy(finished)
    changed.result = replace(result, recommendation=best, fresh=[Arm("m", "r", 0)])
    assert path_of(changed)["spent"].tolist() == pytest.approx(path["spent"].tolist())
    assert set(get_args(get_type_hints(Pick)["stage"])) == drawing.STAGES.keys()
