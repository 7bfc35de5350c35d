"""A campaign over a table of known scores with one worker: what a policy would have found, and at what cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from daskmetrics.arms import Arm, Cell
from daskmetrics.bandit.campaign import Campaign, Pick
from daskmetrics.bandit.policy import Policy
from daskmetrics.bandit.problem import Floats, Observations, Outcome, Problem
from daskmetrics.bandit.recommendation import Recommendation
from daskmetrics.bandit.rewards import scale


@dataclass(frozen=True)
class Point:
    """Where a search stood: cost so far, the arm it would have recommended, and that arm's regret."""

    cost: float
    arm: Arm
    regret: float


@dataclass(frozen=True)
class Replay:
    """What a search did: its decisions, its answer and its regret along the way (the last point is the answer's)."""

    picks: tuple[Pick, ...]
    recommendation: Recommendation
    trace: tuple[Point, ...]


def replay(
    problem: Problem,
    table: Mapping[Cell, float],
    policy: Policy,
    *,
    budget: float,
    seed: int,
    every: int = 0,
) -> Replay:
    """Run a whole campaign, each outcome read from the table before the next decision.

    Parameters
    ----------
    problem : Problem
    table : mapping of Cell to float
        Known raw scores; a cell that it lacks fails.
    policy : Policy
    budget : float
        Share of the exhaustive cost.
    seed : int
    every : int
        Trace the recommendation after so many decisions; 0 at the end only, which is much faster.

    Examples
    --------
    >>> from daskmetrics.arms import Checkpoint, Suite
    >>> from daskmetrics.bandit import arm_features, policy_named
    >>> suite = Suite("m", ("step0", "step1", "step2"), (0, 1), 1)
    >>> cost = np.ones((6, 1))
    >>> problem = Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost, Checkpoint("m", "step2"), "mean")
    >>> table = {Cell(arm, "t"): 0.1 * i for i, arm in enumerate(problem.arms)}
    >>> replay(problem, table, policy_named("sweep"), budget=1.0, seed=0).trace[-1]
    Point(cost=9.0, arm=Arm(model='m', revision='step2', layer=1), regret=0.0)
    """
    truth = objectives(problem, table)
    campaign = Campaign(problem, policy, budget=budget, window=1, seed=seed)
    trace: list[Point] = []

    def note(recommendation: Recommendation) -> None:
        regret = float(np.nanmax(truth) - truth[problem.arm_index[recommendation.arm]])
        trace.append(Point(campaign.spent, recommendation.arm, regret))

    while picks := campaign.ask(1):
        (pick,) = picks
        campaign.tell(pick.index, Outcome(table.get(pick.cell)))
        if every and pick.index % every == every - 1:
            note(campaign.recommendation())
    answer = campaign.recommendation()
    note(answer)
    return Replay(campaign.picks, answer, tuple(trace))


def objectives(problem: Problem, table: Mapping[Cell, float]) -> Floats:
    """True objective of every arm, in units of the reward: the mean over the tasks that the table has for it (A,).

    NaN where it has none that counts.
    """
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
    total = np.bincount(known.arm, weights=share * values, minlength=len(problem.arms))
    return np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), np.nan)
