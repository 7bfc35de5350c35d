from __future__ import annotations

import math

import pytest

from daskmetrics.execution.map import Result, aggregates, causes, summary_text


def result(i, value=None, status="ok", **told):
    return Result(f"k{i}", i, str(i), i, status, value, **told)


def test_aggregates_are_those_of_a_plain_loop():
    values = [3.0, -1.0, 4.0, 1.5, 9.0, 2.6]
    (found,) = aggregates([result(i, {"loss": value}) for i, value in enumerate(values)])
    mean = sum(values) / len(values)
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    assert (found.field, found.count, found.min, found.max) == ("loss", 6, -1.0, 9.0)
    assert (found.mean, found.std) == (pytest.approx(mean), pytest.approx(std))
    assert found.median == pytest.approx(2.8)
    assert found.p95 == pytest.approx(4.0 + 0.75 * 5.0)  # between the fifth and the sixth, at 0.95 x 5 = 4.75


def test_failures_and_text_are_not_aggregated():
    results = [
        result(0, {"loss": 1, "name": "a", "mixed": 1}),
        result(1, {"loss": 3, "name": "b", "mixed": "c"}),
        result(2, {"loss": 99}, "nan"),
        result(3, None, "error"),
    ]
    assert [(found.field, found.count, found.max) for found in aggregates(results)] == [("loss", 2, 3.0)]


def test_one_number_has_no_spread():
    assert aggregates([result(0, 5)])[0].std is None
    assert aggregates([]) == []


def test_causes_are_grouped_whatever_numbers_they_name():
    failed = [result(i, status="error", reason=f"ValueError: in {i} of 500") for i in range(3)]
    failed += [result(7, status="oom", reason="ValueError: in 7 of 500"), result(8, 1)]
    assert [(cause.status, len(cause.items)) for cause in causes(failed)] == [("error", 3), ("oom", 1)]


def test_the_summary_in_words():
    text = summary_text([result(0, {"loss": 0.5}), result(1, status="oom", reason="CUDA")], total=5)
    lines = text.splitlines()
    assert lines[1].split() == ["loss", "1", "0.5", "0.5", "0.5", "0.5", "0.5"]
    assert lines[3:] == ["5 items: 1 ok, 1 failed, 3 to do.", "  1 x oom: CUDA", "      items 1"]
    assert summary_text([], 3) == "3 items: 0 ok, 0 failed, 3 to do."
