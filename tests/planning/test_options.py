from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.planning.options import (
    DEVICES,
    NO_WAIT,
    Estimate,
    Interval,
    Offer,
    Option,
    Phase,
    PlanRequest,
    Proposal,
    TrackRecord,
    Workload,
    proposal_tables,
    speed,
)

HOUR = 3600.0
AT_ONCE = Estimate(Interval.exactly(0.0))


def workload(units=64, hours=1.0, device="l40s", **about):
    seconds = Estimate(Interval.exactly(hours * HOUR), "measured", True)
    return Workload((Phase("measure", units, seconds, device),), AT_ONCE, **about)


def offer(workers, wait=0.0, **about):
    waits = Estimate(Interval.exactly(wait * HOUR), "expected") if wait else NO_WAIT
    return Offer("p", about.pop("device", "l40s"), 1, workers, waits, **about)


def planned(*offers, deadline=None, work=None):
    work = work or workload()
    return [Option(number, each, work, deadline) for number, each in enumerate(offers, 1)]


def close(low_to_high: float) -> Workload:
    """64 units of an hour each, known to this factor."""
    unit = Estimate(Interval.around(HOUR, low_to_high), "estimated")
    return Workload((Phase("measure", 64, unit, "l40s"),), AT_ONCE)


def test_bounds_of_an_interval_are_in_order_and_kept_by_products_and_sums():
    with pytest.raises(ValueError, match="low <= value <= high"):
        Interval(2.0, 1.0, 3.0)


def test_the_interval_of_samples_holds_their_true_mean_nine_times_in_ten():
    draws = np.random.default_rng(0).lognormal(mean=np.log(10.0), sigma=0.3, size=(1000, 4))
    intervals = [Interval.of(list(samples)) for samples in draws]
    held = np.mean([interval.low <= 10.0 <= interval.high for interval in intervals])
    assert 0.87 < held < 0.93


def test_memory_limits_and_problems_rule_an_option_out():
    options = planned(
        offer(8, vram_gib=24.0),
        offer(8, wait=9.0, vram_gib=80.0),
        offer(8, vram_gib=80.0, price=1.0),
        deadline=10 * HOUR,
        work=workload(vram_gib=40.0),
    )
    facts = ("40 GiB of GPU memory", "than 10.0 h")
    for option, fact in zip(options, facts, strict=False):
        (problem,) = option.problems
        assert fact in problem
    assert {suggestion.option.number for suggestion in proposal(options).suggestions} == {3}
    impossible = planned(offer(1, problem="is not up"))
    assert proposal(impossible).suggestions == () and "No option" in proposal(impossible).reason


def test_the_walltime_has_a_margin_and_ends_at_the_limit():
    free, limited = planned(offer(8), offer(8, limit=4 * HOUR))
    assert (free.walltime, free.jobs) == ("09:45:00", 1)
    assert (limited.walltime, limited.jobs) == ("04:00:00", 2)


def test_each_job_waits_and_starts_its_workers():
    work = replace(workload(), start=Estimate(Interval.exactly(HOUR)))
    (option,) = planned(offer(8, wait=3.0, limit=4 * HOUR), work=work)
    # nine hours in jobs of four hours
    assert (option.jobs, option.run.value, option.total.value) == (3, 11 * HOUR, 20 * HOUR)
    assert option.worker_hours.value == 8 * 11


def test_a_job_shorter_than_a_unit_is_not_possible():
    short = offer(8, limit=HOUR / 2)
    (measured,) = planned(short)
    assert measured.problems == ("a unit takes 60.0 min, a job at most 30.0 min",)
    (trained,) = planned(short, work=training({1: 100}))
    assert trained.possible  # it goes on where a job ended


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.floats(0, 20), st.floats(0.1, 10)), min_size=1, max_size=12
    )
)
def test_no_option_beats_a_suggested_one_in_both_time_and_cost(given):
    options = planned(*(offer(n, wait, price=price) for n, wait, price in given))
    chosen = {suggestion.label: suggestion.option for suggestion in proposal(options).suggestions}
    for a in chosen.values():
        for b in options:
            assert b.total.value >= a.total.value or b.cost.value >= a.cost.value
    assert chosen["fastest"].total.value == min(option.total.value for option in options)
    assert chosen["cheapest"].cost.value == min(option.cost.value for option in options)


def test_another_gpu_is_assumed_by_its_datasheet_and_an_unknown_one_widely():
    work = workload(device="a100")
    same, known, unknown = (work.on(1, device) for device in ("a100", "h100", "gtx"))
    assert same.measured and not known.measured and known.value < same.value
    assert unknown.interval.high / unknown.interval.low == pytest.approx(9.0)
    assert speed("gtx", "a100") is None and all(speed(name, name).value == 1.0 for name in DEVICES)


@pytest.mark.parametrize(
    ("units", "workers", "about", "seconds"),
    [
        (10, 8, {"chains": 2}, 5.0),
        (10, 10, {"serial": Interval.exactly(0.5)}, 5.5),
        (10**6, 10, {}, 10**5),
        # more ranks than the recipe has do not shorten a training
        (1, 8, {"chains": 4, "together": True, "serial": Interval.exactly(0.0)}, 0.25),
        # one worker takes as long whatever the serial share
        (39, 1, {"serial": Interval(0.1, 0.2, 0.3)}, 39.0),
    ],
)
def test_neither_a_chain_nor_a_serial_share_is_divided(units, workers, about, seconds):
    phase = Phase("x", units, Estimate(Interval.exactly(1.0)), **about)
    assert phase.on(workers) == Interval.exactly(seconds)


def test_the_units_of_several_models_share_the_workers():
    rng = np.random.default_rng(0)
    for _ in range(50):
        counts, workers = rng.integers(1, 9, size=4), int(rng.integers(1, 7))
        seconds = rng.uniform(1, 9, size=4)
        free = [0.0] * workers
        for duration in np.repeat(seconds, counts):
            free[int(np.argmin(free))] += duration
        phases = [
            Phase(f"measure {i}", int(n), Estimate(Interval.exactly(s)), beside=i > 0)
            for i, (n, s) in enumerate(zip(counts, seconds, strict=True))
        ]
        search = Phase("search", workers, Estimate(Interval.exactly(1.0)))
        taken = Workload((*phases, search), AT_ONCE).on(workers, "cpu").value
        assert taken == pytest.approx(max(free) + 1)
    # one chain for each suite that is trained, with a serial share as of equal units
    about = {"chains": 1, "serial": Interval.exactly(0.5)}
    unit = Estimate(Interval.exactly(1.0))
    chains = (Phase("train a", 9, unit, **about), Phase("train b", 1, unit, **about, beside=True))
    assert Workload(chains, AT_ONCE).on(8, "cpu").value == 0.5 * 10 + 0.5 * 9


def proposal(options, purpose=None):
    return Proposal("x", PlanRequest(Path("x.yaml"), purpose=purpose), tuple(options), 0.0)


def rows_of(options):
    table = next(proposal_tables(proposal(options), 0.0))
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def training(steps, **about):
    """A training of 10 epochs of 1,000 samples in 100 steps, each of which takes a second."""
    epoch = Estimate(Interval.exactly(100.0))
    about = {"samples": 1000.0, "steps": steps, **about}
    return Workload((Phase("train a", 10, epoch, "l40s", 4, True, 1, **about),), AT_ONCE)


def test_the_plan_says_how_many_workers_a_search_can_use():
    search = Phase("search", 1_000, Estimate(Interval.exactly(1.0)), chains=32)
    offers = [offer(n, device="cpu") for n in (16, 32, 128)]
    options = planned(*offers, work=Workload((search,)))
    for number, is_told in ((3, True), (2, False)):
        notes = next(proposal_tables(proposal(options[:number]), 0.0)).notes
        assert any("more than 32 workers" in note for note in notes) is is_told


def test_a_training_is_compared_by_batch_epoch_and_what_a_gpu_hour_buys():
    work = training({1: 100, 4: 100}, epochs=1.0)
    success = TrackRecord(9, 10, "of your jobs")
    row, more = rows_of(planned(offer(2, success=success), offer(8), work=work))
    assert (row["batch"], row["time per epoch"]) == ("10 (5 per GPU)", "50 s")
    assert (row["GPU hours"], row["success"]) == ("0.278", "90%")
    # no serial share: each of two GPUs takes half of the steps
    assert row["a GPU hour buys"] == "36,000 samples"
    # four ranks train, and the other four GPUs wait
    assert (more["batch"], more["time per epoch"]) == ("10 (2.5 per GPU)", "25 s")
    assert more["a GPU hour buys"] == "18,000 samples"


@pytest.mark.parametrize(
    ("steps", "batch", "step"),
    [
        ({1: 100, 2: 50}, "40 (10 per GPU)", "1 s"),
        ({1: 100}, "", ""),
        ({1: 99, 4: 80}, "12.5 (3.12 per GPU)", "0.312 s"),
    ],
    ids=["a batch for each GPU", "known for one GPU only", "measured"],
)
def test_without_epochs_there_is_the_time_of_a_step_where_it_is_known(steps, batch, step):
    (row,) = rows_of(planned(offer(4), work=training(steps)))
    assert (row.get("batch", ""), row.get("time per step", "")) == (batch, step)


def test_the_recommended_option_has_its_reason():
    seconds = Estimate(Interval.exactly(HOUR))
    half = Phase("measure", 64, seconds, "l40s", serial=Interval.exactly(0.1))
    options = planned(*(offer(n) for n in (1, 8, 64)), work=Workload((half,), AT_ONCE))
    reason = proposal(options).reason
    for fact in ("Option 2", "1.9 x the time and 0.23 x the cost of 3", "0.21 x the time"):
        assert fact in reason
    assert rows_of(options[:1])[0][""] == "recommended"
    *_, commands = proposal_tables(proposal(options), 0.0)
    assert [number for number, _ in commands.rows] == ["1", "2", "3"]


def test_of_options_that_are_too_close_to_call_the_cheapest_is_recommended():
    fastest, *_ = proposal(planned(offer(8), offer(9), work=close(2.0))).suggestions
    assert [option.number for option in fastest.ties] == [2]
    chosen = proposal(planned(offer(9), offer(8), work=close(2.0)), "fastest")
    assert chosen.recommended.choice.number == 2


def test_one_measurement_errs_alike_for_all_options_of_its_device_and_costs_have_no_waits():
    same = proposal(planned(offer(8), offer(16), work=close(4.0))).suggestions[0]
    assert same.option.number == 2 and not same.ties
    assert (
        proposal(planned(offer(8), offer(16, device="a100"), work=close(4.0))).suggestions[0].ties
    )
    options = planned(offer(8, price=1.0), offer(8, price=7.0, wait=1.0), work=close(4.0))
    fastest, cheapest, _ = proposal(options).suggestions
    assert fastest.ties and cheapest.option.number == 1 and not cheapest.ties
