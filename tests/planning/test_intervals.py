from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.planning.options import Interval


def test_bounds_must_be_in_order():
    with pytest.raises(ValueError, match="low <= value <= high"):
        Interval(2.0, 1.0, 3.0)
    with pytest.raises(ValueError, match="positive"):
        Interval.of([1.0, 0.0])


def test_the_interval_of_samples_holds_their_true_mean_nine_times_in_ten():
    draws = np.random.default_rng(0).lognormal(mean=np.log(10.0), sigma=0.3, size=(2000, 4))
    held = [Interval.of(list(own)) for own in draws]
    assert 0.87 < np.mean([each.low <= 10.0 <= each.high for each in held]) < 0.93


def test_products_and_sums_keep_their_bounds():
    assert Interval(1, 2, 3) * Interval(2, 2, 4) == Interval(2, 4, 12)
    assert Interval(1, 2, 3) * 2 + Interval(1, 1, 1) == Interval(3, 5, 7)
    assert Interval(2, 4, 6) / Interval(1, 2, 2) == Interval(1, 2, 6)
