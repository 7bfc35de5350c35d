"""Statistics of replayed searches."""

from __future__ import annotations

import math

import pytest
from replay import ReplayStep, ReplayTrial, Setting
from replay_statistics import Rate, confidence_bands, quantile, until_found

RACE = Setting("race")


def trial(seed: int, *steps: tuple[float, float, float]) -> ReplayTrial:
    """Steps are (share, loss, confidence); a share of the cost takes a thousand seconds."""
    path = [ReplayStep(share, 1000 * share, *rest) for share, *rest in steps]
    return ReplayTrial(RACE, seed, tuple(path), 0.5)


WAVERING = trial(0, (0.01, 0.2, 0.1), (0.02, 0.0, 0.8), (0.03, 0.05, 0.95), (0.04, 0.0, 0.97))
STEADY = trial(1, (0.015, 0.005, 0.92), (0.05, 0.0, 0.99))  # nearly the best at first
LOST = trial(2, (0.01, 0.3, 0.25))


def test_first_and_lasting_costs_differ_if_a_search_wavers():
    trials = [WAVERING, STEADY, LOST]
    assert WAVERING.after(0.009) is None
    assert WAVERING.after(0.025).share == 0.02 and WAVERING.after(1.0).share == 0.04
    shares = until_found(trials, lambda step: step.share)
    assert shares == [0.02, 0.015, math.inf]
    assert until_found(trials, lambda step: step.share, lasting=True) == [0.04, 0.015, math.inf]
    assert until_found(trials, lambda step: step.seconds)[0] == 20.0
    assert quantile(shares, 0.5) == 0.02 and quantile(shares, 0.9) == math.inf


def test_the_interval_of_a_rate_is_wide_for_few_trials():
    assert Rate(0, 0).interval == (0.0, 1.0)
    assert Rate(10, 10).interval == pytest.approx((0.722, 1.0), abs=1e-3)  # Wilson, by hand


def test_stated_confidence_is_compared_with_the_truth():
    rows = confidence_bands([WAVERING, STEADY, LOST])
    assert [(row.low, row.high, row.correct, row.first) for row in rows] == [
        (0.0, 0.2, Rate(0, 1), Rate(0, 1)),
        (0.2, 0.5, Rate(0, 1), Rate(0, 1)),
        (0.7, 0.85, Rate(1, 1), Rate(1, 1)),
        (0.85, 0.95, Rate(0, 1), Rate(0, 1)),
        (0.95, 1.0, Rate(2, 3), Rate(1, 2)),  # WAVERING was once certain of a wrong arm
        (0.9, 1.0, Rate(2, 4), Rate(0, 2)),
    ]
    assert rows[0].mean == 0.1 and rows[4].mean == pytest.approx((0.95 + 0.97 + 0.99) / 3)


def test_moments_of_one_search_count_as_one():
    """Twenty searches with five moments each, all with the same result: at most as certain as
    twenty moments.
    """
    right, wrong = ([(0.01 * (i + 1), loss, 0.92) for i in range(5)] for loss in (0.0, 0.5))
    band = [(0.85, 0.95)]
    trials = [trial(seed, *(right if seed % 4 else wrong)) for seed in range(20)]
    (row,) = confidence_bands(trials, band)
    assert row.correct == Rate(75, 100) and row.first == Rate(15, 20)
    low, high = Rate(15, 20).interval
    assert row.interval == pytest.approx((low, high), abs=0.01)
    assert row.correct.interval[0] > low + 0.1
    (certain,) = confidence_bands([trial(seed, *right) for seed in range(20)], band)
    assert certain.interval == Rate(20, 20).interval
