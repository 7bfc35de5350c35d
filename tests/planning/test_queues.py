"""Queues made by a seed, for each of which the right option is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from daskmetrics.cluster.slurm.partitions import Node, Partition, WaitingJob
from daskmetrics.config import Cluster
from daskmetrics.planning.offers import slurm_offers, wait_of
from daskmetrics.planning.options import (
    NO_WAIT,
    UNKNOWN_WAIT,
    TrackRecord,
    choose,
    option_of,
)
from daskmetrics.planning.plan import PlanRequest, Proposal
from daskmetrics.planning.table import decision_lines
from daskmetrics.planning.work import Estimate, Phase, Work, around, exactly

HOUR = 3600.0
UNIT = Estimate(around(HOUR / 2, 1.1), "measured")
WORK = Work(((Phase("measure", 64, UNIT, "l40s"),),), Estimate(exactly(60.0)))


class Site:
    """Partitions of nodes with four GPUs, their waits, and the offers that follow from them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.offers = []

    def add(self, name, workers, wait, state="idle", gpu="l40s", **about):
        """An offer of a partition that has as many GPUs."""
        used = {gpu: 0 if wait is NO_WAIT else 4}
        node = Node("n", state, 16, 16, 65536, {gpu: 4}, used)
        partition = Partition(name, nodes=(node,) * -(-workers // 4), **about)
        profile = Cluster(kind="slurm", partition=name, gpu_type=gpu)
        (offer,) = slurm_offers("", profile, [workers], [partition])
        self.offers.append(replace(offer, wait=wait))

    def by_slurm(self, least, most, past=None):
        """A wait between these hours, whose error is that of past waits if these are given."""
        record = TrackRecord(9, 9, "of your jobs")
        if past:
            record = replace(record, waited=(past[0] * HOUR, past[1] * HOUR))
        return wait_of(self.random.uniform(least, most) * HOUR, record)

    def decide(self, purpose=None):
        """The options in random order, and what is said of them."""
        self.random.shuffle(self.offers)
        options = [option_of(number, offer, WORK) for number, offer in enumerate(self.offers, 1)]
        request = PlanRequest(Path("x.yaml"), purpose=purpose)
        proposal = Proposal("x", request, WORK, tuple(options), 0.0)
        return proposal, dict(decision_lines(proposal))


def numbers(proposal):
    return {option.offer.partition: option.number for option in proposal.options}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("purpose", [None, "fastest", "cheapest"])
def test_free_devices_win_against_full_ones(seed, purpose):
    site = Site(seed)
    workers = site.random.choice([4, 8, 16])
    site.add("free", workers, NO_WAIT)
    site.add("full", workers, site.by_slurm(2, 3))
    site.add("fuller", workers, site.by_slurm(4, 9, past=(0.1, 12)))
    proposal, said = site.decide(purpose)
    option = numbers(proposal)
    assert proposal.recommended.option.number == option["free"]
    assert "close" not in said["Recommended"] or purpose == "cheapest"
    start = f"Option {option['free']} starts now and saves "
    assert said["Queue"].startswith(start)
    assert said["Queue"].endswith(f" h against waiting for option {option['full']}.")
    assert "Aggressive" not in said


@pytest.mark.parametrize("seed", [3, 4])
def test_of_full_partitions_the_shortest_known_wait_wins(seed):
    site = Site(seed)
    site.add("soon", 8, site.by_slurm(0.2, 0.4, past=(0.1, 0.5)))
    site.add("late", 8, site.by_slurm(5, 9, past=(4, 12)))
    # Slurm expects it first, but how wrong it may be is not known
    site.add("unsure", 8, site.by_slurm(0.01, 0.1))
    proposal, said = site.decide("fastest")
    assert proposal.recommended.option.number == numbers(proposal)["soon"]
    assert "Queue" not in said


@pytest.mark.parametrize("seed", [5, 6])
def test_nodes_that_drain_are_no_option(seed):
    site = Site(seed)
    site.add("draining", 16, NO_WAIT, state="draining")
    site.add("closed", 16, NO_WAIT, up=False)
    site.add("full", 16, site.by_slurm(1, 9))
    proposal, said = site.decide()
    full = numbers(proposal)["full"]
    assert said == {"Recommended": f"Option {full} is the only one that can be used."}
    problems = {option.offer.partition: option.problems for option in proposal.options}
    assert problems["draining"] == ["partition draining has no usable l40s, but no GPUs"]
    assert problems["closed"] == ["partition closed is not up"]


@pytest.mark.parametrize("seed", [7, 8])
def test_each_job_of_a_short_limit_waits_again(seed):
    site = Site(seed)
    wait = site.by_slurm(1, 1.5, past=(0.8, 2))
    site.add("short", 8, wait, longest=HOUR)  # for four hours of work
    site.add("shorter_than_a_unit", 8, NO_WAIT, longest=HOUR / 4)
    site.add("long", 8, site.by_slurm(1.6, 2.5, past=(1, 3)))
    proposal, _ = site.decide("fastest")
    option = numbers(proposal)
    assert proposal.recommended.option.number == option["long"]
    short = proposal.options[option["short"] - 1]
    assert short.jobs == 5 and short.wait[1] == 5 * wait.expected


@pytest.mark.parametrize("seed", [9, 10])
@pytest.mark.parametrize("is_estimated", [True, False])
def test_an_unknown_start_is_never_better_than_a_known_one(seed, is_estimated):
    site = Site(seed)
    site.add("free", 4, NO_WAIT)
    site.add("large", 32, site.by_slurm(0.5, 1) if is_estimated else UNKNOWN_WAIT)
    proposal, said = site.decide("fastest")
    option = numbers(proposal)
    assert proposal.recommended.option.number == option["free"]
    if is_estimated:  # what it saves is what Slurm expects
        bold = said["Aggressive"]
        assert bold.startswith(f"Option {option['large']} (8 nodes, 32 l40s) could save ")
        assert "Its risk is the wait: " in bold and "its error is not known" in bold
    else:
        unknown = f"saves an unknown time against waiting for option {option['large']}."
        assert said["Queue"].endswith(unknown) and "Aggressive" not in said
    # of those whose cost is least, the one that starts for sure
    assert choose(proposal.options, "cheapest").option.number == option["free"]


def test_costs_that_are_as_close_as_times_decide_nothing():
    site = Site(12)
    # by datasheets alone it is slower, and so more expensive; a past job hardly waited
    site.add("free", 8, NO_WAIT, gpu="l40")
    site.add("full", 8, site.by_slurm(3, 4, past=(0.1, 9)))
    proposal, said = site.decide("fastest")
    option = numbers(proposal)
    reason = f"Option {option['free']} is the best of 1 and 2, whose times and costs are too close"
    assert said["Recommended"].startswith(reason)
    assert said["Queue"].startswith(f"Option {option['free']} starts now and saves ")


def test_a_known_wait_for_more_devices_is_worth_it():
    site = Site(11)
    site.add("free", 1, NO_WAIT)
    site.add("large", 32, site.by_slurm(1, 2, past=(0.5, 3)))
    proposal, said = site.decide("fastest")
    option = numbers(proposal)
    assert proposal.recommended.option.number == option["large"]
    assert said["Queue"].endswith(f"against option {option['free']}, which starts now.")


@pytest.mark.parametrize("seed", [13, 14])
@pytest.mark.parametrize("is_early", [True, False])
def test_an_own_job_matters_if_its_place_is_earlier(seed, is_early):
    site = Site(seed)
    site.add("free", 2, NO_WAIT)
    site.add("full", 32, site.by_slurm(20, 30, past=(15, 40)))
    start = site.random.uniform(1, 2) * HOUR if is_early else 50 * HOUR
    job = WaitingJob("7", start, 50 * HOUR, 8, {"l40s": 4})
    site.offers[-1] = replace(site.offers[-1], place=job)
    proposal, said = site.decide("fastest")
    option = numbers(proposal)
    assert proposal.recommended.option.number == option["free"]
    if is_early:
        assert f"(scancel 7), option {option['full']} could take its place" in said["Own jobs"]
    else:
        assert "Own jobs" not in said


@pytest.mark.parametrize("is_known", [True, False])
def test_an_own_job_is_not_named_beside_an_unknown_wait(is_known):
    site = Site(15)
    few = site.by_slurm(40, 50, past=(30, 60)) if is_known else UNKNOWN_WAIT
    site.add("few", 2, few)
    site.add("full", 32, site.by_slurm(20, 30, past=(15, 40)))
    job = WaitingJob("7", -600.0, 50 * HOUR, 8, {"l40s": 4})  # about to begin
    site.offers[-1] = replace(site.offers[-1], place=job)
    proposal, said = site.decide("cheapest")
    assert proposal.recommended.option.number == numbers(proposal)["few"]
    assert ("and starts in 0.0 s. " in said.get("Own jobs", "")) is is_known
