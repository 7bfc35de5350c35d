from __future__ import annotations

import importlib.util

import matplotlib
import numpy as np
import pytest
from bokeh.embed import file_html
from bokeh.resources import INLINE

from daskmetrics.answer import analysis
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm
from tests.browser import chromium, complaints

matplotlib.use("agg")


@pytest.fixture
def ax():
    from matplotlib import pyplot

    yield pyplot.figure().subplots()
    pyplot.close("all")


def test_every_plot_draws_on_the_given_axes_and_returns_them(finished, ax):
    for draw in (
        finished.plot.layers,
        finished.plot.heatmap,
        finished.plot.search,
        finished.plot.tradeoff,
    ):
        ax.clear()
        assert draw(ax=ax) is ax
        assert ax.get_xlabel() and ax.get_ylabel()


def test_without_axes_a_new_figure_is_made(finished, ax):
    assert finished.plot.layers().figure is not ax.figure


def test_a_line_is_a_checkpoint_and_has_the_values_of_its_layers(finished, ax):
    (metric, values), *_ = analysis.metrics(finished).items()
    finished.plot.layers(metric, model="small", ax=ax)
    drawn = [line.get_ydata().tolist() for line in ax.get_lines()]
    assert [values[Arm("small", "step8", layer)] for layer in range(4)] in drawn
    assert len(drawn) == len({arm.revision for arm in values if arm.model == "small"})


def test_a_map_has_the_values_of_its_model(finished, ax):
    task = next(iter(finished.tasks))
    finished.plot.heatmap(task, model="small", ax=ax)
    shown = np.ma.filled(ax.images[0].get_array().astype(float), np.nan)
    scores = [
        by[task]
        for arm, by in analysis.scores(finished).items()
        if arm.model == "small" and task in by
    ]
    np.testing.assert_allclose(np.sort(shown[np.isfinite(shown)]), np.sort(scores))


def test_tradeoffs_draw_every_arm_that_was_scored_on_all_tasks(finished, ax):
    finished.plot.tradeoff("flops", ax=ax)
    drawn = np.concatenate(
        [np.asarray(points.get_offsets()) for points in ax.collections if len(points.get_offsets())]
    )
    scores = {round(float(y), 6) for _, y in drawn}
    assert {round(each.score, 6) for each in finished.trade_offs().arms} <= scores


def data_of(figure, column):
    """The values of the first source of the figure with this column."""
    return next(
        list(each.data_source.data[column])
        for each in figure.renderers
        if column in each.data_source.data
    )


@pytest.fixture
def without_matplotlib(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "daskmetrics.report.plots.find_spec",
        lambda name: None if name == "matplotlib" else find(name),
    )


def test_interactive_figures_have_the_data_and_need_no_matplotlib(finished, without_matplotlib):
    (metric, values), *_ = analysis.metrics(finished).items()
    arms = [arm for arm in values if arm.model == "small"]
    lines = finished.plot.layers(metric, "small", interactive=True)
    ys = lines.select_one({"name": "curves"}).data["ys"]
    assert len(ys) == len({arm.revision for arm in arms})
    at_end = [values[Arm("small", "step8", layer)] for layer in range(4)]
    assert any(np.allclose(y, at_end, rtol=1e-6) for y in ys)
    shown = finished.plot.heatmap(metric, "small", interactive=True)
    by_name = dict(zip(data_of(shown, "name"), data_of(shown, "value"), strict=True))
    assert by_name == pytest.approx({str(arm): values[arm] for arm in arms}, rel=1e-6)
    with pytest.raises(ConfigError, match="need matplotlib"):
        finished.plot.layers(metric)


def test_interactive_searches_and_tradeoffs_have_every_decision_and_arm(finished):
    path = finished.plot.search(interactive=True)
    decisions = [n for each in path.renderers for n in each.data_source.data.get("number", [])]
    assert sorted(decisions) == list(range(1, len(finished.picks) + 1))
    found, points = finished.trade_offs().arms, finished.plot.tradeoff("flops", interactive=True)
    assert data_of(points, "value") == pytest.approx([each.score for each in found], rel=1e-6)
    assert data_of(points, "against") == pytest.approx(
        [each.cost.flops for each in found], rel=1e-6
    )
    assert data_of(points, "error") == pytest.approx([each.stderr for each in found], rel=1e-6)


def test_an_interactive_figure_is_not_drawn_on_axes(finished, ax):
    with pytest.raises(ConfigError, match="leave out ax or interactive"):
        finished.plot.search(ax=ax, interactive=True)


def test_a_browser_shows_interactive_figures_without_complaints(finished, tmp_path):
    plot = finished.plot
    with chromium() as browser:
        for draw in (plot.layers, plot.heatmap, plot.search, plot.tradeoff):
            file = tmp_path / f"{draw.__name__}.html"
            file.write_text(file_html(draw(interactive=True), INLINE), encoding="utf-8")
            page = browser.new_page()
            said = complaints(page)
            page.goto(file.as_uri())
            page.locator("canvas").first.wait_for()
            page.wait_for_timeout(200)
            assert not said


def test_unknown_names_are_errors_that_list_the_valid_ones(finished):
    with pytest.raises(ConfigError, match=r"Unknown quantity 'scor'\. Did you mean 'score'"):
        finished.plot.layers("scor")
    with pytest.raises(ConfigError, match=r"Unknown model 'smal'\. Did you mean 'small'"):
        finished.plot.heatmap(model="smal")
    with pytest.raises(ConfigError, match=r"Unknown cost 'layer'\. Did you mean 'layers'"):
        finished.plot.tradeoff("layer")


def test_a_run_without_a_search_has_nothing_to_draw(a_run):
    with pytest.raises(DataError, match="no search yet"):
        a_run(tasks=()).plot.search()
