"""Offers of workers compared for a workload: when each would finish, at what cost, and which to
choose; pure functions of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from daskmetrics.core.costs import Estimate, Interval, undominated
from daskmetrics.core.text import duration, walltime_text
from daskmetrics.planning.workload import Workload

# between the upper bound of the run time and the requested walltime, so that no job is cut off
MARGIN = 1.2
QUARTER = 15 * 60
UNKNOWN_WAIT = Estimate(Interval(0.0, 3600.0, 86_400.0), "assumed: the queue was not asked")
NO_WAIT = Estimate(Interval.exactly(0.0), "free now", measured=True)


@dataclass(frozen=True)
class TrackRecord:
    """How many of some earlier jobs or runs ended well: the evidence for a chance of success."""

    well: int
    ended: int
    what: str  # were counted
    lost: Mapping[str, int] = field(default_factory=dict, hash=False)  # by Slurm's state

    @property
    def chance(self) -> Interval:
        """The share that ends well, with the 90 % interval of a binomial proportion (Jeffreys).

        >>> chance = TrackRecord(9, 10, "jobs").chance
        >>> chance.value, round(chance.low, 2), round(chance.high, 2)
        (0.9, 0.67, 0.98)
        """
        from scipy.stats import beta

        low, high = beta.ppf([0.05, 0.95], self.well + 0.5, self.ended - self.well + 0.5)
        share = self.well / self.ended
        return Interval(min(float(low), share), share, max(float(high), share))

    def __str__(self) -> str:
        low, value, high = (f"{100 * share:.0f} %" for share in self.chance.bounds)
        states = ", ".join(f"{count} {state.lower()}" for state, count in self.lost.items())
        counts = f"{self.well} of {self.ended} {self.what} ended well"
        if states:
            counts += f" ({states})"
        return f"{counts}: {value} ({low} to {high})"


@dataclass(frozen=True)
class Offer:
    """A number of workers of one kind; a worker is a GPU, or a CPU process where there are no GPUs.

    Attributes
    ----------
    profile : str
        Name or file of the cluster profile.
    device : str
        ``cpu``, ``l40s``, ``a100``, ...
    nodes, workers : int
    wait : Estimate
        Seconds until the workers' jobs start.
    free : int or None
        Workers that could start now; None if unknown.
    limit : float or None
        Longest time of a job in seconds.
    vram_gib, host_gib : float or None
        Memory of a worker; None if unknown or unlimited.
    price : float or None
        Of one worker for an hour.
    partition : str or None
    problem : str or None
        Why the workers are not available at all.
    success : TrackRecord or None
        How earlier jobs or runs on the partition ended; None without evidence.
    """

    profile: str
    device: str
    nodes: int
    workers: int
    wait: Estimate = UNKNOWN_WAIT
    free: int | None = None
    limit: float | None = None
    vram_gib: float | None = None
    host_gib: float | None = None
    price: float | None = None
    partition: str | None = None
    problem: str | None = None
    success: TrackRecord | None = None

    @property
    def label(self) -> str:
        """Nodes, workers of each and their device.

        Examples
        --------
        >>> Offer("site.yaml", "l40s", nodes=8, workers=32).label
        '8 x 4 l40s'
        >>> Offer("local", "cpu", nodes=1, workers=2).label
        '2 cpu'
        """
        if self.nodes == 1:
            return f"{self.workers} {self.device}"
        return f"{self.nodes} x {self.workers / self.nodes:g} {self.device}"


@dataclass(frozen=True)
class Option:
    """An offer with its times and costs for one workload.

    Attributes
    ----------
    number : int
        From 1; ``plan --submit`` takes it.
    offer : Offer
    run : Estimate
        Seconds from the start of the jobs to the last result.
    total : Interval
        Seconds from now to the last result, waiting included.
    worker_hours : Interval
        GPU-hours where workers are GPUs.
    efficiency : float
        Share of the workers' time that is work, compared with a single worker.
    problems : tuple of str
        Why the option cannot be used.
    """

    number: int
    offer: Offer
    run: Estimate
    total: Interval
    worker_hours: Interval
    efficiency: float
    problems: tuple[str, ...] = ()

    @property
    def cost(self) -> Interval | None:
        """Money; None without a price."""
        if self.offer.price is None:
            return None
        return self.worker_hours * self.offer.price

    @property
    def possible(self) -> bool:
        """Whether nothing speaks against the option."""
        return not self.problems

    @property
    def free_now(self) -> bool:
        """Whether its jobs would start at once."""
        return self.offer.wait.interval.high == 0

    @property
    def walltime(self) -> str:
        """Time to request from Slurm: the upper bound and a margin in quarters of an hour, within
        the offer's limit.
        """
        seconds = math.ceil(MARGIN * self.run.interval.high / QUARTER) * QUARTER
        limited = min(seconds, self.offer.limit or seconds)
        minutes = math.ceil(limited / 60)  # Slurm counts whole ones
        return walltime_text(60 * max(1, minutes))

    @property
    def jobs(self) -> int:
        """Number of jobs, one after the other, if each resumes where the time limit ended the one
        before.
        """
        if not self.offer.limit:
            return 1
        return math.ceil(self.run.interval.high / self.offer.limit)


@dataclass(frozen=True)
class Limits:
    """The user's limits on an option; None is no limit."""

    deadline: float | None = None
    worker_hours: float | None = None
    cost: float | None = None


def options(
    offers: Sequence[tuple[Offer, Workload]], limits: Limits | None = None
) -> tuple[Option, ...]:
    """Each offer with its times, costs and problems, in the given order.

    Parameters
    ----------
    offers : sequence of (Offer, Workload)
        Each with the workload in seconds of the offer's device, or of the nearest device that was
        measured.
    limits : Limits, optional

    Examples
    --------
    >>> from daskmetrics.planning import Phase
    >>> unit = Estimate(Interval.exactly(60.0), "measured", True)
    >>> work = Workload((Phase("measure", 120, unit),), "l40s", start=Estimate(Interval.exactly(0.0)))
    >>> one, two = options([(Offer("l40s", "l40s", n, n, NO_WAIT), work) for n in (1, 2)])
    >>> one.total.value, two.total.value, two.efficiency
    (7200.0, 3600.0, 1.0)
    """
    return tuple(
        _option(number, work, offer, limits or Limits())
        for number, (offer, work) in enumerate(offers, start=1)
    )


def _option(number: int, workload: Workload, offer: Offer, limits: Limits) -> Option:
    work = workload.on(offer.workers, offer.device)
    alone = workload.on(1, offer.device).value
    run = Estimate(work.interval + workload.start.interval, work.source, work.measured, work.at)
    total = run.interval + offer.wait.interval
    hours = run.interval * (offer.workers / 3600)
    # compared with one worker's work without its start, so that starting workers lowers the
    # efficiency
    efficiency = 1.0
    if run.value:
        efficiency = min(1.0, alone / (offer.workers * run.value))
    cost = None
    if offer.price is not None:
        cost = hours.value * offer.price
    refusals = (
        (offer.problem is not None, offer.problem or ""),
        (
            _exceeds(workload.vram_gib, offer.vram_gib),
            f"needs {workload.vram_gib:.0f} GiB of GPU memory, has {offer.vram_gib or 0:.0f}",
        ),
        (
            _exceeds(workload.host_gib, offer.host_gib),
            f"needs {workload.host_gib:.0f} GiB of host memory per worker, "
            f"has {offer.host_gib or 0:.0f}",
        ),
        (
            _exceeds(total.value, limits.deadline),
            f"takes longer than {duration(limits.deadline or 0.0)}",
        ),
        (
            _exceeds(hours.value, limits.worker_hours),
            f"needs more than {limits.worker_hours or 0:,.0f} GPU-hours",
        ),
        (_exceeds(cost, limits.cost), f"costs more than {limits.cost or 0:,.0f}"),
    )
    problems = tuple(text for applies, text in refusals if applies)
    return Option(number, offer, run, total, hours, efficiency, problems)


def _exceeds(needed: float | None, limit: float | None) -> bool:
    return needed is not None and limit is not None and needed > limit


def comparable_cost(all_options: Sequence[Option]) -> Callable[[Option], Interval]:
    """Money only if the price of every option is known, else worker-hours: the two cannot be
    compared.
    """
    if all(option.cost is not None for option in all_options):
        return lambda option: option.cost or option.worker_hours
    return lambda option: option.worker_hours


def front(all_options: Sequence[Option]) -> tuple[Option, ...]:
    """The possible options that no other option beats in both time and cost (Pareto), fastest
    first.
    """
    cost = comparable_cost(all_options)
    possible = [option for option in all_options if option.possible]
    kept = undominated([(option.total.value, cost(option).value) for option in possible])
    return tuple(sorted(compress(possible, kept), key=lambda option: option.total.value))


@dataclass(frozen=True)
class Suggestion:
    """An option that is best in one respect, and those whose difference from it is within the
    error.
    """

    label: str
    option: Option
    ties: tuple[Option, ...] = ()


def suggestions(all_options: Sequence[Option]) -> tuple[Suggestion, ...]:
    """The fastest, the cheapest and the balanced option.

    Balanced is the option with the smallest product of time and cost: a faster option is then more
    expensive by a larger factor, and a cheaper one slower by a larger factor.
    """
    possible = [option for option in all_options if option.possible]
    if not possible:
        return ()
    cost = comparable_cost(all_options)
    fastest = min(possible, key=lambda o: (o.total.value, cost(o).value))
    cheapest = min(possible, key=lambda o: (cost(o).value, o.total.value))
    balanced = min(possible, key=lambda o: (cost(o).value * o.total.value, o.total.value))
    as_fast = [o for o in possible if o is not fastest and o.total.overlaps(fastest.total)]
    as_cheap = [o for o in possible if o is not cheapest and cost(o).overlaps(cost(cheapest))]
    return (
        Suggestion("fastest", fastest, tuple(as_fast)),
        Suggestion("cheapest", cheapest, tuple(as_cheap)),
        Suggestion("balanced", balanced),
    )


def break_even(now: Option, later: Option) -> Interval:
    """Seconds of waiting with which ``later`` finishes together with ``now``; below zero if it
    always finishes after.

    >>> def option(n, hours):
    ...     run = Interval.exactly(3600.0 * hours)
    ...     return Option(n, Offer("p", "l40s", 1, 1, NO_WAIT), Estimate(run), run, run, 1.0)
    >>> break_even(option(1, 10.0), option(2, 3.0)).value / 3600
    7.0
    """
    total, run = now.total, later.run.interval
    return Interval(total.low - run.high, total.value - run.value, total.high - run.low)


def available_now(all_options: Sequence[Option]) -> Option | None:
    """The possible option that starts at once and finishes first; None if all have to wait."""
    ready = [option for option in all_options if option.possible and option.free_now]
    return min(ready, key=lambda option: option.total.value, default=None)
