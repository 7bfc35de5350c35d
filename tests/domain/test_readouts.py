from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.core.errors import ConfigError, UndefinedError
from daskmetrics.domain.names import Arm
from daskmetrics.domain.readouts import POOLINGS, Readout

readouts = st.builds(
    Readout,
    pooling=st.sampled_from(["", *POOLINGS]),
    dimensions=st.none() | st.integers(1, 999_999_999),
)


@given(readouts)
def test_a_name_parses_back_and_needs_no_quotes(readout):
    assert Readout.parse(str(readout)) == readout
    assert all(letter.isalnum() or letter in ",_" for letter in str(readout))
    arm = Arm("m", "step8", 3, str(readout))
    assert Arm.parse(str(arm)) == arm


@pytest.mark.parametrize(
    "name",
    ["256", "last,mean", "256d,last", "int8", "0d", "x", "last,", ",64d", "٣d", f"{'9' * 5000}d"],
)
def test_what_is_not_the_canonical_name_is_refused(name):
    with pytest.raises(ConfigError):
        Readout.parse(name)


def test_a_wrong_part_is_answered_with_a_right_one():
    with pytest.raises(ConfigError, match="Did you mean 'weighted'"):
        Readout("weihgted")
    with pytest.raises(ConfigError, match="Got 0 dimensions"):
        Readout(dimensions=0)


def test_more_dimensions_than_vectors_have_are_refused():
    with pytest.raises(ConfigError, match="keeps 512 dimensions, but vectors have 384"):
        Readout.parse("mean,512d").check(384)
    Readout.parse("384d").check(384)


def test_a_task_sees_the_dimensions_that_are_kept():
    vectors = np.array([[0.5, -0.1, 0.0]], np.float32)
    np.testing.assert_array_equal(Readout().of(vectors), vectors)
    np.testing.assert_array_equal(Readout(dimensions=2).of(vectors), vectors[:, :2])
    with pytest.raises(UndefinedError, match="'4d' needs more than 3 dimensions"):
        Readout(dimensions=4).of(vectors)
