"""Scores against what arms take, in Python, on the terminal and on the page."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter

import pytest

from daskmetrics.answer.trade_offs import ArmCost, on_front
from daskmetrics.core.errors import DataError
from daskmetrics.report._sections import folded_tables, trade_offs_table
from tests.report.conftest import invoke


@pytest.fixture
def run(a_run):
    """Most cells are scored, with outcomes of items, tokens and weights."""
    return a_run(budget=0.8, outcomes=True, sized=True)


def test_no_arm_of_the_front_is_beaten_and_every_other_arm_is(run):
    found = run.trade_offs()

    def beats(one, other):
        costs = attrgetter("layers", "parameters", "flops", "bytes")
        sides = [(-each.score, *costs(each.cost)) for each in (one, other)]
        return all(a <= b for a, b in zip(*sides, strict=True)) and sides[0] != sides[1]

    on = {each.arm for each in found.front}
    assert 1 < len(on) < len(found.arms)
    for each in found.arms:
        assert any(beats(other, each) for other in found.arms) == (each.arm not in on)
    assert [each.cost.flops for each in found.front] == sorted(
        each.cost.flops for each in found.front
    )


def test_scores_are_raw_means_with_their_errors_of_arms_scored_on_all_tasks(run):
    for each in run.trade_offs().arms:
        known = run.recorded[each.arm]
        assert known.keys() == run.tasks.keys()
        assert each.score == pytest.approx(sum(value.score for value in known.values()) / 3)
        assert each.stderr == pytest.approx(math.sqrt(3) * 0.01 / 3)
    scored = [arm for arm, known in run.recorded.items() if len(known) == 3]
    assert [each.arm for each in run.trade_offs().arms] == scored


def test_tasks_outside_the_objective_do_not_count(run, monkeypatch):
    search = {**run.config["search"], "objective": "retrieval"}
    monkeypatch.setattr(run, "config", {**run.config, "search": search})
    found = run.trade_offs().arms
    assert len(found) == sum("stdlib:retrieval" in known for known in run.recorded.values())
    for each in found:
        value = run.recorded[each.arm]["stdlib:retrieval"]
        assert (each.score, each.stderr) == pytest.approx((value.score, value.stderr))


def test_costs_are_those_that_the_run_recorded(run):
    arm = next(each.arm for each in run.trade_offs().arms if each.arm.layer == 2)
    tokens = 20.0  # the mean of 10, 20 and 30
    flops = tokens * (2 * 200 + 4 * 2 * 8 * tokens)  # two blocks of 100 weights, attention 8 wide
    depth = {"tiny": 2, "small": 3}[arm.model]
    dimensions = 8 * len(arm.model)
    assert run.cost_of(arm) == ArmCost(
        2, 1200, 1000 + 100 * depth, tokens, flops, dimensions, 4 * dimensions
    )


def test_costs_of_an_older_run_are_assumed_and_said_to_be(a_run):
    run = a_run(budget=0.8)
    layer, width, tokens = 2, 32, 256
    cost = run.cost_of(
        next(arm for arm in run.recorded if arm.model == "tiny" and arm.layer == layer)
    )
    flops = tokens * layer * (24 * width**2 + 4 * width * tokens)
    assert cost == ArmCost(layer, 12 * width**2 * layer, None, tokens, flops, width, 4 * width)
    text = trade_offs_table(run.trade_offs()).as_text(132)
    assert "12 width² weights a block" in text and "unknown" in text
    assert "256 tokens" in text and "the greatest length" in text


def test_the_gain_is_paired_with_the_row_before(run):
    front = run.trade_offs().front
    assert front[0].gain is None
    for before, each in pairwise(front):
        assert each.gain.paired and each.gain.value == pytest.approx(each.score - before.score)
        assert each.gain.stderr < math.hypot(each.stderr, before.stderr) / 2


def test_a_cost_that_grows_with_the_score_keeps_both_arms():
    cheap, expensive = (
        ArmCost(1, 10, None, 8.0, 80.0, 4, 16),
        ArmCost(2, 20, None, 8.0, 160.0, 4, 16),
    )
    wide = replace(cheap, dimensions=8, bytes=32)
    assert on_front([0.1, 0.2], [cheap, expensive]) == [0, 1]
    assert on_front([0.2, 0.2], [cheap, expensive]) == [0]
    assert on_front([0.1, 0.1, 0.3], [wide, cheap, expensive]) == [1, 2]
    assert on_front([0.1, 0.1], [cheap, cheap]) == [0, 1]  # equal arms do not beat each other


def test_without_an_arm_scored_on_all_tasks_there_is_nothing_to_compare(a_run):
    run = a_run(decisions=3)
    with pytest.raises(DataError, match="was scored on all 3 tasks of the objective"):
        run.trade_offs()
    assert "What a better score costs" not in folded_tables(run)
    with pytest.raises(DataError, match=r"larger search\.budget"):
        a_run(budget=0.09).trade_offs()


def test_the_command_shows_the_table_and_draws_it(run, tmp_path):
    pytest.importorskip("matplotlib")
    done = invoke("best", run.folder.path, "--pareto", "--output", tmp_path / "t.png")
    assert done.exit_code == 0, done.output
    assert str(run.trade_offs().front[0].arm) in done.output
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("words", [("--output", "t.png"), ("--pareto", "--output", "t.svg")])
def test_a_picture_needs_the_table_and_the_name_of_a_png_file(run, words):
    done = invoke("best", run.folder.path, *words)
    assert done.exit_code == 2 and "--output" in done.output


def test_the_panels_are_of_the_costs_that_differ(run):
    pytest.importorskip("matplotlib")
    from daskmetrics.report._quantities import COST_NAMES
    from daskmetrics.report.figures import trade_offs as trade_off_panels

    found = run.trade_offs()
    assert [ax.get_xlabel() for ax in trade_off_panels(found).axes] == list(COST_NAMES.values())
    one = replace(found, arms=tuple(each for each in found.arms if each.arm.model == "small"))
    assert [ax.get_xlabel() for ax in trade_off_panels(one).axes] == list(COST_NAMES.values())[:-1]
    for ax in trade_off_panels(one).axes:
        heights = list(ax.lines[0].get_ydata())
        assert heights == sorted(heights) and max(heights) == max(each.score for each in one.arms)
