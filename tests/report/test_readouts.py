"""Arms with a readout, everywhere arms are shown: one checkpoint whose layers are read in many
ways.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.answer import analysis
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Arm
from daskmetrics.report import best_text, explain_tables, frame
from daskmetrics.report._quantities import drawn_arms
from daskmetrics.report.page import figures, page
from tests.report.conftest import invoke, mean_scores, text_of


def test_the_answer_names_the_readout(read_out):
    best = read_out.best().arm
    assert best == read_out.leaderboard().arms[0].arm == Arm("encoder", "main", 2, "mean")
    assert "encoder, layer 2, mean" in repr(read_out)


def test_terminal_page_and_json_say_what_each_choice_is_worth(read_out):
    worths = read_out.answer.readouts
    expected = ["last", "mean1-3", "16"]
    assert [worth.value for worth in worths] == expected and worths[0].base == "mean"
    assert worths[0].difference.value == pytest.approx(-0.04, abs=0.01)
    assert worths[0].beyond and worths[0].difference.paired and worths[0].pairs == 10
    text, html = best_text(read_out), page(read_out, [])
    title = "What each choice of a readout is worth"
    assert title in text and html.index(title) < html.index("All candidates")
    assert all(f"<td>{name}</td>" in html for name in expected)
    assert all(len(line) <= 100 for line in text.splitlines() if "tmp" not in line)
    done = invoke("best", read_out.folder.path, "--json")
    assert [worth["value"] for worth in json.loads(done.stdout)["readouts"]] == expected


def test_a_run_of_one_readout_is_shown_as_before(finished):
    assert "readout" not in best_text(finished) + page(finished, []) + str(finished.leaderboard())
    assert "readout" not in finished.scores.dims and not finished.answer.readouts
    for table in (
        finished.to_frame(),
        finished.leaderboard().to_frame(),
        frame(finished),
    ):
        assert "readout" not in table.columns


def test_tables_have_a_column_and_arrays_a_dimension(read_out):
    rows, board, flat = read_out.to_frame(), read_out.leaderboard().to_frame(), frame(read_out)
    scored = rows.set_index(["layer", "readout", "task"]).score
    exported = flat[flat.what == "score"].set_index(["layer", "readout", "name"]).value
    assert len(scored) == len(exported) == 60 and board.readout[0] == str(
        read_out.best().arm.readout
    )
    for arm, by_task in read_out.recorded.items():
        for task, value in by_task.items():
            at = arm.layer, arm.readout, task
            stored = read_out.scores[task].sel(layer=arm.layer, readout=arm.readout).item()
            assert scored[at] == value.score == pytest.approx(exported[at]) == pytest.approx(stored)
    missing = read_out.scores["stdlib:order_status"].sel(layer=0, readout="mean,mean1-3")
    assert (missing == 0).all() and set(read_out.metrics["curvature"].dims) == {
        "model",
        "checkpoint",
        "layer",
    }


def test_no_two_arms_are_drawn_onto_one_place(read_out, finished):
    suites = analysis.suites(read_out)
    drawn = drawn_arms(read_out, suites)
    assert [arm.layer for arm in drawn] == [0, 1, 2, 3]
    means = mean_scores(read_out)
    for arm in drawn:
        assert means[arm] == max(mean for other, mean in means.items() if other.layer == arm.layer)
    assert [arm.readout for arm in drawn_arms(read_out, suites, "last,16d")] == ["last,16d"] * 4
    shown = figures(read_out)
    assert "best readout" in shown["captions"]["lines"]
    assert "best readout" not in figures(finished)["captions"]["lines"]


def test_a_figure_shows_the_best_readout_or_the_one_that_is_asked_for(read_out):
    pytest.importorskip("matplotlib")
    scores = mean_scores(read_out)
    for readout in (None, "last,16d"):
        line = read_out.plot.layers(readout=readout).lines[0]
        known = [
            max(v for a, v in scores.items() if a.layer == layer and readout in (None, a.readout))
            for layer in range(4)
        ]
        np.testing.assert_allclose(line.get_ydata(), known)
    with pytest.raises(ConfigError, match=r"Unknown readout 'last,17d'.*last,16d"):
        read_out.plot.heatmap(readout="last,17d")
    assert read_out.plot.tradeoff("dimensions").get_xlabel() == "dimensions of a vector"


def test_an_arm_is_explained_and_compared_by_its_name(read_out):
    name = "encoder@main/3/last,mean1-3"
    text = text_of(*explain_tables(read_out, name))
    assert text.startswith(name) and "of the layers" in text
    names = "encoder@main/2/mean", "encoder@main/2/last,16d"
    done = invoke("compare", read_out.folder.path, "--arms", *names)
    assert done.exit_code == 0 and all(name in done.output for name in names), done.output


def test_the_front_has_the_arms_that_none_exceeds_in_score_bytes_and_speed(read_out):
    means = mean_scores(read_out)
    on = {row.arm for row in read_out.trade_offs().front}
    costs = {arm: read_out.cost_of(arm) for arm in means}

    def exceeds(one: Arm, other: Arm) -> bool:
        a, b = ((-means[arm], costs[arm].bytes, costs[arm].seconds) for arm in (one, other))
        return all(x <= y for x, y in zip(a, b, strict=True)) and a != b

    assert on == {arm for arm in means if not any(exceeds(other, arm) for other in means)}
    assert 2 < len(on) < len(means)
    sixteen = Arm("encoder", "main", 3, "mean,16d")
    assert (costs[sixteen].bytes, costs[sixteen].dimensions) == (64, 16)
    assert costs[replace(sixteen, readout="mean")].bytes == 4 * 8 * len("encoder")
    done = invoke("best", read_out.folder.path, "--pareto", "--json")
    assert {each["arm"] for each in json.loads(done.stdout)["front"]} == set(map(str, on))


def test_speed_is_measured_for_the_deepest_layer_and_computed_for_the_others(read_out):
    tokens, texts = 20.0, 50.0
    known = [value for by_task in read_out.recorded.values() for value in by_task.values()]
    each = {value.tokens: value.reading.seconds for value in known}
    seconds = sum(each.values()) / (texts * sum(each)) * tokens
    costs = [read_out.cost_of(Arm("encoder", "main", layer, "mean")) for layer in range(4)]
    assert 1 / costs[3].texts_per_second == pytest.approx(seconds)
    assert costs[1].seconds == pytest.approx(seconds * costs[1].flops / costs[3].flops)
    assert costs[0].seconds == 0 and costs[0].texts_per_second is None
