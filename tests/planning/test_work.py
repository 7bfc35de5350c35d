from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.planning.work import (
    DEVICES,
    Estimate,
    Phase,
    Work,
    around,
    exactly,
    mean_of,
    slowdown,
)

AT_ONCE = Estimate(exactly(0.0))
SECOND = Estimate(exactly(1.0))


def test_the_bounds_of_samples_hold_their_mean_nine_in_ten():
    draws = np.random.default_rng(0).lognormal(mean=np.log(10.0), sigma=0.3, size=(1000, 4))
    bounds = np.array([mean_of(list(samples)) for samples in draws])
    held = np.mean((bounds[:, 0] <= 10.0) & (bounds[:, 2] >= 10.0))
    assert 0.87 < held < 0.93


def test_another_gpu_is_as_fast_as_its_datasheet_says():
    hour = Estimate(around(3600.0, 1.2), "measured")
    work = Work(((Phase("measure", 64, hour, "a100"),),), AT_ONCE)
    same, known, unknown = (work.on(1, device) for device in ("a100", "h100", "gtx"))
    assert same.source == "measured" and known.expected < same.expected
    assert "a100 to h100 estimated by datasheet" in known.source
    assert unknown.seconds[2] / unknown.seconds[0] == pytest.approx(1.44 * 9.0)
    assert unknown.source.endswith("of unknown speed")
    assert all(slowdown(name, name)[1] == 1.0 for name in DEVICES)


def test_only_the_computing_share_depends_on_the_gpu():
    hour = Estimate(exactly(3600.0), "measured", busy=0.18)
    work = Work(((Phase("epochs", 1, hour, "l40s"),),), AT_ONCE)
    faster = work.on(1, "h200")
    assert faster.expected / 3600 == pytest.approx(0.87, abs=0.01)
    assert faster.source.endswith("for the 18 % of the time that the GPU computed")
    assert work.on(1, "l40s").expected == 3600


def test_what_is_bound_by_data_may_be_as_fast_on_any_gpu():
    low, expected, high = slowdown("h200", "l40s", busy=0.18)
    assert low == 1.0 < expected < high  # the data are read while it computes, or before
    least, _, _ = slowdown("h200", "l40s", busy=0.9)
    assert 1 < least == pytest.approx(0.9 * slowdown("h200", "l40s", busy=1.0)[0])
    assert slowdown("l40s", "h200", busy=0.9)[2] == 1.0


@pytest.mark.parametrize("other", DEVICES)
@pytest.mark.parametrize("device", DEVICES)
def test_an_unknown_share_has_the_bounds_of_any(device, other):
    low, expected, high = slowdown(device, other)
    assert low <= expected <= high
    for busy in (0.0, 0.4, 1.0):
        of_share = slowdown(device, other, busy)
        assert (np.diff(of_share) >= 0).all()
        assert low <= of_share[0] + 1e-12 and of_share[2] <= high + 1e-12
        assert slowdown(device, other, 0.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("units", "workers", "about", "seconds"),
    [
        (10, 8, {"at_once": 2}, 5.0),
        (10, 10, {"serial": exactly(0.5)}, 5.5),
        (10**6, 10, {}, 10**5),
        # more ranks than the recipe has do not shorten a training
        (1, 8, {"at_once": 4, "together": True}, 0.25),
        # one worker takes as long whatever the serial share
        (39, 1, {"serial": np.array([0.1, 0.2, 0.3])}, 39.0),
    ],
)
def test_neither_a_chain_nor_a_serial_share_is_divided(units, workers, about, seconds):
    assert Phase("x", units, SECOND, **about).on(workers, "cpu") == pytest.approx(seconds)


def test_bounds_stay_in_order_on_fewer_ranks_than_timed():
    phase = Phase("x", 1, SECOND, together=True, timed_workers=4, serial=np.array([0.0, 0.1, 0.5]))
    assert (np.diff(phase.on(2, "cpu")) >= 0).all()


def test_the_units_of_several_models_share_the_workers():
    """As long as free workers take the next unit, to within the longest unit."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        counts, workers = rng.integers(1, 9, size=4), int(rng.integers(1, 7))
        seconds = rng.uniform(1, 9, size=4)
        free = [0.0] * workers
        for duration in np.repeat(seconds, counts):
            free[int(np.argmin(free))] += duration
        models = tuple(
            Phase(f"measure {i}", int(n), Estimate(exactly(s)))
            for i, (n, s) in enumerate(zip(counts, seconds, strict=True))
        )
        search = Phase("search", workers, SECOND)
        taken = Work((models, (search,)), AT_ONCE).on(workers, "cpu").expected
        assert abs(taken - (max(free) + 1)) <= seconds.max()
    # one chain for each suite that is trained
    chains = (Phase("train a", 9, SECOND, at_once=1), Phase("train b", 1, SECOND, at_once=1))
    assert Work((chains,), AT_ONCE).on(8, "cpu").expected == 9
