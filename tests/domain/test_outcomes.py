from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from daskmetrics.core.errors import DataError
from daskmetrics.domain.outcomes import (
    MOST_BYTES,
    Difference,
    difference,
    joint_error,
    mean_difference,
    pack,
    unpack,
)
from daskmetrics.domain.results import Scored, result_as_json

seeds = st.integers(0, 2**32 - 1)


def recorded(outcomes, items="task") -> Scored:
    values = np.asarray(outcomes, dtype=float)
    error = float(values.std() / math.sqrt(len(values)))
    score = float(values.mean())
    return Scored(score, error, outcomes=pack(outcomes, score, items))


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.lists(st.floats(-9, 9), min_size=1))
def test_outcomes_come_back_exactly_or_to_three_digits(right, numbers):
    assert unpack(pack(np.array(right), float(np.mean(right)), "task")).tolist() == right
    kept = unpack(pack(numbers, float(np.mean(numbers)), "task"))
    assert kept == pytest.approx(np.array(numbers), rel=1e-3, abs=1e-6)
    assert unpack(pack([], 0.0, "task")).tolist() == []


@given(seeds, st.integers(2, 500), st.booleans())
def test_equal_outcomes_differ_by_zero_with_an_error(seed, n, right_or_wrong):
    """The error is below that of a single item that differs."""
    values = np.random.default_rng(seed).random(n)
    one, other = (recorded(values < 0.7 if right_or_wrong else values) for _ in range(2))
    assert difference(one, one) == Difference(0.0, 0.0, paired=True)
    apart = difference(one, other)
    assert apart.value == 0 and apart.paired and (one.stderr == 0 or 0 < apart.stderr < 1 / n)


@given(seeds, st.integers(2, 500))
def test_a_paired_error_is_that_of_the_differences(seed, n):
    one, other = np.random.default_rng(seed).random((2, n)) < [[0.8], [0.6]]
    apart = one.astype(float) - other
    assume(np.ptp(apart) > 0)
    found = difference(recorded(one), recorded(other))
    assert found.paired and found.value == pytest.approx(apart.mean(), abs=1e-12)
    assert found.stderr == pytest.approx(apart.std(ddof=1) / math.sqrt(n), abs=1e-12)


@pytest.mark.parametrize("level, spread", [(1e5, 1e3), (1e3, 0.1), (1.0, 1e-3), (0.0, 1e-8)])
def test_a_paired_error_is_right_whatever_the_units_of_a_score(level, spread):
    """As of a perplexity, or of a score in per cent; float16 ends at 65,504."""
    one, more = np.random.default_rng(0).normal(size=(2, 200))
    apart = 0.1 * spread * more
    better = level + spread * one
    found = difference(recorded(better + apart), recorded(better))
    assert found.stderr == pytest.approx(apart.std(ddof=1) / math.sqrt(200), rel=0.01)


@pytest.mark.parametrize("n", [10, 2048, 2049, 3072, 40_000])
@pytest.mark.parametrize("right_or_wrong", [True, False])
def test_the_size_is_bounded_and_the_error_stays(n, right_or_wrong):
    values = np.random.default_rng(n).random((2, n))
    one, other = recorded(values[0] < 0.8), recorded(values[1] < 0.8)
    if not right_or_wrong:
        one, other = recorded(values[0]), recorded(values[1])
    assert len(json.dumps(result_as_json(one.outcomes))) < 4 / 3 * MOST_BYTES + 200
    alone = math.hypot(one.stderr, other.stderr)  # of arms that have nothing in common
    assert difference(one, other).stderr == pytest.approx(alone, rel=0.5 if n == 10 else 0.04)
    assert unpack(one.outcomes).mean() == pytest.approx(one.score, abs=2e-4)


def test_outcomes_of_other_items_or_of_none_are_not_paired():
    one = recorded([True, False, True])
    others = recorded([True, False, True], "other"), recorded([True, False]), Scored(0.5, 0.3)
    for other in others:
        found = difference(one, other)
        assert not found.paired and found.stderr == math.hypot(one.stderr, other.stderr)
        joint = joint_error([one, other])
        assert not joint.paired and joint.covariance[0, 1] == 0
    assert not difference(recorded([True]), recorded([True])).paired


def test_outcomes_that_do_not_belong_to_the_score_are_an_error():
    with pytest.raises(DataError, match="mean of the outcomes is 2, but"):
        pack([1, 2, 3], 0.6, "task")
    for wrong in ([[True]], [math.nan], [math.inf, 1.0]):
        with pytest.raises(DataError, match="finite numbers"):
            pack(wrong, 1.0, "task")


def test_the_mean_over_tasks_has_weights_and_independent_errors():
    two = {
        "s": Difference(0.3, 0.03, paired=True),
        "t": Difference(0.1, 0.04, paired=False),
    }
    mean, weighted = (mean_difference(two, {"s": 1, "t": weight}) for weight in (1, 0))
    assert (mean.value, mean.stderr) == pytest.approx((0.2, 0.025))
    assert (weighted.value, weighted.stderr) == pytest.approx((0.3, 0.03))
    assert not mean.paired and not weighted.paired
    assert mean_difference({}, {"s": 1}) is None and mean_difference(two, {"s": 0, "t": 0}) is None


@given(seeds, st.integers(2, 60))
def test_the_joint_error_gives_the_error_of_a_difference(seed, n):
    outcomes = np.random.default_rng(seed).random((3, n)) < 0.6
    assume((outcomes[0] != outcomes[2]).any())
    rows = [recorded(row) for row in outcomes]
    for scores in (rows, [replace(row, outcomes=None) for row in rows]):
        joint, found = joint_error(scores), difference(scores[0], scores[2])
        c = joint.covariance
        error = math.sqrt(max(0.0, c[0, 0] + c[2, 2] - 2 * c[0, 2]))
        assert error == pytest.approx(found.stderr, abs=1e-7)
        assert joint.paired is found.paired
        assert joint.freedom == (n - 1 if found.paired else math.inf)
