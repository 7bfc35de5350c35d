"""Scores against what arms take, in Python, on the terminal and on the page."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter

import pytest

from daskmetrics.answer.sizes import ArmCost
from daskmetrics.answer.trade_offs import _front
from daskmetrics.core.errors import DataError
from daskmetrics.domain.names import Arm
from daskmetrics.report.page import folded_tables
from daskmetrics.report.tables import trade_offs_table
from tests.report.conftest import Story, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Most cells are scored, with outcomes of items, tokens and weights."""
    story = Story(budget=0.8, outcomes=True, sized=True)
    return make_run(tmp_path_factory.mktemp("trade-offs") / "demo", story)


def test_no_arm_of_the_front_is_beaten_and_every_other_arm_is(run):
    compared = run.trade_offs()
    costs = attrgetter("layers", "parameters", "flops", "bytes")

    def beats(one, other):
        sides = [(-row.score, *costs(row.cost)) for row in (one, other)]
        return all(a <= b for a, b in zip(*sides, strict=True)) and sides[0] != sides[1]

    on = {row.arm for row in compared.front}
    assert 1 < len(on) < len(compared.arms)
    for row in compared.arms:
        assert any(beats(other, row) for other in compared.arms) == (row.arm not in on)
    flops = [row.cost.flops for row in compared.front]
    assert flops == sorted(flops)


def test_scores_are_raw_means_over_the_whole_objective(run, monkeypatch):
    for row in run.trade_offs().arms:
        scores = [value.score for value in run.recorded[row.arm].values()]
        assert (row.score, row.stderr) == pytest.approx((sum(scores) / 3, math.sqrt(3) * 0.01 / 3))
    scored = [arm for arm, known in run.recorded.items() if len(known) == 3]
    assert [row.arm for row in run.trade_offs().arms] == scored
    tasks = [replace(task, weight=float(task.kind == "retrieval")) for task in run.plan.tasks]
    monkeypatch.setattr(run, "plan", replace(run.plan, tasks=tuple(tasks)))
    rows = run.trade_offs().arms
    assert len(rows) == sum("stdlib:retrieval" in known for known in run.recorded.values())
    for row in rows:
        assert row.score == pytest.approx(run.recorded[row.arm]["stdlib:retrieval"].score)


def test_weights_of_unknown_blocks_are_estimated_and_said_to_be(run, finished):
    tokens = 20.0  # the mean of 10, 20 and 30
    flops = tokens * (2 * 200 + 4 * 2 * 8 * tokens)  # two blocks of 100 weights, attention 8 wide
    dimensions = 8 * len("small")
    expected = ArmCost(2, 1200, 1300, tokens, flops, dimensions, 4 * dimensions)
    assert run.cost_of(Arm("small", "step8", 2)) == expected
    layer, width = 2, 32
    flops = tokens * layer * (24 * width**2 + 4 * width * tokens)
    dimensions = 8 * len("tiny")
    expected = ArmCost(
        layer, 12 * width**2 * layer, None, tokens, flops, dimensions, 4 * dimensions
    )
    assert finished.cost_of(Arm("tiny", "step8", 2)) == expected
    assert "12 width²" in " ".join(trade_offs_table(finished.trade_offs(), {}).notes)


def test_an_encoders_weights_are_not_estimated(finished):
    layers = ("stem", "one", "two", "three")
    table = trade_offs_table(finished.trade_offs(), {"tiny": layers, "small": layers})
    assert "12 width²" not in " ".join(table.notes)
    columns = [table.header.index(name) for name in ("parameters", "operations")]
    assert {tuple(row[i] for i in columns) for row in table.rows} == {("unknown", "unknown")}


def test_the_gain_is_paired_with_the_row_before(run):
    front = run.trade_offs().front
    assert front[0].gain is None
    for before, row in pairwise(front):
        assert row.gain.paired and row.gain.value == pytest.approx(row.score - before.score)
        assert row.gain.stderr < math.hypot(row.stderr, before.stderr) / 2


def test_of_arms_with_equal_scores_and_costs_the_front_has_one(run):
    row = run.trade_offs().front[0]
    twin = replace(row, arm=replace(row.arm, revision="twin"))
    worse = replace(row, score=row.score - 0.1)
    assert _front([worse, row, twin]) == [row]


def test_without_a_fully_scored_arm_nothing_is_compared(a_run):
    run = a_run(decisions=3)
    with pytest.raises(DataError, match="was scored on all 3 tasks of the objective"):
        run.trade_offs()
    assert "What a better score costs" not in folded_tables(run)


def test_the_panels_are_of_the_costs_that_differ(run):
    pytest.importorskip("matplotlib")
    from daskmetrics.report.figures import trade_offs as panels

    compared = run.trade_offs()
    one = replace(compared, arms=tuple(row for row in compared.arms if row.arm.model == "small"))
    assert len(panels(one).axes) == len(panels(compared).axes) - 1  # vectors are of one size
    heights = list(panels(one).axes[0].lines[0].get_ydata())
    assert heights == sorted(heights) and max(heights) == max(row.score for row in one.arms)
