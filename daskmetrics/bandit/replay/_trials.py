"""Searches of a known table, one per seed, on several processes: where each stood at every cost."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from daskmetrics.bandit import policy_named
from daskmetrics.bandit._simulate import replay
from daskmetrics.bandit.replay._scenario import Terms, truth
from daskmetrics.bandit.replay._tables import Table

LOOKS = tuple(1e-4 * 2.0 ** (i / 2) for i in range(26))  #: shares of the cost at which a search is asked how sure it is
WITHIN = 0.01  #: an arm whose mean raw score is this share below the best one's counts as found


@dataclass(frozen=True)
class Setting:
    """What differs between the trials that are compared: the policy, the workers, and whether metrics are features."""

    policy: str
    workers: int = 1
    metrics: bool = True

    def __str__(self) -> str:
        words = [
            self.policy,
            f"{self.workers} workers" if self.workers > 1 else "",
            "" if self.metrics else "no metrics",
        ]
        return ", ".join(filter(None, words))


@dataclass(frozen=True)
class Step:
    """Where a search stood.

    Attributes
    ----------
    share : float
        Part of the exhaustive cost that was spent.
    seconds : float
        On the simulated clock, in units of the costs.
    loss : float
        By which share of the best arm's mean raw score that of the recommended one is less.
    said : float
        Probability, under the search's own posterior, that the recommended arm is within `WITHIN` of the best.
    """

    share: float
    seconds: float
    loss: float
    said: float


@dataclass(frozen=True)
class Trial:
    """One search of a known table.

    ``busy`` is the share of the workers' time that was not idle, ``deciding`` that until the last decision.
    """

    setting: Setting
    seed: int
    path: tuple[Step, ...]
    cells: int
    busy: float
    deciding: float = 1.0

    def after(self, share: float) -> Step | None:
        """The last step that cost no more than a share of the exhaustive cost."""
        return next((step for step in reversed(self.path) if step.share <= share * (1 + 1e-9)), None)

    def first(self, good: Callable[[Step], bool]) -> Step | None:
        """The first step that is good."""
        return next((step for step in self.path if good(step)), None)

    def lasting(self, good: Callable[[Step], bool]) -> Step | None:
        """The first step from which on all are good."""
        found = None
        for step in self.path:
            found = (found or step) if good(step) else None
        return found


@dataclass(frozen=True, eq=False)
class Plan:
    """What all trials share: the table, the terms, the budget as a share of the exhaustive cost.

    A search is looked at after ``every`` so many outcomes, and asked how sure it is at some shares of the cost.
    """

    table: Table
    terms: Terms
    budget: float
    every: int = 1
    looks: tuple[float, ...] = LOOKS


def conduct(plan: Plan, settings: Sequence[Setting], seeds: Sequence[int], jobs: int = 1) -> Iterator[Trial]:
    """Every setting with every seed, in this order.

    Parameters
    ----------
    plan : Plan
    settings : sequence of Setting
    seeds : sequence of int
        Of the search, and of the tasks that are drawn where the terms ask for a subset.
    jobs : int
        Processes. The trials do not depend on it.

    Raises
    ------
    ConfigError
        For an unknown policy, or terms that do not fit the table.
    DataError
        If no arm of the table is complete.
    """
    for setting in settings:
        policy_named(setting.policy)  # a mistake ends here, and not in another process
    work = [(setting, seed) for setting in settings for seed in seeds]
    if jobs == 1:
        yield from (conduct_one(plan, *each) for each in work)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_hold, initargs=(plan,)) as pool:
        yield from pool.map(_in_process, *zip(*work, strict=True))


def conduct_one(plan: Plan, setting: Setting, seed: int) -> Trial:
    """One search."""
    table = plan.terms.of_seed(plan.table, seed)
    problem = plan.terms.pose(table, setting.metrics)
    judged = truth(table, problem)
    whole = problem.exhaustive_cost
    found = replay(
        problem,
        table.cells(),
        policy_named(setting.policy),
        budget=plan.budget,
        seed=seed,
        workers=setting.workers,
        every=plan.every,
        asked_at=[share * whole for share in plan.looks],
        within=WITHIN,
    )
    path = tuple(
        Step(p.cost / whole, p.time, float(judged.loss[problem.arm_index[p.arm]]), p.said) for p in found.trace
    )
    return Trial(setting, seed, path, len(found.picks), found.utilisation, found.deciding)


_held: list[Plan] = []  # of a process of the pool: sent once, not with every trial


def _hold(plan: Plan) -> None:
    _held[:] = [plan]


def _in_process(setting: Setting, seed: int) -> Trial:
    return conduct_one(_held[0], setting, seed)
