"""Arms with a readout, everywhere arms are shown."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.domain.names import Arm, Suite
from daskmetrics.report import frame
from daskmetrics.report.page import page
from daskmetrics.report.tables import tables
from daskmetrics.report.terminal import best_text
from tests.report.conftest import TASKS, Story, invoke, make_run, mean_scores

BEST = Arm("encoder", "main", 2, "mean")
NAMES = ("mean", "mean,16d", "last", "last,16d")


@pytest.fixture(scope="module")
def read_out(tmp_path_factory):
    """A finished sweep of one checkpoint with four readouts of each layer."""
    suite = Suite("encoder", ("main",), (0, 1, 2, 3), 3, NAMES)
    recorded = {"outcomes": True, "sized": True, "timed": True, "trained": False}
    story = Story((suite,), TASKS[:2], budget=1.0, **recorded)
    return make_run(tmp_path_factory.mktemp("readouts") / "demo", story)


def test_terminal_page_and_json_say_what_each_choice_is_worth(read_out):
    assert read_out.best().arm == read_out.leaderboard().arms[0].arm == BEST
    worths = read_out.answer.readouts
    expected = ["last", "16"]
    assert [worth.value for worth in worths] == expected and worths[0].base == "mean"
    assert worths[0].difference.value == pytest.approx(-0.04, abs=0.01)
    assert worths[0].beyond and worths[0].difference.paired and worths[0].pairs == 8
    *_, table = tables(read_out.answer)
    assert [row[1] for row in table.rows] == expected
    assert table.as_text(100) in best_text(read_out)
    text = page(read_out, [])
    assert replace(table, title="").as_html() in text and "best readout" in text
    document = json.loads(invoke("best", read_out.folder.path, "--json").stdout)
    assert [worth["value"] for worth in document["readouts"]] == expected


def test_a_run_of_one_readout_does_not_speak_of_them(finished):
    assert "readout" not in best_text(finished) + str(finished.leaderboard())
    assert "readout" not in finished.scores.dims and not finished.answer.readouts
    for table in (finished.to_frame(), finished.leaderboard().to_frame(), frame(finished)):
        assert "readout" not in table.columns


def test_tables_have_a_column_and_arrays_a_dimension(read_out):
    rows, flat = read_out.to_frame(), frame(read_out)
    scored = rows.set_index(["layer", "readout", "task"]).score.to_dict()
    exported = flat[flat.what == "score"].set_index(["layer", "readout", "name"]).value.to_dict()
    expected = {}
    for arm, by_task in read_out.recorded.items():
        for task, value in by_task.items():
            expected[arm.layer, arm.readout, task] = value.score
    assert scored == expected and exported == pytest.approx(expected) and len(expected) == 32
    assert rows.kind.tolist() == [read_out.kinds[task] for task in rows.task]
    assert set(rows.stderr) == {0.01} and (rows.seconds > 0).all()
    assert set(flat.revision) == {"main"}
    arrays = read_out.scores
    stored = {key: arrays[key[2]].sel(layer=key[0], readout=key[1]).item() for key in expected}
    assert stored == pytest.approx(expected)
    assert read_out.leaderboard().to_frame().readout[0] == BEST.readout
    assert set(read_out.metrics["curvature"].dims) == {"model", "checkpoint", "layer"}


def test_a_figure_shows_the_best_or_the_chosen_readout(read_out):
    pytest.importorskip("matplotlib")
    for readout in (None, "last,16d"):
        best = [-np.inf] * 4  # no two arms are drawn onto one place
        for arm, mean in mean_scores(read_out).items():
            if readout in (None, arm.readout):
                best[arm.layer] = max(best[arm.layer], mean)
        ax = read_out.plot.layers(readout=readout)
        np.testing.assert_allclose(ax.lines[0].get_ydata(), best)
        assert ax.get_title() == ", ".join(filter(None, ["mean score", "encoder", readout]))
    with pytest.raises(ConfigError, match=r"Unknown readout 'last,17d'.*last,16d"):
        read_out.plot.heatmap(readout="last,17d")
    assert read_out.plot.tradeoff("bytes").get_xlabel() == "bytes of a vector"
    assert read_out.plot.tradeoff().get_xlabel() == "seconds for 1,000 texts"


def test_speed_is_measured_for_the_deepest_layer_alone(read_out):
    tokens, texts = 15.0, 50.0
    seconds_by_tokens = {}
    for by_task in read_out.recorded.values():
        for value in by_task.values():
            seconds_by_tokens[value.tokens] = value.reading.seconds
    seconds = sum(seconds_by_tokens.values()) / (texts * sum(seconds_by_tokens)) * tokens
    costs = [read_out.cost_of(replace(BEST, layer=layer)) for layer in range(4)]
    assert 1 / costs[3].texts_per_second == pytest.approx(seconds)
    assert costs[1].seconds == pytest.approx(seconds * costs[1].flops / costs[3].flops)
    assert costs[0].seconds == 0 and costs[0].texts_per_second is None
    assert costs[3].bytes == 4 * 8 * len("encoder")
    sixteen = read_out.cost_of(Arm("encoder", "main", 3, "mean,16d"))
    assert (sixteen.bytes, sixteen.dimensions) == (64, 16)
    done = invoke("best", read_out.folder.path, "--pareto", "--json")
    front = [str(row.arm) for row in read_out.trade_offs().front]
    assert [row["arm"] for row in json.loads(done.stdout)["front"]] == front
