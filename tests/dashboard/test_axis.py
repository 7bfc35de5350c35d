from __future__ import annotations

from itertools import pairwise

import pytest

from daskmetrics.dashboard.drawing import edges, fitting, positions, ticks

LOG = ("step0", *(f"step{2**i}" for i in range(10)))
EVERY = tuple(f"step{1000 * i}" for i in range(144))


@pytest.mark.parametrize(
    "revisions", [LOG, EVERY, (*LOG, "main"), ("main",), ("step0",), ("step0", "main")]
)
@pytest.mark.parametrize("scale", ["log", "even"])
def test_columns_do_not_overlap_and_contain_their_revision(revisions, scale):
    borders, at = edges(revisions, scale), positions(revisions, scale)
    assert len(borders) == len(revisions) + 1 and borders == sorted(set(borders))
    assert all(
        low < place < high for low, place, high in zip(borders, at, borders[1:], strict=False)
    )


def test_doublings_are_as_far_apart_as_each_other():
    assert positions(LOG, "log") == [float(i) for i in range(-1, 10)]


def test_the_axis_is_logarithmic_only_if_columns_stay_wide_enough():
    assert (
        fitting(LOG) == "log" and fitting(EVERY) == "even" and fitting((*LOG, *EVERY[2:])) == "even"
    )


@pytest.mark.parametrize("scale", ["log", "even"])
def test_labels_do_not_overlap(scale):
    shown = list(ticks(EVERY, scale, 12))
    borders = edges(EVERY, scale)
    apart = (borders[-1] - borders[0]) / 12
    assert 2 <= len(shown) <= 13 and all(b - a >= 0.999 * apart for a, b in pairwise(shown))
