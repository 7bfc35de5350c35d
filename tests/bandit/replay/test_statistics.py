from __future__ import annotations

import csv
import math

import pytest

from daskmetrics.bandit.replay import ReplayStep, ReplayTrial, Setting
from daskmetrics.bandit.replay._statistics import (
    Rate,
    by_setting,
    conclusion,
    confidence_bands,
    paired_difference,
    quantile,
    success,
    until_found,
    write_csv,
)

RACE, BARE = Setting("race"), Setting("race", metrics=False)


def trial(seed: int, *steps: tuple[float, float, float], setting: Setting = RACE) -> ReplayTrial:
    """Steps are (share, loss, confidence); a share of the cost takes a thousand seconds."""
    path = tuple(ReplayStep(share, 1000 * share, loss, confidence) for share, loss, confidence in steps)
    return ReplayTrial(setting, seed, path, len(steps), 0.5)


WAVERING = trial(0, (0.01, 0.2, 0.1), (0.02, 0.0, 0.8), (0.03, 0.05, 0.95), (0.04, 0.005, 0.97))
STEADY = trial(1, (0.015, 0.01, 0.92), (0.05, 0.0, 0.99))
LOST = trial(2, (0.01, 0.3, 0.25))


def test_the_step_after_a_share_is_the_last_one_within_it():
    assert WAVERING.after(0.009) is None
    assert WAVERING.after(0.025).share == 0.02 and WAVERING.after(1.0).share == 0.04


def test_success_counts_searches_that_then_had_the_best_arm():
    trials = [WAVERING, STEADY, LOST]
    assert [success(trials, share).hits for share in (0.01, 0.02, 0.03, 0.04)] == [0, 2, 1, 2]


def test_first_and_lasting_costs_differ_if_a_search_changes_its_mind():
    trials = [WAVERING, STEADY, LOST]
    assert until_found(trials, lambda step: step.share) == [0.02, 0.015, math.inf]
    assert until_found(trials, lambda step: step.share, lasting=True) == [0.04, 0.015, math.inf]
    assert until_found(trials, lambda step: step.seconds)[0] == 20.0
    assert quantile(until_found(trials, lambda step: step.share), 0.5) == 0.02
    assert quantile(until_found(trials, lambda step: step.share), 0.9) == math.inf


def test_the_interval_of_a_rate_is_wide_for_few_trials():
    assert Rate(0, 0).interval == (0.0, 1.0)
    assert Rate(10, 10).interval == pytest.approx((0.722, 1.0), abs=1e-3)  # Wilson, by hand


def test_stated_confidence_is_compared_with_the_truth():
    rows = confidence_bands([WAVERING, STEADY, LOST])
    assert [(row.low, row.high, row.correct, row.first) for row in rows] == [
        (0.0, 0.2, Rate(0, 1), Rate(0, 1)),
        (0.2, 0.5, Rate(0, 1), Rate(0, 1)),
        (0.7, 0.85, Rate(1, 1), Rate(1, 1)),
        (0.85, 0.95, Rate(1, 1), Rate(1, 1)),
        (0.95, 1.0, Rate(2, 3), Rate(1, 2)),  # WAVERING was once certain of a wrong arm
        (0.9, 1.0, Rate(3, 4), Rate(1, 2)),
    ]
    assert rows[0].mean == 0.1 and rows[4].mean == pytest.approx((0.95 + 0.97 + 0.99) / 3)


def test_moments_of_one_search_count_as_one():
    """Twenty searches with five moments each, all with the same result: at most as certain as twenty moments."""
    moments = [(0.01 * (i + 1), 0.0, 0.92) for i in range(5)], [(0.01 * (i + 1), 0.5, 0.92) for i in range(5)]
    (row,) = confidence_bands([trial(seed, *moments[seed % 4 == 0]) for seed in range(20)], [(0.85, 0.95)])
    assert row.correct == Rate(75, 100) and row.first == Rate(15, 20)
    low, high = Rate(15, 20).interval
    assert row.interval == pytest.approx((low, high), abs=0.01) and row.correct.interval[0] > low + 0.1
    (certain,) = confidence_bands([trial(seed, *moments[0]) for seed in range(20)], [(0.85, 0.95)])
    assert certain.interval == Rate(20, 20).interval


def test_a_search_without_stated_confidence_is_left_out():
    silent = trial(0, (0.01, 0.0, math.nan))
    assert confidence_bands([silent]) == []


def test_a_paired_difference_has_the_published_interval():
    """Agresti and Min (2005), by hand: 9 gained, 1 lost of 50; with half a trial added to each outcome, n = 52."""
    good, bad = (0.01, 0.0, 0.5), (0.01, 0.5, 0.5)
    one = [trial(seed, good if seed < 9 or seed >= 10 else bad) for seed in range(50)]
    other = [trial(seed, bad if seed < 9 else good, setting=BARE) for seed in range(50)]
    result = paired_difference(one, other, 0.01)
    assert result.value == pytest.approx((9 - 1) / 50)
    half = 1.959964 * math.sqrt(9.5 + 1.5 - (9.5 - 1.5) ** 2 / 52) / 52
    assert result.interval == pytest.approx((8 / 52 - half, 8 / 52 + half))
    assert result.is_significant
    assert conclusion([result], 50).startswith("Metrics help at 1 of the 1 costs compared")


def test_equal_success_rates_still_have_an_interval():
    trials = [trial(seed, (0.01, 0.0, 0.5)) for seed in range(20)]
    result = paired_difference(trials, trials, 0.01)
    assert result.value == 0.0 and result.interval[0] < 0 < result.interval[1]


def test_files_contain_every_trial_and_every_curve(tmp_path):
    trials = [WAVERING, STEADY, LOST, trial(0, (0.01, 0.0, 0.9), setting=BARE)]
    paths = write_csv(trials, [0.01, 0.05], tmp_path / "out")
    own, curves = (list(csv.DictReader(path.read_text().splitlines())) for path in paths)
    assert [(line["policy"], line["metrics"], line["seed"]) for line in own] == [
        ("race", "True", "0"),
        ("race", "True", "1"),
        ("race", "True", "2"),
        ("race", "False", "0"),
    ]
    assert own[0]["share_to_within"] == "0.02" and own[0]["share_to_within_for_good"] == "0.04"
    assert own[2]["share_to_within"] == ""
    assert [(line["share"], line["within"]) for line in curves[2:]] == [("0.01", "1.0"), ("0.05", "1.0")]
    assert float(curves[1]["within"]) == pytest.approx(2 / 3)


def test_settings_keep_their_order():
    assert list(by_setting([LOST, trial(5, (0.1, 0, 0), setting=BARE), STEADY])) == [RACE, BARE]
