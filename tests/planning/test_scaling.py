from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.planning.options import divided
from daskmetrics.planning.scaling import (
    Bench,
    BenchTrial,
    bench_table,
    fit,
    makespan,
    size_table,
    times,
)


@pytest.mark.parametrize("serial", [0.0, 0.05, 0.5, 1.0])
def test_the_serial_share_is_recovered_from_noisy_times(serial):
    rng = np.random.default_rng(1)
    noisy = [
        BenchTrial(n, 100 * divided(serial, n) * rng.lognormal(0, 0.01), (), repeat=r)
        for r in range(5)
        for n in (1, 2, 4, 8)
    ]
    law = fit(noisy)
    assert law.serial.value == pytest.approx(serial, abs=0.03)
    assert law.serial.low <= law.serial.value <= law.serial.high
    assert law.on(1).value == pytest.approx(100, rel=0.05)


def trials(times):
    return [
        BenchTrial(n, t, ((0.0,),) * 10, repeat=r)
        for n, seconds in times.items()
        for r, t in enumerate(seconds)
    ]


def test_rows_count_from_the_fewest_workers():
    measured = trials({2: [10.0, 10.0], 4: [5.0, 5.0]})
    assert [time.value for time in times(measured).values()] == [10.0, 5.0]
    table = bench_table(Bench("x", tuple(measured)), price=360.0)
    two, four = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert (two["speed-up"], four["speed-up"], four["efficiency"]) == ("2.00", "4.00", "100%")
    assert two["worker hours"] == four["worker hours"] == "0.00556"
    assert (four["cost"], four["units/s"]) == ("2", "2")


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40), st.integers(1, 9))
def test_a_schedule_is_between_its_bounds(seconds, workers):
    """Graham (1969): no list schedule is longer than sum / m + (1 - 1 / m) longest."""
    least = max(sum(seconds) / workers, max(seconds))
    most = sum(seconds) / workers + (1 - 1 / workers) * max(seconds)
    assert least * (1 - 1e-9) <= makespan([[s] for s in seconds], workers) <= most * (1 + 1e-9)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_simulation_of_the_measured_workers_takes_as_long_as_they_did(workers):
    units = tuple((0.1 + 0.3 * (i % 4 == 0),) for i in range(40))
    seconds = 8.8 / workers  # for units of 7 s
    bench = Bench("x", (BenchTrial(workers, seconds, units),))
    assert bench.seconds(workers) == pytest.approx(seconds)
    assert bench.seconds(64) >= 40 * bench.dispatch
    if workers == 1:
        assert bench.dispatch == pytest.approx((8.8 - 7) / 40)


def test_a_larger_worker_computes_as_many_units_side_by_side_as_its_cores_and_memory_allow():
    trial = BenchTrial(1, 8.0, ((1.0,),) * 8, memory=3 * 2**30)
    table = size_table(Bench("map", (trial,), cores=2), (2, 8), (2.0**31, 2.0**33, None), most=2)
    assert [row[2:] for row in table.rows] == [
        ("0", "memory", "no unit fits", "no unit fits"),
        ("1", "cores", "8.0 s", "4.0 s"),
        ("1", "cores", "8.0 s", "4.0 s"),
        ("0", "memory", "no unit fits", "no unit fits"),
        ("2", "memory", "4.0 s", "2.0 s"),
        ("4", "cores", "2.0 s", "1.0 s"),
    ]
    assert "SIMULATED" in table.title
