from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from daskmetrics.answer import analysis
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm, Suite
from tests.report.conftest import SWEEP, TASKS, scores_of

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


def test_each_of_several_models_has_a_named_line(a_run, ax):
    suites = (Suite("tiny", ("main",), (0, 1, 2), 2), Suite("small", ("main",), (0, 1, 2, 3), 3))
    run = a_run(suites=suites, tasks=TASKS[:1], budget=1.0, trained=False, settings=SWEEP)
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
    task = next(iter(finished.tasks))
    finished.plot.heatmap(task, model="small", ax=ax)
    shown = np.ma.filled(ax.images[0].get_array().astype(float), np.nan)
    scores = [
        by[task] for arm, by in scores_of(finished).items() if arm.model == "small" and task in by
    ]
    np.testing.assert_allclose(np.sort(shown[np.isfinite(shown)]), np.sort(scores))


def test_tradeoffs_draw_every_arm_that_was_scored_on_all_tasks(finished, ax):
    finished.plot.tradeoff("flops", ax=ax)
    drawn = np.concatenate(
        [np.asarray(points.get_offsets()) for points in ax.collections if len(points.get_offsets())]
    )
    scores = {round(float(y), 6) for _, y in drawn}
    assert {round(each.score, 6) for each in finished.trade_offs().arms} <= scores


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
