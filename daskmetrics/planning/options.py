"""Offers of workers compared: wait, time, cost, the one to choose.

Pure functions of numbers. A wait whose error is not known has no upper bound, and one of which
nothing is known is infinite: neither is better than a known start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from daskmetrics.cluster.slurm.partitions import WaitingJob
from daskmetrics.core.text import duration, walltime_text
from daskmetrics.planning.work import Bounds, Estimate, Pace, Work, difference, exactly

PURPOSES = ("fastest", "cheapest")
BALANCED = "balanced"  # the purpose if none is given
# between the upper bound of the run time and the requested walltime, so that no job is cut off
MARGIN = 1.2
QUARTER = 15 * 60
WORTH = 0.1  # of the time: an option that saves less is not worth a sentence
UNKNOWN_WAIT = Estimate(np.array([0.0, math.inf, math.inf]), "the queue gives no estimate")
NO_WAIT = Estimate(exactly(0.0), "free now")


@dataclass(frozen=True)
class TrackRecord:
    """How some earlier jobs waited and ended."""

    well: int
    ended: int
    what: str  # were counted
    lost: Mapping[str, int] = field(default_factory=dict, hash=False)  # by Slurm's state
    waited: tuple[float, float] = (0.0, math.inf)  # least and most seconds, as far as known

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
    place: WaitingJob | None = None  # the first own job in the queue that asks for at least as much


@dataclass(frozen=True, eq=False)
class Option:
    """An offer for some work, with its times and costs."""

    number: int  # from 1; `plan --submit` takes it
    offer: Offer
    wait: Bounds  # seconds in the queue
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
    def starts_now(self) -> bool:
        return not self.wait.any()

    def end_in_place(self, now: float) -> float:
        """Seconds from now to the last result in the place of an own job.

        Infinite where there is no such job, or the wait without it is not known.
        """
        place = self.offer.place
        if place is None or math.isinf(self.wait[1]):
            return math.inf
        wait = max(0.0, place.start - now)
        return float(self.total[1]) - self.offer.wait.expected + wait

    @property
    def is_start_known(self) -> bool:
        """Whether it is known when it starts at the latest."""
        return math.isfinite(self.wait[2])

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
    wait = jobs * offer.wait.seconds
    total = wait + run
    hours = run * offer.workers / 3600
    cost = None
    if offer.price is not None:
        cost = hours * offer.price
    problems = problems_of(offer, work)
    if deadline is not None and total[1] > deadline:
        within = f"the deadline is in {duration(deadline)}"
        problems.append(f"is expected to end in {duration(total[1])}, {within}")
    return Option(
        number,
        offer,
        wait,
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
    if offer.problem:
        return [offer.problem]
    problems = []
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
RUN_TIME: Measure = attrgetter("run.seconds")


def spent_in(options: Sequence[Option]) -> Measure:
    """What options cost: money if every price is known, else worker hours."""
    if any(option.cost is None for option in options):
        return attrgetter("hours")
    return attrgetter("cost")


def is_within_error(option: Option, other: Option, measure: Measure) -> bool:
    """Whether either of two options may have the smaller number.

    Times on one device follow from the same measurement, so that both err by the same factor. Waits
    err by themselves, and count where run times are compared.
    """
    errs_alike = option.offer.device == other.offer.device
    low, high = difference(measure(option), measure(other), errs_alike)
    if measure is RUN_TIME:
        if option.is_start_known is not other.is_start_known:
            return False
        waits = option.wait, other.wait
        if not option.is_start_known:  # an error that is not known does not count
            waits = exactly(option.wait[1]), exactly(other.wait[1])
        low, high = np.add((low, high), difference(*waits))
    return low < 0 < high or low == high == 0


@dataclass(frozen=True, eq=False)
class BestOption:
    """The best option, and those within the error of it."""

    purpose: str  # one of `PURPOSES`, or `BALANCED`
    best: Option
    ties: Sequence[Option]
    option: Option  # of these: the cheapest, or the fastest if costs were compared
    is_close: bool  # whether it is the best one, since no other is better in that for sure
    # ends before it, if it starts as Slurm expects, whatever it costs and risks
    aggressive: Option | None


def choose(options: Sequence[Option], purpose: str) -> BestOption | None:
    """The best option for a purpose; None if none is possible.

    A balanced option has the smallest product of time and cost: a faster one is then more expensive
    by a larger factor, and a cheaper one slower by a larger factor.
    """
    possible = [option for option in options if option.possible]
    if not possible:
        return None
    spent = spent_in(options)
    measure, other_measure, tie_break = RUN_TIME, spent, "cheapest"
    if purpose == "cheapest":
        measure, other_measure, tie_break = spent, RUN_TIME, "fastest"

    def rank(option: Option, aim: str) -> tuple[float, ...]:
        # a start that is not known is never better than a known one
        unknown = not option.is_start_known
        total = float(option.total[1])
        cost = float(spent(option)[1])
        if aim == "cheapest":
            return cost, unknown, total
        if aim == "fastest":
            return unknown, total, cost
        return unknown, total * cost, cost

    best = min(possible, key=lambda option: rank(option, purpose))
    others = [option for option in possible if option is not best]
    ties = [option for option in others if is_within_error(option, best, measure)]
    option = min([best, *ties], key=lambda option: rank(option, tie_break))
    is_close = option is not best and is_within_error(option, best, other_measure)
    if is_close:
        option = best
    at_most = (1 - WORTH) * option.total[1]
    sooner = [other for other in others if other not in ties and other.total[1] < at_most]
    aggressive = min(sooner, key=lambda option: option.total[1], default=None)
    return BestOption(purpose, best, ties, option, is_close, aggressive)


def doublings(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... and ``most``.

    >>> doublings(10)
    (1, 2, 4, 8, 10)
    """
    powers = [2**i for i in range(most.bit_length())]
    return tuple(dict.fromkeys([*powers, most]))
