"""Searches of known scores, by the code of a live search: what a policy would have found, and at
what cost.

Nothing here needs torch, a scheduler or a GPU.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median_low
from typing import Literal

import numpy as np
from joblib import Parallel, delayed

from daskmetrics.bandit._learner import Budget, Learner, Pick
from daskmetrics.bandit._state import Policy
from daskmetrics.bandit.costs import useful_workers
from daskmetrics.bandit.model import measured_objectives
from daskmetrics.bandit.policies import policy_named
from daskmetrics.bandit.problem import (
    Floats,
    Observations,
    Outcome,
    Problem,
    Reward,
    task_weights,
)
from daskmetrics.bandit.recommend import Recommendation
from daskmetrics.bandit.tables import FEWER, ScoreTable
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm, Cell

__all__ = [
    "COST_SHARES",
    "CurvePoint",
    "GroundTruth",
    "ReplayPlan",
    "ReplayStep",
    "ReplayTrial",
    "Scenario",
    "ScoreTable",
    "Setting",
    "curve",
    "ground_truth",
    "run_trials",
]


@dataclass(frozen=True)
class TracePoint:
    """A moment of a search: the cost of its decisions, and the arm that it would recommend, with
    its regret.
    """

    cost: float
    arm: Arm
    regret: float
    time: float = 0.0  # since the start, on the simulated workers, in units of cost
    # probability that the arm is within the margin of the best; NaN if not computed ...
    confidence: float = math.nan
    # ... and, computed together with it, the expected regret as a share of the arm's mean score
    expected_loss: float = math.nan


@dataclass(frozen=True)
class SimulatedSearch:
    """Decisions, recommendation and trace of a search; the last point of the trace is the
    recommendation.
    """

    picks: tuple[Pick, ...]
    recommendation: Recommendation
    trace: tuple[TracePoint, ...]
    # share of the workers' time, until the last outcome, that they spent working
    utilisation: float = 1.0


def simulate(
    problem: Problem,
    table: Mapping[Cell, float],
    policy: Policy,
    *,
    budget: float | Budget,
    seed: int,
    every: int = 0,
    confidence_at: Sequence[float] = (),
    workers: int = 1,
    window: int | None = None,
    confidence: float | None = None,
    within: float = 0.01,
) -> SimulatedSearch:
    """Run a complete search; each outcome arrives when the cell's cost, taken as a duration, has
    passed.

    A cell that is not in the table of raw scores fails. The recommendation is traced after
    ``every`` so many outcomes (0 traces the end only), with its confidence at the first point at or
    after each cost of ``confidence_at``. Each worker scores one cell at a time and holds the
    checkpoint that it used last; the window is by default the number of workers. The other
    parameters are those of `Learner`.

    >>> from daskmetrics.core.names import Suite
    >>> from daskmetrics.bandit import arm_features, policy_named
    >>> suite = Suite("m", ("step0", "step1", "step2"), (0, 1), 1)
    >>> cost = np.ones((6, 1))
    >>> problem = Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost)
    >>> table = {Cell(arm, "t"): 0.1 * i for i, arm in enumerate(problem.arms)}
    >>> sweep = policy_named("sweep")
    >>> end = simulate(problem, table, sweep, budget=1.0, seed=0, workers=3).trace[-1]
    >>> str(end.arm), end.regret, end.cost, end.time, end.confidence > 0.99
    ('m@step2/1', 0.0, 9.0, 4.0, True)
    """
    truth = true_objectives(problem, table)
    learner = Learner(
        problem,
        policy,
        budget=budget,
        window=window or workers,
        seed=seed,
        confidence=confidence,
        within=within,
    )
    pool = _SimulatedWorkers(problem, workers)
    trace: list[TracePoint] = []
    marks = sorted(confidence_at, reverse=True)

    def record(arm: int, result: Recommendation | None) -> None:
        point = TracePoint(
            learner.spent, problem.arms[arm], float(np.nanmax(truth) - truth[arm]), pool.now
        )
        if result:
            point = replace(point, confidence=result.probability_within)
            if result.score_unit:  # no loss is a share of a mean score of 0
                share = result.expected_loss / result.score_unit
                point = replace(point, expected_loss=share)
        trace.append(point)

    outcomes = 0
    while True:
        for pick in learner.ask(len(pool.idle)):
            pool.start(pick, problem.locate(pick.cell))
        if not pool.running:
            break
        pick = pool.finish()
        learner.tell(pick.index, Outcome(table.get(pick.cell)))
        outcomes += 1
        if every and outcomes % every == 0:
            is_marked = False
            while marks and marks[-1] <= learner.spent:
                marks.pop()
                is_marked = True
            state = learner.state
            stated = None
            if is_marked and len(state.observations):
                stated = learner.recommendation()
            record(state.recommended, stated)
    result = learner.recommendation()
    record(problem.arm_index[result.arm], result)
    return SimulatedSearch(learner.picks, result, tuple(trace), pool.utilisation)


class _SimulatedWorkers:
    """Workers on a clock: a cell takes as long as it costs, and a worker loads a checkpoint that it
    does not hold.
    """

    def __init__(self, problem: Problem, workers: int) -> None:
        self._problem = problem
        self._workers = workers
        self._held: list[int | None] = [None] * workers
        self.idle = list(range(workers))
        self.running: list[tuple[float, int, int, Pick]] = []  # end, number, worker
        self._encoded: dict[tuple[int, int], float] = {}  # time at which the embeddings exist
        self._worked = 0.0
        self.now = 0.0

    @property
    def utilisation(self) -> float:
        if not self.now:
            return 1.0
        return self._worked / (self._workers * self.now)

    def start(self, pick: Pick, cell: tuple[int, int]) -> None:
        """Start on an idle worker: one that holds the checkpoint, else one that holds none, else
        the first.
        """
        problem = self._problem
        arm, task = cell
        checkpoint = int(problem.checkpoint_index[arm])
        worker = min(
            self.idle, key=lambda w: (self._held[w] != checkpoint, self._held[w] is not None, w)
        )
        self.idle.remove(worker)
        encoding = float(problem.encode_cost[arm, task])
        scoring = float(problem.score_cost[arm, task])
        encoded = self._encoded.get((checkpoint, task))
        if encoded is None:
            load = 0.0
            if self._held[worker] != checkpoint:
                load = float(problem.load_costs[arm])
            self._held[worker] = checkpoint
            encoded = self.now + load + encoding
            self._worked += load + encoding
            if encoding:
                self._encoded[checkpoint, task] = encoded
        self._worked += scoring
        end = max(self.now, encoded) + scoring
        heapq.heappush(self.running, (end, pick.index, worker, pick))

    def finish(self) -> Pick:
        """Move the clock to the end of the next cell and return its decision."""
        self.now, _, worker, pick = heapq.heappop(self.running)
        self.idle.append(worker)
        return pick


def true_objectives(problem: Problem, table: Mapping[Cell, float]) -> Floats:
    """True objective of every arm, in units of the reward: weighted mean over the tasks with a
    known score (A,).
    """
    indices = product(range(len(problem.arms)), range(len(problem.tasks)))
    rows = [
        (arm, task, table[cell], 0.0)
        for arm, task in indices
        if (cell := problem.cell(arm, task)) in table
    ]
    return measured_objectives(problem, Observations.of(rows))


Costs = Literal["published", "shared", "unit"]

#: Share of a cell's seconds that counts as encoding if the table does not contain it: one forward
#: pass encodes all layers of a checkpoint, and scoring a layer is cheap in comparison.
ENCODED = 0.9


@dataclass(frozen=True)
class Scenario:
    """How a table becomes a search.

    Attributes
    ----------
    costs : {"published", "shared", "unit"} or None
        ``published``: every cell takes the table's seconds. ``shared``: their encoding part is paid
        once per checkpoint and task. ``unit``: every cell costs one. By default the most precise
        that the table allows.
    overhead : float
        Seconds added to every cell.
    load : float
        Seconds to load a checkpoint that no worker holds.
    subset : int or None
        Number of tasks that each seed draws.
    reward : str
        As in `daskmetrics.bandit.Problem`.
    objective : str
        ``all``, a kind of task or a task.
    metrics : bool
        Whether the table's metrics are features of the arms.
    """

    costs: Costs | None = None
    overhead: float = 0.0
    load: float = 0.0
    subset: int | None = None
    reward: Reward = "mean"
    objective: str = "all"
    metrics: bool = False

    def draw_tasks(self, table: ScoreTable, seed: int) -> ScoreTable:
        """The table with the tasks that a seed draws.

        Raises
        ------
        ConfigError
            If the table has fewer tasks than requested.
        """
        if self.subset is None:
            return table
        if not 0 < self.subset <= len(table.tasks):
            raise ConfigError(
                f"Cannot draw {self.subset} tasks: the table has {len(table.tasks)}. Choose a "
                "smaller subset."
            )
        order = np.random.default_rng(seed).permutation(sorted(table.tasks))
        return table.of_tasks(order[: self.subset].tolist())

    def build_problem(self, table: ScoreTable) -> Problem:
        """The search problem of a table.

        Raises
        ------
        ConfigError
            If the objective is unknown, or the table does not contain the requested costs.
        """
        encode, score = self._seconds(table)
        return Problem(
            arms=table.arms,
            tasks=table.tasks,
            features=table.features(self.metrics),
            encode_cost=encode,
            score_cost=score,
            reward=self.reward,
            weights=tuple(task_weights(table.kinds, self.objective)),
            load_cost=np.full(len(table.arms), self.load),
            kinds=tuple(table.kinds.values()),
        )

    def costs_for(self, table: ScoreTable) -> Costs:
        """The requested costs, or by default the most precise that the table allows."""
        if self.costs:
            return self.costs
        if not np.isfinite(table.seconds).any():
            return "unit"
        if np.nansum(table.encode) > 0:
            return "shared"
        return "published"

    def _seconds(self, table: ScoreTable) -> tuple[Floats, Floats]:
        """Seconds to encode and to score, each (A, T)."""
        costs = self.costs_for(table)
        if costs == "unit":
            return np.zeros_like(table.scores), np.ones_like(table.scores) + self.overhead
        if not np.isfinite(table.seconds).any():
            raise ConfigError(
                f"Costs '{costs}' need seconds, which the table does not have. Use costs 'unit'."
            )
        seconds = _filled(table.seconds)
        if costs == "published":
            return np.zeros_like(seconds), seconds + self.overhead
        encode = _encoding(table, seconds)
        return encode, np.maximum(seconds - encode, 0.0) + self.overhead


def _filled(seconds: Floats) -> Floats:
    """The seconds, with missing ones replaced by the mean of their task."""
    is_given = np.isfinite(seconds)
    count = is_given.sum(axis=0)
    total = np.where(is_given, seconds, 0.0).sum(axis=0)
    of_task = np.where(count > 0, total / np.maximum(count, 1), seconds[is_given].mean())
    return np.where(is_given, seconds, of_task)


def _encoding(table: ScoreTable, seconds: Floats) -> Floats:
    """Seconds of encoding, equal for all layers of a checkpoint (A, T)."""
    encode = ENCODED * seconds
    if np.nansum(table.encode) > 0:
        encode = _filled(np.where(table.encode > 0, table.encode, np.nan))
    _, checkpoint = np.unique([str(arm.checkpoint) for arm in table.arms], return_inverse=True)
    shortest = np.full((checkpoint.max() + 1, encode.shape[1]), np.inf)
    np.minimum.at(shortest, checkpoint, encode)
    return np.asarray(shortest[checkpoint])


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The best arm of a table, and by how much the others are worse.

    Attributes
    ----------
    best : int
        The arm with the greatest objective among those with a score on every task of the objective.
    loss : ndarray (A,)
        1 - mean raw score / mean raw score of the best arm, or the difference if that is 0;
        infinite for an arm with missing scores.
    """

    best: int
    loss: Floats


def ground_truth(table: ScoreTable, problem: Problem) -> GroundTruth:
    """Compare every arm of a table with the best one.

    Raises
    ------
    DataError
        If no arm has a score on every task of the objective.
    """
    needed = problem.in_objective
    complete = table.is_complete(np.array(table.tasks)[needed])
    if not complete.any():
        raise DataError(
            f"No arm has a score on each of the {needed.sum()} tasks ({table.known} of "
            f"{table.scores.size} cells are known), so the best arm is unknown. {FEWER}"
        )
    raw = np.where(
        complete, np.where(needed, table.scores, 0.0) @ problem.objective_weights, np.nan
    )
    value = np.where(complete, true_objectives(problem, table.cells()), -np.inf)
    best = int(np.argmax(value))
    gap = raw[best] - raw
    if raw[best]:
        gap = gap / abs(raw[best])
    return GroundTruth(best, np.where(complete, gap, np.inf))


#: Shares of the exhaustive cost at which the confidence of a search is computed.
CONFIDENCE_AT = tuple(1e-4 * 2.0 ** (i / 2) for i in range(26))
#: an arm is found if its mean raw score is at most this share below that of the best arm
WITHIN = 0.01


@dataclass(frozen=True)
class Setting:
    """What differs between the trials that are compared: the policy and the number of workers."""

    policy: str
    workers: int = 1

    def __str__(self) -> str:
        if self.workers > 1:
            return f"{self.policy}, {self.workers} workers"
        return self.policy


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
        Posterior probability that the recommended arm is within `WITHIN` of the best; NaN if it was
        not computed.
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
    """One search of a known table; ``utilisation`` is the share of the workers' time in which they
    worked.
    """

    setting: Setting
    seed: int
    path: tuple[ReplayStep, ...]
    cells: int
    utilisation: float

    def after(self, share: float) -> ReplayStep | None:
        """The last step that cost at most a share of the exhaustive cost."""
        return next(
            (step for step in reversed(self.path) if step.share <= share * (1 + 1e-9)), None
        )


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
    # an unknown name fails here, and not in another process
    policies = {setting.policy: policy_named(setting.policy) for setting in settings}
    trials = (
        delayed(run_trial)(plan, setting, seed, policies[setting.policy])
        for setting, seed in product(settings, seeds)
    )
    # its processes do not import the main module, whose policies are sent by value
    yield from Parallel(jobs, return_as="generator")(trials)


def run_trial(plan: ReplayPlan, setting: Setting, seed: int, policy: Policy) -> ReplayTrial:
    """One search."""
    table = plan.scenario.draw_tasks(plan.table, seed)
    problem = plan.scenario.build_problem(table)
    truth = ground_truth(table, problem)
    exhaustive = problem.exhaustive_cost
    result = simulate(
        problem,
        table.cells(),
        policy,
        budget=plan.budget,
        seed=seed,
        workers=setting.workers,
        window=int(min(setting.workers, useful_workers(setting.policy))),  # as a live search
        every=plan.every,
        confidence_at=[share * exhaustive for share in plan.confidence_at],
        within=WITHIN,
    )
    path = tuple(
        ReplayStep(
            share=point.cost / exhaustive,
            seconds=point.time,
            loss=float(truth.loss[problem.arm_index[point.arm]]),
            confidence=point.confidence,
            expected_loss=point.expected_loss,
        )
        for point in result.trace
    )
    return ReplayTrial(setting, seed, path, len(result.picks), result.utilisation)


#: Shares of the exhaustive cost at which a curve is computed.
COST_SHARES = (0.001, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True)
class CurvePoint:
    """What searches have reached after a share of the exhaustive cost."""

    share: float
    found: int  # searches whose arm is within `WITHIN` of the best
    searches: int
    loss: float  # median share by which the recommended arm is worse; infinite before the first


def curve(trials: Sequence[ReplayTrial], shares: Sequence[float]) -> list[CurvePoint]:
    """How many trials have found the best arm, and their median loss, after each share of the
    cost.
    """
    points = []
    for share in shares:
        steps = [trial.after(share) for trial in trials]
        losses = [step.loss if step else math.inf for step in steps]
        near_best = sum(loss <= WITHIN for loss in losses)
        points.append(CurvePoint(share, near_best, len(losses), median_low(losses)))
    return points
