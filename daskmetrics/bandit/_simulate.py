"""A campaign over a table of known scores on simulated workers: what a policy would have found, when, at what cost."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._learner import Budget, Campaign, Pick
from daskmetrics.bandit._policy import Policy
from daskmetrics.bandit._problem import Floats, Observations, Outcome, Problem
from daskmetrics.bandit._recommend import Recommendation
from daskmetrics.bandit._rewards import scale
from daskmetrics.core.names import Arm, Cell


@dataclass(frozen=True)
class Point:
    """Where a search stood: cost of its decisions, the arm it would have recommended, its regret, and the time.

    Time is in the unit of cost, since the start, on as many workers as there were. ``said`` is the probability, under
    the search's own posterior, that the arm is within the margin of the best; NaN where it was not asked for.
    """

    cost: float
    arm: Arm
    regret: float
    time: float = 0.0
    said: float = math.nan


@dataclass(frozen=True)
class Replay:
    """What a search did: its decisions, its answer and its regret along the way (the last point is the answer's).

    ``utilisation`` is the share of the workers' time, until the last outcome, in which they worked; ``deciding`` that
    until the last decision, after which a budget leaves nothing to do but wait for the cells that are open.
    """

    picks: tuple[Pick, ...]
    recommendation: Recommendation
    trace: tuple[Point, ...]
    utilisation: float = 1.0
    deciding: float = 1.0


def replay(
    problem: Problem,
    table: Mapping[Cell, float],
    policy: Policy,
    *,
    budget: float | Budget,
    seed: int,
    every: int = 0,
    asked_at: Sequence[float] = (),
    workers: int = 1,
    window: int | None = None,
    free_running: bool = False,
    confidence: float | None = None,
    within: float = 0.01,
) -> Replay:
    """Run a whole campaign; an outcome is told when its cell's cost has passed, taken as a duration.

    Parameters
    ----------
    problem : Problem
    table : mapping of Cell to float
        Known raw scores; a cell that it lacks fails.
    policy : Policy
    budget : float or Budget
        A number is the share of the exhaustive cost.
    seed : int
    every : int
        Trace the recommendation after so many outcomes; 0 at the end only.
    asked_at : sequence of float
        Costs at which the first point traced from there on is also asked how sure the search is.
    workers : int
        Each works on one cell at a time and holds the checkpoint that it used last.
    window : int or None
        Decisions that may be open at once; by default as many as workers.
    free_running, confidence, within
        As in `Campaign`.

    Examples
    --------
    >>> from daskmetrics.core.names import Checkpoint, Suite
    >>> from daskmetrics.bandit import arm_features, policy_named
    >>> suite = Suite("m", ("step0", "step1", "step2"), (0, 1), 1)
    >>> cost = np.ones((6, 1))
    >>> problem = Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost, Checkpoint("m", "step2"), "mean")
    >>> table = {Cell(arm, "t"): 0.1 * i for i, arm in enumerate(problem.arms)}
    >>> replay(problem, table, policy_named("sweep"), budget=1.0, seed=0, workers=3).trace[-1]
    Point(cost=9.0, arm=Arm(model='m', revision='step2', layer=1), regret=0.0, time=5.0, said=1.0)
    """
    truth = objectives(problem, table)
    campaign = Campaign(
        problem,
        policy,
        budget=budget,
        window=window or workers,
        seed=seed,
        confidence=confidence,
        within=within,
        free_running=free_running,
    )
    site = _Site(problem, workers)
    trace: list[Point] = []
    marks = sorted(asked_at, reverse=True)

    def note(arm: int, said: float) -> None:
        regret = float(np.nanmax(truth) - truth[arm])
        trace.append(Point(campaign.spent, problem.arms[arm], regret, site.now, said))

    told = 0
    while True:
        for pick in campaign.ask(site.idle):
            site.start(pick, problem.locate(pick.cell))
        if not site.busy:
            break
        pick = site.finish()
        campaign.tell(pick.index, Outcome(table.get(pick.cell)))
        told += 1
        if every and told % every == 0:
            passed = [marks.pop() for mark in marks[::-1] if mark <= campaign.spent]
            sure = bool(passed) and len(campaign.state.seen) > 0
            note(campaign.state.leader, campaign.recommendation().probability_within if sure else math.nan)
    answer = campaign.recommendation()
    note(problem.arm_index[answer.arm], answer.probability_within)
    return Replay(campaign.picks, answer, tuple(trace), site.utilisation, site.deciding)


class _Site:
    """Workers on a clock: a cell takes as long as it costs, and a checkpoint is loaded where it is not held."""

    def __init__(self, problem: Problem, workers: int) -> None:
        self._problem, self._workers = problem, workers
        self._held: list[int | None] = [None] * workers
        self._free = list(range(workers))
        self._running: list[tuple[float, int, int, Pick]] = []  # end, number, worker
        self._encoded: dict[tuple[int, int], float] = {}  # when the embeddings are there
        self._worked = self._occupied = 0.0
        self.deciding = 1.0  # share of the workers' time that was taken until the last start
        self.now = 0.0

    @property
    def idle(self) -> int:
        return len(self._free)

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def utilisation(self) -> float:
        return self._worked / (self._workers * self.now) if self.now else 1.0

    def start(self, pick: Pick, cell: tuple[int, int]) -> None:
        """On a worker that holds the checkpoint, if one is idle; else on any that holds none, or another."""
        problem, (arm, task) = self._problem, cell
        self.deciding = self._occupied / (self._workers * self.now) if self.now else 1.0
        checkpoint = int(problem.checkpoint_index[arm])
        # of those that must load, take one whose own checkpoint no one will miss soonest: the first
        worker = min(self._free, key=lambda w: (self._held[w] != checkpoint, self._held[w] is not None, w))
        self._free.remove(worker)
        encoding, scoring = float(problem.encode_cost[arm, task]), float(problem.score_cost[arm, task])
        there = self._encoded.get((checkpoint, task))
        if there is None:
            load = 0.0 if self._held[worker] == checkpoint else float(problem.loads[arm])
            self._held[worker] = checkpoint
            there = self.now + load + encoding
            self._worked += load + encoding
            if encoding:
                self._encoded[checkpoint, task] = there
        self._worked += scoring
        end = max(self.now, there) + scoring
        heapq.heappush(self._running, (end, pick.index, worker, pick))

    def finish(self) -> Pick:
        """The next cell to be done."""
        busy, before = len(self._running), self.now
        self.now, _, worker, pick = heapq.heappop(self._running)
        self._occupied += busy * (self.now - before)
        self._free.append(worker)
        return pick


def objectives(problem: Problem, table: Mapping[Cell, float]) -> Floats:
    """True objective of every arm in units of the reward: weighted mean over the tasks that the table has (A,)."""
    rows = [
        (arm, task, table[cell], 0.0)
        for arm in range(len(problem.arms))
        for task in range(len(problem.tasks))
        if (cell := problem.cell(arm, task)) in table
    ]
    known = Observations.of(rows)
    values = scale(problem, known).values(known)
    share = problem.shares[known.task]
    weight = np.bincount(known.arm, weights=share, minlength=len(problem.arms))
    total = np.bincount(known.arm, weights=values * share, minlength=len(problem.arms))
    return np.where(weight > 0, total / np.maximum(weight, 1e-300), np.nan)
