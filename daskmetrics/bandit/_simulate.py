"""A search of known scores on simulated workers: what a policy finds, when, and at what cost."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._learner import Budget, Learner, Pick
from daskmetrics.bandit._policy import Policy
from daskmetrics.bandit._problem import Floats, Observations, Outcome, Problem
from daskmetrics.bandit._recommend import Recommendation
from daskmetrics.bandit._rewards import measured_objectives
from daskmetrics.core.names import Arm, Cell


@dataclass(frozen=True)
class TracePoint:
    """A moment of a search: the cost of its decisions, and the arm that it would recommend, with its regret."""

    cost: float
    arm: Arm
    regret: float
    time: float = 0.0  # since the start, on the simulated workers, in units of cost
    confidence: float = math.nan  # probability that the arm is within the margin of the best; NaN if not computed
    expected_loss: float = math.nan  # expected regret, as a share of the arm's mean score; computed together with it


@dataclass(frozen=True)
class SimulatedSearch:
    """Decisions, recommendation and trace of a search; the last point of the trace is the recommendation."""

    picks: tuple[Pick, ...]
    recommendation: Recommendation
    trace: tuple[TracePoint, ...]
    utilisation: float = 1.0  # share of the workers' time, until the last outcome, that they spent working
    deciding: float = 1.0  # the same until the last decision, after which only open cells are left to finish


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
    free_running: bool = False,
    confidence: float | None = None,
    within: float = 0.01,
    spend: float = 0.0,
) -> SimulatedSearch:
    """Run a complete search; each outcome arrives when the cell's cost, taken as a duration, has passed.

    A cell that is not in the table of raw scores fails. The recommendation is traced after ``every`` so many outcomes
    (0 traces the end only), with its confidence at the first point at or after each cost of ``confidence_at``. Each
    worker scores one cell at a time and holds the checkpoint that it used last; the window is by default the number of
    workers. The other parameters are those of `Learner`.

    >>> from daskmetrics.core.names import Checkpoint, Suite
    >>> from daskmetrics.bandit import arm_features, policy_named
    >>> suite = Suite("m", ("step0", "step1", "step2"), (0, 1), 1)
    >>> cost = np.ones((6, 1))
    >>> problem = Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost, Checkpoint("m", "step2"), "mean")
    >>> table = {Cell(arm, "t"): 0.1 * i for i, arm in enumerate(problem.arms)}
    >>> last = simulate(problem, table, policy_named("sweep"), budget=1.0, seed=0, workers=3).trace[-1]
    >>> str(last.arm), last.regret, last.cost, last.time, last.confidence > 0.99
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
        spend=spend,
        free_running=free_running,
    )
    pool = _SimulatedWorkers(problem, workers)
    trace: list[TracePoint] = []
    marks = sorted(confidence_at, reverse=True)

    def record(arm: int, result: Recommendation | None) -> None:
        regret = float(np.nanmax(truth) - truth[arm])
        sure = (result.probability_within, result.expected_loss / result.score_unit) if result else ()
        trace.append(TracePoint(learner.spent, problem.arms[arm], regret, pool.now, *sure))

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
            passed = [marks.pop() for mark in marks[::-1] if mark <= learner.spent]
            state = learner.state
            known = passed and len(state.observations)
            record(state.recommended, learner.recommendation() if known else None)
    result = learner.recommendation()
    record(problem.arm_index[result.arm], result)
    return SimulatedSearch(learner.picks, result, tuple(trace), pool.utilisation, pool.deciding)


class _SimulatedWorkers:
    """Workers on a clock: a cell takes as long as it costs, and a worker loads a checkpoint that it does not hold."""

    def __init__(self, problem: Problem, workers: int) -> None:
        self._problem, self._workers = problem, workers
        self._held: list[int | None] = [None] * workers
        self.idle = list(range(workers))
        self.running: list[tuple[float, int, int, Pick]] = []  # end, number, worker
        self._encoded: dict[tuple[int, int], float] = {}  # time at which the embeddings exist
        self._worked = self._occupied = 0.0
        self.deciding = 1.0  # share of the workers' time that was used until the last start
        self.now = 0.0

    @property
    def utilisation(self) -> float:
        return self._worked / (self._workers * self.now) if self.now else 1.0

    def start(self, pick: Pick, cell: tuple[int, int]) -> None:
        """Start on an idle worker: one that holds the checkpoint, else one that holds none, else the first."""
        problem, (arm, task) = self._problem, cell
        self.deciding = self._occupied / (self._workers * self.now) if self.now else 1.0
        checkpoint = int(problem.checkpoint_index[arm])
        worker = min(self.idle, key=lambda w: (self._held[w] != checkpoint, self._held[w] is not None, w))
        self.idle.remove(worker)
        encoding, scoring = float(problem.encode_cost[arm, task]), float(problem.score_cost[arm, task])
        encoded = self._encoded.get((checkpoint, task))
        if encoded is None:
            load = 0.0 if self._held[worker] == checkpoint else float(problem.load_costs[arm])
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
        busy, before = len(self.running), self.now
        self.now, _, worker, pick = heapq.heappop(self.running)
        self._occupied += busy * (self.now - before)
        self.idle.append(worker)
        return pick


def true_objectives(problem: Problem, table: Mapping[Cell, float]) -> Floats:
    """True objective of every arm, in units of the reward: weighted mean over the tasks with a known score (A,)."""
    rows = [
        (arm, task, table[cell], 0.0)
        for arm in range(len(problem.arms))
        for task in range(len(problem.tasks))
        if (cell := problem.cell(arm, task)) in table
    ]
    return measured_objectives(problem, Observations.of(rows))
