from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.planning import Limits, Offer, Option, Phase, Workload, suggestions
from daskmetrics.planning.estimate import Calibration, Sample, calibrated, known, save
from daskmetrics.planning.options import (
    DEVICES,
    NO_LIMITS,
    NO_WAIT,
    Estimate,
    Interval,
    PlanRequest,
    Proposal,
    TrackRecord,
    proposal_tables,
    speed,
)

HOUR = 3600.0
EPOCH = Estimate(Interval.exactly(22 * 60.0), "measured", True)
AT_ONCE = Estimate(Interval.exactly(0.0))


def workload(units=64, hours=1.0, device="l40s", **about):
    seconds = Estimate(Interval.exactly(hours * HOUR), "measured", True)
    return Workload((Phase("measure", units, seconds, device),), AT_ONCE, **about)


def offer(workers, wait=0.0, **about):
    waits = Estimate(Interval.exactly(wait * HOUR), "expected") if wait else NO_WAIT
    return Offer(
        **{"profile": "p", "device": "l40s", "nodes": 1, "workers": workers, "wait": waits, **about}
    )


def planned(*offers, limits=NO_LIMITS, work=None):
    work = work or workload()
    return [Option(number, each, work, limits) for number, each in enumerate(offers, 1)]


def test_forty_epochs_are_predicted_from_the_first():
    work = Workload((Phase("epochs", 40, EPOCH, "a100", together=True, workers=16),), AT_ONCE)
    (only,) = planned(offer(16, device="a100"), work=work)
    assert only.run.value / HOUR == pytest.approx(14.1, rel=0.1)


def test_memory_limits_and_problems_rule_an_option_out():
    small, late, expensive, long, good = planned(
        offer(8, vram_gib=24.0),
        offer(8, wait=9.0, vram_gib=80.0),
        offer(8, price=9.0, vram_gib=80.0),
        offer(11, vram_gib=80.0),
        offer(8, vram_gib=80.0, price=1.0),
        limits=Limits(deadline=10 * HOUR, cost=100.0, worker_hours=65.0),
        work=workload(vram_gib=40.0),
    )
    assert small.problems == ("needs 40 GiB of GPU memory, has 24",)
    assert late.problems == ("takes longer than 10.0 h",)
    assert expensive.problems == ("costs more than 100",)
    assert long.problems == ("needs more than 65 GPU-hours",)
    assert good.possible and {
        each.option.number for each in suggestions((small, late, expensive, long, good))
    } == {5}


def test_without_a_possible_option_nothing_is_suggested():
    assert suggestions(planned(offer(1, problem="is not up"))) == ()


def test_the_walltime_has_a_margin_and_ends_at_the_limit():
    free, limited = planned(offer(8), offer(8, limit=4 * HOUR))
    assert (free.walltime, free.jobs) == ("09:45:00", 1)
    assert (limited.walltime, limited.jobs) == ("04:00:00", 2)


def test_overlapping_options_are_reported_as_equal_within_the_error():
    unit = Estimate(Interval.around(HOUR, 2.0), "estimated")
    work = Workload((Phase("measure", 64, unit, "l40s"),), AT_ONCE)
    fastest = suggestions(planned(offer(8), offer(9), work=work))[0]
    assert [option.number for option in fastest.ties] == [2]


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.floats(0, 20), st.floats(0.1, 10)), min_size=1, max_size=12
    )
)
def test_no_option_beats_a_suggested_one_in_both_time_and_cost(given):
    all_options = planned(*(offer(n, wait, price=price) for n, wait, price in given))
    chosen = {each.label: each.option for each in suggestions(all_options)}
    for a in chosen.values():
        assert not any(
            b.total.value < a.total.value and b.cost.value < a.cost.value for b in all_options
        )
    assert chosen["fastest"].total.value == min(o.total.value for o in all_options)
    assert chosen["cheapest"].cost.value == min(o.cost.value for o in all_options)


def test_another_gpu_is_assumed_by_its_datasheet_and_an_unknown_one_widely():
    work = workload(device="a100")
    same, known, unknown = (work.on(1, device) for device in ("a100", "h100", "gtx"))
    assert same.measured and not known.measured and "estimated by datasheet" in known.source
    assert known.value < same.value and "unknown speed" in unknown.source
    assert unknown.interval.high / unknown.interval.low == pytest.approx(9.0)
    assert speed("gtx", "a100") is None and all(speed(name, name).value == 1.0 for name in DEVICES)


def test_neither_a_chain_nor_a_serial_share_is_divided():
    seconds = Estimate(Interval.exactly(1.0))
    assert Phase("train", 10, seconds, chains=2).on(8).value == 5.0
    assert Phase("measure", 10, seconds, serial=Interval.exactly(0.5)).on(10).value == 5.5
    assert Phase("map", 10**6, seconds).on(10).value == 10**5


@pytest.mark.parametrize("units", range(1, 40))
def test_one_worker_takes_as_long_whatever_the_serial_share(units):
    phase = Phase("measure", units, Estimate(Interval.exactly(1.0)), serial=Interval(0.1, 0.2, 0.3))
    assert phase.on(1) == Interval.exactly(units)


def test_the_newest_calibration_of_the_model_counts():
    old, new = (
        Calibration("cpu", "h", at, samples=(Sample("measure", "a", (at,) * 3, 1.0),))
        for at in (2.0, 3.0)
    )
    assert calibrated("measure", "a", 10.0, (new, old)).value == pytest.approx(30.0)
    other = calibrated("measure", "b", 10.0, (new, old))
    assert not other.measured and other.interval.high > 40.0
    assert calibrated("search", "b", 10.0, (new, old)).source == "estimated"


def test_a_calibration_survives_a_round_trip():
    one = Calibration(
        "cpu",
        "h",
        1.0,
        {"torch": "2"},
        (Sample("measure", "a", (1.0, 2.0), 1.0),),
        2,
        (0.0, 0.1, 0.2),
    )
    save(one)
    assert known() == (one,)


def first_table(options, purpose=None):
    request = PlanRequest(Path("x.yaml"), purpose=purpose)
    return next(proposal_tables(Proposal("x", request, tuple(options), 0.0), 0.0))


def test_the_plan_says_how_many_workers_a_search_can_use():
    search = Phase("search", 1_000, Estimate(Interval.exactly(1.0)), chains=32)
    offers = [Offer("p", "cpu", 1, n, NO_WAIT) for n in (16, 32, 128, 512)]
    options = planned(*offers, work=Workload((search,)))
    table = first_table(options)
    assert "search: more than 32 workers bring no earlier answer" in table.notes
    total = table.header.index("total")
    assert len({row[total] for row in table.rows}) == 2  # three options take as long
    table = first_table(options[:2])
    assert not any("32 workers" in note for note in table.notes)


def test_a_plan_says_what_is_best():
    offers = [offer(4), offer(16, wait=6.5), offer(8, problem="is not up")]
    table = first_table(planned(*offers), "fastest")
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [row[""] for row in rows] == [
        "",
        "fastest, cheapest, balanced, recommended",
        "cannot be used: is not up",
    ]
    assert [row["nodes"] for row in rows] == ["1"] * 3 and rows[0]["GPUs"] == "4 l40s"
    assert not {"batch", "time per epoch", "time per step", "success"} & set(table.header)


def training(**about):
    """A training of 10 epochs of 1,000 samples in 100 steps, each of which takes a second."""
    epoch = Estimate(Interval.exactly(100.0))
    about = {"steps": {1: 100}, "samples": 1000.0, **about}
    return Workload((Phase("train a", 10, epoch, "l40s", 4, True, 1, **about),), AT_ONCE)


def cells(options, purpose=None):
    table = first_table(options, purpose)
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def test_a_training_is_compared_by_batch_epoch_and_what_a_gpu_hour_buys():
    work = training(steps={1: 100, 4: 100}, epochs=1.0)
    success = TrackRecord(9, 10, "of your jobs")
    row, more = cells(planned(offer(2, success=success), offer(8), work=work))
    assert (row["batch"], row["time per epoch"]) == ("10 (5 per GPU)", "50 s")
    assert (row["GPU hours"], row["success"]) == ("0.278", "90%")
    # no serial share: each of two GPUs takes half of the steps
    assert row["a GPU hour buys"] == "36,000 samples"
    # four ranks train, and the other four GPUs wait
    assert (more["batch"], more["time per epoch"]) == ("10 (2.5 per GPU)", "25 s")
    assert more["a GPU hour buys"] == "18,000 samples"
    assert "time per step" not in row


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
    (row,) = cells(planned(offer(4), work=training(steps=steps)))
    assert (row.get("batch", ""), row.get("time per step", "")) == (batch, step)


def proposal(options, purpose=None):
    return Proposal("x", PlanRequest(Path("x.yaml"), purpose=purpose), tuple(options), 0.0)


def test_the_recommended_option_has_its_reason():
    half = Phase(
        "measure", 64, Estimate(Interval.exactly(HOUR)), "l40s", serial=Interval.exactly(0.1)
    )
    work = Workload((half,), AT_ONCE)
    options = planned(*(offer(n) for n in (1, 8, 64)), work=work)
    assert proposal(options).reason == (
        "Option 2 is recommended: it is the balanced option; 1.9 x the time and 0.23 x the cost of"
        " 3, the fastest option; 0.21 x the time and 1.7 x the cost of 1, the cheapest option."
    )
    assert proposal(options[:1]).reason == (
        "Option 1 is recommended: it is the only option that can be used."
    )
    assert cells(options[:1])[0][""] == "recommended"
    *_, commands = proposal_tables(proposal(options), 0.0)
    assert [number for number, _ in commands.rows] == ["1", "2", "3"]
    assert "No option" in proposal(planned(offer(1, problem="is not up"))).reason


def test_options_that_are_too_close_to_call_have_a_recommended_one_all_the_same():
    unit = Estimate(Interval.around(HOUR, 2.0), "estimated")
    work = Workload((Phase("measure", 64, unit, "l40s"),), AT_ONCE)
    close = proposal(planned(offer(9), offer(8), work=work), "fastest")
    assert close.recommended.choice.number == 2
    assert "Option 2 is recommended: the cheapest of 1 and 2, whose times are too" in close.reason


def test_one_measurement_errs_alike_for_all_options_of_its_device():
    unit = Estimate(Interval.around(HOUR, 4.0), "estimated")
    work = Workload((Phase("measure", 64, unit, "l40s"),), AT_ONCE)
    same = suggestions(planned(offer(8), offer(16), work=work))[0]
    assert same.option.number == 2 and not same.ties
    other = suggestions(planned(offer(8), offer(16, device="a100"), work=work))[0]
    assert other.ties


def test_costs_are_compared_without_the_waits():
    unit = Estimate(Interval.around(HOUR, 4.0), "estimated")
    work = Workload((Phase("measure", 64, unit, "l40s"),), AT_ONCE)
    options = planned(offer(8, price=1.0), offer(8, price=7.0, wait=1.0), work=work)
    fastest, cheapest, _ = suggestions(options)
    assert cheapest.option.number == 1 and not cheapest.ties
    assert fastest.ties
