"""A small search whose best arm is known: smooth over training and depth, correlated tasks, unequal
costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskmetrics.bandit import Learner, Outcome, Problem, State, arm_features, policy_named
from daskmetrics.bandit.costs import PaidCosts
from daskmetrics.bandit.problem import Floats, Observations
from daskmetrics.domain.names import Cell, Suite, grid
from daskmetrics.domain.outcomes import pack


@dataclass(frozen=True)
class World:
    """A problem, its true scores (A, T), and the outcome of a cell."""

    problem: Problem
    scores: Floats
    stderr: float = 0.005
    own: float = 0.3  # share of the error's variance that arms do not share

    @property
    def table(self) -> dict[Cell, float]:
        cells = np.ndindex(self.scores.shape)
        return {self.problem.cell(*cell): float(self.scores[cell]) for cell in cells}

    def outcome(self, cell: Cell) -> Outcome:
        arm, task = self.problem.locate(cell)
        return with_items(float(self.scores[arm, task]), self.stderr, task, self.own, arm)


def with_items(score: float, stderr: float, task: int, own: float, arm: int = 0) -> Outcome:
    """A score on 50 items, of whose error arms have this share of the variance for themselves."""
    draws = [np.random.default_rng(seed).normal(size=50) for seed in ([task], [task, arm + 1])]
    values = math.sqrt(1 - own) * draws[0] + math.sqrt(own) * draws[1]
    values = (values - values.mean()) / values.std(ddof=1) * stderr * math.sqrt(50)
    return Outcome(score, stderr, pack(score + values, score, f"items{task}"))


def make_world(seed: int = 0, revisions: int = 6, layers: int = 4, tasks: int = 5) -> World:
    rng = np.random.default_rng(seed)
    steps = ("step0", *(f"step{4**i}" for i in range(revisions - 1)))
    suites = [Suite(name, steps, tuple(range(layers)), layers - 1) for name in ("small", "large")]
    features = arm_features(suites)
    time, depth, large = features[:, 0], features[:, 1], features[:, 3]
    peak = rng.uniform([0.6, 0.3], [1.0, 0.8])
    common = 0.1 * large - (time - peak[0]) ** 2 - 0.5 * (depth - peak[1]) ** 2
    slopes = rng.normal(scale=0.1, size=(2, tasks))
    noise = rng.normal(scale=0.01, size=(len(features), tasks))
    scores = 0.6 + 0.3 * (common[:, None] + features[:, :2] @ slopes + noise)
    arms = grid(suites)
    price = rng.lognormal(sigma=1.5, size=tasks)
    encode = price * np.array([1.0, 4.0])[large.astype(int)][:, None] * np.ones((len(arms), 1))
    score = 0.2 * price * np.ones_like(encode)
    return World(
        Problem(arms, tuple(f"task{t}" for t in range(tasks)), features, encode, score),
        scores,
    )


def make_learner(
    problem: Problem, policy: str = "race", budget: Any = 0.25, window: int = 1, **options: Any
) -> Learner:
    options = {"seed": 0, **options}
    return Learner(problem, policy_named(policy), budget=budget, window=window, **options)


def drive(
    learner: Learner,
    outcome: Callable[[Cell], Outcome],
    workers: int | None = None,
    order: np.random.Generator | None = None,
) -> Learner:
    """Run a search to its end on a number of workers, which finish in this random order."""
    running = list(learner.open)
    while not learner.done:
        running += learner.ask(max((workers or learner.window) - len(running), 0))
        first = int(order.integers(len(running))) if order else 0
        pick = running.pop(first)
        learner.tell(pick.index, outcome(pick.cell))
    return learner


def observe(world: World, cells: Iterable[tuple[int, int]], stderr: float = 0.005) -> Observations:
    return Observations.of((*cell, float(world.scores[cell]), stderr) for cell in cells)


def state_after(
    world: World, cells: list[tuple[int, int]], known: int | None = None, seed: int = 0
) -> State:
    """The state after these cells, the first ``known`` of them with outcomes (by default all)."""
    costs = PaidCosts(world.problem)
    for cell in cells:
        costs.charge(*cell)
    known = len(cells) if known is None else known
    pending = np.array(cells[known:], dtype=np.intp).reshape(-1, 2)
    finished = observe(world, cells[:known])
    return State(world.problem, finished, pending, costs.paid, costs.cost(), np.inf, seed)


def state_of(problem: Problem, finished: Observations, remaining: float = np.inf) -> State:
    """The state where all of these outcomes are known and each further cell costs two."""
    paid = np.zeros(problem.score_cost.shape, dtype=bool)
    paid[finished.arm, finished.task] = True
    pending = np.zeros((0, 2), dtype=np.intp)
    return State(problem, finished, pending, paid, np.where(paid, 0.0, 2.0), remaining, 0)


def random_cells(world: World, n: int, seed: int = 0) -> list[tuple[int, int]]:
    cells = np.random.default_rng(seed).permutation(list(np.ndindex(world.scores.shape)))
    return [(int(arm), int(task)) for arm, task in cells[:n]]
