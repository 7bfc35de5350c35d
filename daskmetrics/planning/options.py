"""Offers of workers compared: time, cost, the one to choose.

Pure functions of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from daskmetrics.core.text import duration, walltime_text
from daskmetrics.planning.work import Bounds, Estimate, Pace, Work, exactly, overlap

PURPOSES = ("fastest", "cheapest")
BALANCED = "balanced"  # the purpose if none is given
# between the upper bound of the run time and the requested walltime, so that no job is cut off
MARGIN = 1.2
QUARTER = 15 * 60
UNKNOWN_WAIT = Estimate(np.array([0.0, 3600.0, 86_400.0]), "estimated: the queue was not asked")
NO_WAIT = Estimate(exactly(0.0), "free now")


@dataclass(frozen=True)
class TrackRecord:
    """How many of some earlier jobs ended well."""

    well: int
    ended: int
    what: str  # were counted
    lost: Mapping[str, int] = field(default_factory=dict, hash=False)  # by Slurm's state

    @property
    def chance(self) -> Bounds:
        """The share that ends well, with its 90 % interval.

        That of a binomial proportion (Jeffreys).

        >>> TrackRecord(9, 10, "jobs").chance.round(2)
        array([0.67, 0.9 , 0.98])
        """
        from scipy.stats import beta

        badly = self.ended - self.well
        low, high = beta.ppf([0.05, 0.95], self.well + 0.5, badly + 0.5)
        share = self.well / self.ended
        return np.array([min(low, share), share, max(high, share)])

    def __str__(self) -> str:
        low, share, high = (f"{100 * bound:.0f} %" for bound in self.chance)
        states = ", ".join(f"{count} {state.lower()}" for state, count in self.lost.items())
        counts = f"{self.well} of {self.ended} {self.what} ended well"
        if states:
            counts += f" ({states})"
        return f"{counts}: {share} ({low} to {high})"


@dataclass(frozen=True)
class Offer:
    """A number of workers of one kind.

    A worker is a GPU, or a CPU process where there are no GPUs.
    """

    profile: str  # name or file of the cluster profile; empty for that of the configuration
    device: str  # `cpu`, `l40s`, `a100`, ...
    nodes: int
    workers: int
    wait: Estimate = UNKNOWN_WAIT  # until the jobs of the workers start
    free: int | None = None  # workers that could start now; None if unknown
    limit: float | None = None  # longest time of a job in seconds
    vram_gib: float | None = None  # of a worker; None if unknown or unlimited
    host_gib: float | None = None
    price: float | None = None  # of a worker for an hour
    partition: str | None = None
    problem: str | None = None  # why the workers are not available at all
    success: TrackRecord | None = None  # how earlier jobs on the partition ended


@dataclass(frozen=True, eq=False)
class Option:
    """An offer for some work, with its times and costs."""

    number: int  # from 1; `plan --submit` takes it
    offer: Offer
    run: Estimate  # seconds from the start of the jobs to the last result
    total: Bounds  # seconds from now to the last result
    hours: Bounds  # of all workers
    cost: Bounds | None  # money; None without a price
    jobs: int  # one after the other, if each resumes where the time limit ended the one before
    pace: Pace | None
    problems: Sequence[str]  # why it cannot be used

    @property
    def possible(self) -> bool:
        """Whether nothing speaks against the option."""
        return not self.problems

    @property
    def walltime(self) -> str:
        """Time to request from Slurm.

        The upper bound and a margin, in quarters of an hour, within the offer's limit.
        """
        quarters = math.ceil(MARGIN * self.run.seconds[2] / QUARTER)
        seconds = max(60, min(quarters * QUARTER, self.offer.limit or math.inf))
        return walltime_text(60 * math.ceil(seconds / 60))  # Slurm counts whole minutes


def option_of(number: int, offer: Offer, work: Work, deadline: float | None = None) -> Option:
    """What an offer takes; the deadline is in seconds from now.

    >>> from daskmetrics.planning.work import Phase
    >>> minutes = Phase("measure", 120, Estimate(exactly(60.0)), "l40s")
    >>> work = Work(((minutes,),), Estimate(exactly(0.0)))
    >>> option_of(1, Offer("l40s", "l40s", nodes=1, workers=2, wait=NO_WAIT), work).total
    array([3600., 3600., 3600.])
    """
    without_limit = work.on(offer.workers, offer.device)
    jobs = np.maximum(1, np.ceil(without_limit.seconds / (offer.limit or math.inf)))
    # each job starts its workers, and waits
    run = without_limit.seconds + (jobs - 1) * work.start.seconds
    total = run + jobs * offer.wait.seconds
    hours = run * offer.workers / 3600
    cost = None
    if offer.price is not None:
        cost = hours * offer.price
    problems = problems_of(offer, work)
    if deadline is not None and total[1] > deadline:
        problems.append(f"takes longer than {duration(deadline)}")
    return Option(
        number,
        offer,
        replace(without_limit, seconds=run),
        total,
        hours,
        cost,
        int(jobs[2]),
        work.pace(offer.workers, offer.device),
        problems,
    )


def problems_of(offer: Offer, work: Work) -> list[str]:
    """Why an offer cannot be used, whatever time it takes."""
    problems = []
    if offer.problem:
        problems.append(offer.problem)
    # datasheets relate GPUs alone
    is_cpu = offer.device == "cpu"
    if any((phase.device == "cpu") != is_cpu for phase in work.phases):
        problems.append(f"the program was not timed on {offer.device}")
    if work.least > offer.workers:
        problems.append(f"the program has {work.least} ranks, one for each worker")
    if work.vram_gib > (offer.vram_gib or math.inf):
        problems.append(f"needs {work.vram_gib:.0f} GiB of GPU memory, has {offer.vram_gib:.0f}")
    if work.host_gib > (offer.host_gib or math.inf):
        problems.append(
            f"needs {work.host_gib:.0f} GiB of memory per worker, has {offer.host_gib:.0f}"
        )
    # only a training goes on where a job ended
    others = [phase for phase in work.phases if not (phase.steps or phase.together)]
    longest = max((phase.unit_on(offer.device)[1] for phase in others), default=0.0)
    if longest > (offer.limit or math.inf):
        problems.append(
            f"a unit takes {duration(longest)}, a job at most {duration(offer.limit or 0)}"
        )
    return problems


Measure = Callable[[Option], Bounds]  # such as the cost


def _total_time(option: Option) -> Bounds:
    return option.total


def _worker_hours(option: Option) -> Bounds:
    return option.hours


def _money(option: Option) -> Bounds:
    assert option.cost is not None
    return option.cost


def spent_in(options: Sequence[Option]) -> Measure:
    """What options cost: money if every price is known, else worker hours."""
    if any(option.cost is None for option in options):
        return _worker_hours
    return _money


def is_within_error(option: Option, other: Option, measure: Measure) -> bool:
    """Whether either of two options may have the smaller number.

    Times on one device follow from the same measurement, so that both err by the same factor: one
    is smaller if all of its bounds are. Waits err by themselves; they cost nothing.
    """
    bounds = measure(option)
    of_other = measure(other)
    errs_alike = option.offer.device == other.offer.device
    if measure is _total_time:
        waits = option.offer.wait.seconds, other.offer.wait.seconds
        errs_alike &= np.array_equal(*waits)
    if not errs_alike:
        return overlap(bounds, of_other)
    is_less = bounds < of_other
    return np.array_equal(bounds, of_other) or bool(is_less.any() and not is_less.all())


@dataclass(frozen=True, eq=False)
class BestOption:
    """The best option, and those within the error of it."""

    purpose: str  # one of `PURPOSES`, or `BALANCED`
    best: Option
    ties: Sequence[Option]
    option: Option  # of these: the cheapest, or the fastest if costs were compared


def choose(options: Sequence[Option], purpose: str) -> BestOption | None:
    """The best option for a purpose; None if none is possible.

    A balanced option has the smallest product of time and cost: a faster one is then more expensive
    by a larger factor, and a cheaper one slower by a larger factor.
    """
    possible = [option for option in options if option.possible]
    if not possible:
        return None
    measure: Measure = _total_time
    other = spent_in(options)
    if purpose == "cheapest":
        measure, other = other, measure

    def rank(option: Option) -> tuple[float, float]:
        number = measure(option)[1]
        tie_break = other(option)[1]
        if purpose == BALANCED:
            number *= tie_break
        return number, tie_break

    best = min(possible, key=rank)
    others = [option for option in possible if option is not best]
    ties = [option for option in others if is_within_error(option, best, measure)]
    option = min([best, *ties], key=lambda option: other(option)[1])
    return BestOption(purpose, best, ties, option)


def doublings(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... and ``most``.

    >>> doublings(10)
    (1, 2, 4, 8, 10)
    """
    powers = [2**i for i in range(most.bit_length())]
    return tuple(dict.fromkeys([*powers, most]))
