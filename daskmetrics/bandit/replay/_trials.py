"""Searches of a known table, one per setting and seed, on several processes."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import cloudpickle

from daskmetrics.bandit import policy_named
from daskmetrics.bandit._clock import useful_workers
from daskmetrics.bandit._simulate import simulate
from daskmetrics.bandit.replay._scenario import Scenario, ground_truth
from daskmetrics.bandit.replay._tables import ScoreTable
from daskmetrics.core._main_module import pool_context, restore_state, state_with_main_object

#: Shares of the exhaustive cost at which the confidence of a search is computed.
CONFIDENCE_AT = tuple(1e-4 * 2.0 ** (i / 2) for i in range(26))
WITHIN = 0.01  #: an arm is found if its mean raw score is at most this share below that of the best arm


@dataclass(frozen=True)
class Setting:
    """What differs between the trials that are compared: the policy, the workers, and whether metrics are features."""

    policy: str
    workers: int = 1
    metrics: bool = True

    def __getstate__(self) -> dict[str, Any]:
        return state_with_main_object(self, self.policy)

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore_state(self, state)

    def __str__(self) -> str:
        workers = f", {self.workers} workers" if self.workers > 1 else ""
        return f"{self.policy}{workers}{'' if self.metrics else ', no metrics'}"


@dataclass(frozen=True)
class ReplayStep:
    """A moment of a search.

    Attributes
    ----------
    share : float
        Share of the exhaustive cost that was spent.
    seconds : float
        Time on the simulated clock, in units of the costs.
    loss : float
        By which share the mean raw score of the recommended arm is below that of the best arm.
    confidence : float
        Posterior probability that the recommended arm is within `WITHIN` of the best; NaN if it was not computed.
    expected_loss : float
        Expectation of ``loss`` under the posterior, computed together with the confidence.
    """

    share: float
    seconds: float
    loss: float
    confidence: float
    expected_loss: float = math.nan


@dataclass(frozen=True)
class ReplayTrial:
    """One search of a known table.

    ``utilisation`` is the share of the workers' time in which they worked, ``deciding`` the same until the last
    decision.
    """

    setting: Setting
    seed: int
    path: tuple[ReplayStep, ...]
    cells: int
    utilisation: float
    deciding: float = 1.0

    def after(self, share: float) -> ReplayStep | None:
        """The last step that cost at most a share of the exhaustive cost."""
        return next((step for step in reversed(self.path) if step.share <= share * (1 + 1e-9)), None)

    def first(self, good: Callable[[ReplayStep], bool]) -> ReplayStep | None:
        """The first good step."""
        return next((step for step in self.path if good(step)), None)

    def lasting(self, good: Callable[[ReplayStep], bool]) -> ReplayStep | None:
        """The first step from which on all steps are good."""
        start = None
        for step in self.path:
            start = (start or step) if good(step) else None
        return start


@dataclass(frozen=True, eq=False)
class ReplayPlan:
    """What all trials share.

    Attributes
    ----------
    table : ScoreTable
    scenario : Scenario
    budget : float
        Share of the exhaustive cost.
    every : int
        Number of outcomes between two steps of a trial.
    confidence_at : tuple of float
        Shares of the exhaustive cost at which the confidence is computed.
    """

    table: ScoreTable
    scenario: Scenario
    budget: float
    every: int = 1
    confidence_at: tuple[float, ...] = CONFIDENCE_AT


def run_trials(
    plan: ReplayPlan, settings: Sequence[Setting], seeds: Sequence[int], jobs: int = 1
) -> Iterator[ReplayTrial]:
    """Every setting with every seed, in this order.

    Parameters
    ----------
    plan : ReplayPlan
    settings : sequence of Setting
    seeds : sequence of int
        Seeds of the search, and of the tasks that are drawn if the scenario has a subset.
    jobs : int
        Number of processes. The trials do not depend on it.

    Raises
    ------
    ConfigError
        If a policy is unknown, or the scenario does not fit the table.
    DataError
        If no arm of the table is complete.
    """
    for setting in settings:
        policy_named(setting.policy)  # an unknown name fails here, and not in another process
    work = [(setting, seed) for setting in settings for seed in seeds]
    if jobs == 1:
        yield from (run_trial(plan, *each) for each in work)
        return
    with (
        pool_context() as context,
        ProcessPoolExecutor(jobs, mp_context=context, initializer=_set_plan, initargs=(plan,)) as pool,
    ):
        yield from pool.map(_run_in_process, map(cloudpickle.dumps, work))  # a policy of the main module by value


def run_trial(plan: ReplayPlan, setting: Setting, seed: int) -> ReplayTrial:
    """One search."""
    table = plan.scenario.draw_tasks(plan.table, seed)
    problem = plan.scenario.build_problem(table, setting.metrics)
    truth = ground_truth(table, problem)
    whole = problem.exhaustive_cost
    result = simulate(
        problem,
        table.cells(),
        policy_named(setting.policy),
        budget=plan.budget,
        seed=seed,
        workers=setting.workers,
        window=int(min(setting.workers, useful_workers(setting.policy))),  # as a live search
        every=plan.every,
        confidence_at=[share * whole for share in plan.confidence_at],
        within=WITHIN,
    )
    path = tuple(
        ReplayStep(
            share=point.cost / whole,
            seconds=point.time,
            loss=float(truth.loss[problem.arm_index[point.arm]]),
            confidence=point.confidence,
            expected_loss=point.expected_loss,
        )
        for point in result.trace
    )
    return ReplayTrial(setting, seed, path, len(result.picks), result.utilisation, result.deciding)


_plan: list[ReplayPlan] = []  # of a process of the pool, which receives it once and not with every trial


def _set_plan(plan: ReplayPlan) -> None:
    _plan[:] = [plan]


def _run_in_process(setting_and_seed: bytes) -> ReplayTrial:
    setting, seed = pickle.loads(setting_and_seed)
    return run_trial(_plan[0], setting, seed)
