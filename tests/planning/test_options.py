from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.planning.options import NO_WAIT, Offer, TrackRecord, choose, option_of
from daskmetrics.planning.plan import PlanRequest, Proposal
from daskmetrics.planning.table import decision_lines, proposal_tables
from daskmetrics.planning.work import Estimate, Phase, Work, around, exactly

HOUR = 3600.0
AT_ONCE = Estimate(exactly(0.0))


def workload(units=64, hours=1.0, device="l40s", **about):
    seconds = Estimate(exactly(hours * HOUR), "measured")
    return Work(((Phase("measure", units, seconds, device),),), AT_ONCE, **about)


def offer(workers, wait=0.0, **about):
    waits = Estimate(exactly(wait * HOUR), "expected") if wait else NO_WAIT
    return Offer("p", about.pop("device", "l40s"), 1, workers, waits, **about)


def planned(*offers, deadline=None, work=None):
    work = work or workload()
    return [option_of(number, each, work, deadline) for number, each in enumerate(offers, 1)]


def close(low_to_high: float) -> Work:
    """64 units of an hour each, known to this factor."""
    unit = Estimate(around(HOUR, low_to_high), "estimated")
    return Work(((Phase("measure", 64, unit, "l40s"),),), AT_ONCE)


def proposal(options, work=None, purpose=None):
    request = PlanRequest(Path("x.yaml"), purpose=purpose)
    return Proposal("x", request, work or workload(), tuple(options), 0.0)


def rows_of(options):
    """The cells of each option, of both tables."""
    rows = {option.number: {} for option in options}
    for table in proposal_tables(proposal(options)):
        for row in table.rows[: len(rows) * bool(table.header)]:
            rows[int(row[0])] |= dict(zip(table.header, row, strict=True))
    return list(rows.values())


def training(steps, **about):
    """A training of 10 epochs of 1,000 samples in 100 steps, each of which takes a second."""
    epoch = Estimate(exactly(100.0))
    about = {"samples": 1000.0, "steps": steps, **about}
    return Work(((Phase("train a", 10, epoch, "l40s", 4, True, 1, **about),),), AT_ONCE)


def test_memory_limits_and_problems_rule_an_option_out():
    options = planned(
        offer(8, vram_gib=24.0),
        offer(8, wait=9.0, vram_gib=80.0),
        offer(8, vram_gib=80.0, price=1.0),
        deadline=10 * HOUR,
        work=workload(vram_gib=40.0),
    )
    facts = ("40 GiB of GPU memory", "is expected to end in 17.0 h, the deadline is in 10.0 h")
    for option, fact in zip(options, facts, strict=False):
        (problem,) = option.problems
        assert fact in problem
    assert {choice.best.number for choice in proposal(options).best} == {3}
    none = proposal(planned(offer(1, problem="is not up")))
    assert none.best == [] and none.recommended is None
    assert dict(decision_lines(none)) == {"Recommended": "No option can be used."}


def test_the_walltime_has_a_margin_and_ends_at_the_limit():
    free, limited = planned(offer(8), offer(8, limit=4 * HOUR))
    assert (free.walltime, free.jobs) == ("09:45:00", 1)
    assert (limited.walltime, limited.jobs) == ("04:00:00", 2)


def test_each_job_waits_and_starts_its_workers():
    work = replace(workload(), start=Estimate(exactly(HOUR)))
    (option,) = planned(offer(8, wait=3.0, limit=4 * HOUR), work=work)
    # nine hours in jobs of four hours
    assert (option.jobs, option.run.expected, option.total[1]) == (3, 11 * HOUR, 20 * HOUR)
    assert option.hours[1] == 8 * 11


def test_a_job_shorter_than_a_unit_is_not_possible():
    short = offer(8, limit=HOUR / 2)
    (measured,) = planned(short)
    assert measured.problems == ["a unit takes 60.0 min, a job at most 30.0 min"]
    (trained,) = planned(short, work=training({1: 100}))
    assert trained.possible  # it goes on where a job ended


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.floats(0, 20), st.floats(0.1, 10)), min_size=1, max_size=12
    )
)
def test_no_option_beats_a_suggested_one_in_both_time_and_cost(given):
    options = planned(*(offer(n, wait, price=price) for n, wait, price in given))
    purposes = ("fastest", "cheapest", "balanced")
    chosen = {purpose: choose(options, purpose).best for purpose in purposes}
    for a in chosen.values():
        for b in options:
            assert b.total[1] >= a.total[1] or b.cost[1] >= a.cost[1]
    assert chosen["fastest"].total[1] == min(option.total[1] for option in options)
    assert chosen["cheapest"].cost[1] == min(option.cost[1] for option in options)


def test_the_plan_says_how_many_workers_a_search_can_use():
    work = Work(((Phase("search", 1_000, Estimate(exactly(1.0)), at_once=32),),))
    options = planned(*(offer(n, device="cpu") for n in (16, 32, 128)), work=work)
    for number, is_told in ((3, True), (2, False)):
        *_, last = proposal_tables(proposal(options[:number], work))
        line = "Search", "more than 32 workers bring no earlier answer"
        assert (line in last.rows) is is_told


def test_a_training_is_compared_by_batch_epoch_and_value():
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
def test_without_epochs_there_is_the_time_of_a_step(steps, batch, step):
    (row,) = rows_of(planned(offer(4), work=training(steps)))
    assert (row.get("batch", ""), row.get("time per step", "")) == (batch, step)


def test_the_recommended_option_has_its_reason():
    seconds = Estimate(exactly(HOUR))
    half = Phase("measure", 64, seconds, "l40s", serial=exactly(0.1))
    options = planned(*(offer(n) for n in (1, 8, 64)), work=Work(((half,),), AT_ONCE))
    lines = dict(decision_lines(proposal(options)))
    assert lines["Recommended"] == "Option 2 is the one with the smallest product of time and cost."
    bold = "Option 3 (1 node, 64 l40s) could save 6.3 h at 4.29 x the cost."
    assert lines["Aggressive"] == bold
    cheap = "Option 1 (1 node, 1 l40s) takes 2.1 days longer at 0.588 x the cost."
    assert lines["Cheaper"] == cheap and "Queue" not in lines
    assert rows_of(options[:1])[0]["reason"] == "fastest, cheapest, recommended"
    *_, last = proposal_tables(proposal(options))
    *commands, submit = last.notes
    assert [command[0] for command in commands] == ["1", "2", "3"]
    assert submit.startswith("Add --submit NUMBER")


def test_of_options_as_fast_the_cheapest_is_recommended():
    fastest = choose(planned(offer(8), offer(9), work=close(2.0)), "fastest")
    assert [option.number for option in fastest.ties] == [2]
    chosen = proposal(planned(offer(9), offer(8), work=close(2.0)), purpose="fastest")
    assert chosen.recommended.option.number == 2
    reason = dict(decision_lines(chosen))["Recommended"]
    assert "the cheapest of 1 and 2, whose times are too close to call" in reason


def test_a_measurement_errs_alike_for_options_of_its_device():
    same = choose(planned(offer(8), offer(16), work=close(4.0)), "fastest")
    assert same.best.number == 2 and not same.ties
    other = choose(planned(offer(8), offer(16, device="a100"), work=close(4.0)), "fastest")
    assert other.ties
    options = planned(offer(8, price=1.0), offer(8, price=7.0, wait=1.0), work=close(4.0))
    fastest, cheapest = proposal(options).best
    assert fastest.best.number == cheapest.best.number == 1
    assert not fastest.ties and not cheapest.ties  # no wait is shorter than none
