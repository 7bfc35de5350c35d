"""Offers against a workload: when each would be done and at what cost, and which of them deserve a look."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.core._text import duration, listed
from daskmetrics.planning._offer import Offer, walltime_of
from daskmetrics.planning._workload import Workload

MARGIN = 1.2
"""What is asked for above the upper bound of the run time, so that no job ends just before its work."""

QUARTER = 15 * 60


@dataclass(frozen=True)
class Option:
    """An offer with what it comes to for one workload.

    Attributes
    ----------
    number : int
        By which it is chosen.
    offer : Offer
    run : Estimate
        Seconds from the start of the jobs to the last result.
    total : Interval
        Seconds from now, waiting included.
    worker_hours : Interval
        GPU-hours where workers are GPUs.
    efficiency : float
        Share of the workers' time that is work, against one worker of the kind.
    problems : tuple of str
        Why it cannot or may not do.
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
        price = self.offer.price
        return None if price is None else self.worker_hours * price

    @property
    def possible(self) -> bool:
        return not self.problems

    @property
    def walltime(self) -> str:
        """To ask of Slurm: a margin above the upper bound, in quarters of an hour, at most what the offer allows."""
        wanted = math.ceil(MARGIN * self.run.interval.high / QUARTER) * QUARTER
        return walltime_of(min(wanted, self.offer.limit or wanted))

    @property
    def jobs(self) -> int:
        """How many walltimes the run takes if it goes on where a job was ended."""
        limit = self.offer.limit
        return math.ceil(self.run.interval.high / limit) if limit else 1


@dataclass(frozen=True)
class Limits:
    """What the user can accept; None is anything."""

    deadline: float | None = None
    worker_hours: float | None = None
    cost: float | None = None


def options(offers: Sequence[tuple[Offer, Workload]], limits: Limits | None = None) -> tuple[Option, ...]:
    """Every offer with its times, costs and problems, in their order.

    Parameters
    ----------
    offers : sequence of (Offer, Workload)
        Each with what is to be done, in seconds of the offer's device or of the nearest one that was measured.
    limits : Limits, optional

    Examples
    --------
    >>> from daskmetrics.planning._workload import Phase
    >>> from daskmetrics.planning._offer import NO_WAIT
    >>> unit = Estimate(Interval.exactly(60.0), "measured", True)
    >>> work = Workload((Phase("measure", 120, unit),), "l40s", start=Estimate(Interval.exactly(0.0)))
    >>> one, two = options([(Offer("l40s", "l40s", n, n, NO_WAIT), work) for n in (1, 2)])
    >>> one.total.value, two.total.value, two.efficiency
    (7200.0, 3600.0, 1.0)
    """
    return tuple(_option(i, work, offer, limits or Limits()) for i, (offer, work) in enumerate(offers, start=1))


def _option(number: int, workload: Workload, offer: Offer, limits: Limits) -> Option:
    work = workload.on(offer.workers, offer.device)
    alone = workload.on(1, offer.device).value
    run = Estimate(work.interval + workload.start.interval, work.source, work.measured, work.at)
    total = run.interval + offer.wait.interval
    hours = run.interval * (offer.workers / 3600)
    # against the work alone: starting costs as well
    efficiency = min(1.0, alone / (offer.workers * run.value)) if run.value else 1.0
    problems = tuple(_problems(workload, offer, total, hours, limits))
    return Option(number, offer, run, total, hours, efficiency, problems)


def _problems(workload: Workload, offer: Offer, total: Interval, hours: Interval, limits: Limits) -> list[str]:
    cost = None if offer.price is None else hours.value * offer.price
    found = [offer.problem or ""]
    if offer.vram_gib is not None and workload.vram_gib > offer.vram_gib:
        found.append(f"needs {workload.vram_gib:.0f} GiB of GPU memory, has {offer.vram_gib:.0f}")
    if offer.host_gib is not None and workload.host_gib > offer.host_gib:
        found.append(f"needs {workload.host_gib:.0f} GiB of host memory per worker, has {offer.host_gib:.0f}")
    if limits.deadline is not None and total.value > limits.deadline:
        found.append(f"later than {duration(limits.deadline)}")
    if limits.worker_hours is not None and hours.value > limits.worker_hours:
        found.append(f"over {limits.worker_hours:,.0f} GPU-hours")
    if limits.cost is not None and cost is not None and cost > limits.cost:
        found.append(f"dearer than {limits.cost:,.0f}")
    return [problem for problem in found if problem]


def expense(option: Option) -> float:
    """What is compared as cost: money where it is known, worker-hours where not."""
    return option.worker_hours.value if option.cost is None else option.cost.value


def front(all_options: Sequence[Option]) -> tuple[Option, ...]:
    """The possible options that no other one beats in both time and cost (Pareto), soonest first."""
    prices = _comparable(all_options)
    kept = [
        a
        for a in all_options
        if a.possible
        and not any(
            b.possible
            and b.total.value <= a.total.value
            and prices(b) <= prices(a)
            and (b.total.value, prices(b)) != (a.total.value, prices(a))
            for b in all_options
        )
    ]
    return tuple(sorted(kept, key=lambda option: option.total.value))


def _comparable(all_options: Sequence[Option]) -> Callable[[Option], float]:
    """Money only if every option has a price: hours and money cannot be compared."""
    if all(option.cost is not None for option in all_options):
        return expense
    return lambda option: option.worker_hours.value


@dataclass(frozen=True)
class Suggestion:
    """An option that is best at something, and why."""

    what: str
    option: Option
    reason: str


def suggestions(all_options: Sequence[Option]) -> tuple[Suggestion, ...]:
    """The fastest, the cheapest and the balanced option; where intervals overlap the reason says so.

    Balanced is the one with the smallest product of time and cost: another one may be faster only by a larger factor in
    cost, or cheaper only by a larger factor in time.
    """
    possible = [option for option in all_options if option.possible]
    if not possible:
        return ()
    price = _comparable(all_options)
    fastest = min(possible, key=lambda o: (o.total.value, price(o)))
    cheapest = min(possible, key=lambda o: (price(o), o.total.value))
    balanced = min(possible, key=lambda o: (price(o) * o.total.value, o.total.value))
    return (
        Suggestion("fastest", fastest, _fastest(fastest, possible)),
        Suggestion("cheapest", cheapest, _cheapest(cheapest, possible, all_options)),
        Suggestion("balanced", balanced, "smallest product of time and cost"),
    )


def _fastest(first: Option, possible: Sequence[Option]) -> str:
    level = [o for o in possible if o is not first and o.total.overlaps(first.total)]
    return f"done in {duration(first.total.value)}, waiting included{_level(level)}"


def _cheapest(first: Option, possible: Sequence[Option], all_options: Sequence[Option]) -> str:
    if all(each.cost is not None for each in all_options):
        level = [o for o in possible if o is not first and _money(o).overlaps(_money(first))]
        return f"costs {expense(first):,.2f}{_level(level)}"
    level = [o for o in possible if o is not first and o.worker_hours.overlaps(first.worker_hours)]
    return f"{first.worker_hours.value:,.2f} worker-hours (prices are not known of all){_level(level)}"


def _money(option: Option) -> Interval:
    return option.cost or Interval.exactly(0.0)


def _level(others: Sequence[Option]) -> str:
    """Which intervals overlap, so that the order of the values says nothing for sure."""
    numbers = [str(option.number) for option in others]
    return f"; not to be told from option {listed(numbers)}, since intervals overlap" if numbers else ""


def break_even(now: Option, later: Option) -> Interval:
    """Seconds of waiting for ``later`` at which it finishes together with ``now``; below zero it is not worth any.

    Examples
    --------
    >>> from daskmetrics.planning._offer import NO_WAIT
    >>> def option(n, hours):
    ...     run = Interval.exactly(3600.0 * hours)
    ...     return Option(n, Offer("p", "l40s", 1, 1, NO_WAIT), Estimate(run), run, run, 1.0)
    >>> break_even(option(1, 10.0), option(2, 3.0)).value / 3600
    7.0
    """
    one, other = now.total, later.run.interval
    return Interval(one.low - other.high, one.value - other.value, one.high - other.low)


def available_now(all_options: Sequence[Option]) -> Option | None:
    """The possible option that starts at once and ends first; None if all have to wait."""
    now = [option for option in all_options if option.possible and option.offer.wait.interval.high == 0]
    return min(now, key=lambda option: option.total.value, default=None)
