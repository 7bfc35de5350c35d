"""A small search whose best arm is known: smooth over training and depth, correlated tasks, unequal
costs.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.bandit import Outcome, Problem, State, arm_features
from daskmetrics.bandit.costs import PaidCosts
from daskmetrics.bandit.problem import Floats, Observations
from daskmetrics.bandit.replay import ScoreRow, ScoreTable, score_table
from daskmetrics.core.names import Arm, Cell, Suite, grid


@dataclass(frozen=True)
class World:
    """A problem, its true scores (A, T), and the outcome of a cell."""

    problem: Problem
    scores: Floats

    @property
    def table(self) -> dict[Cell, float]:
        p, (arms, tasks) = self.problem, self.scores.shape
        return {p.cell(a, t): float(self.scores[a, t]) for a in range(arms) for t in range(tasks)}

    def outcome(self, cell: Cell) -> Outcome:
        return Outcome(float(self.scores[self.problem.locate(cell)]), 0.005)


def make_world(
    seed: int = 0, reward: str = "mean", revisions: int = 6, layers: int = 4, tasks: int = 5
) -> World:
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
        Problem(
            arms, tuple(f"task{t}" for t in range(tasks)), features, encode, score, reward=reward
        ),
        scores,
    )


@pytest.fixture(scope="session")
def world() -> Callable[..., World]:
    return make_world


def state_after(
    world: World, cells: list[tuple[int, int]], known: int | None = None, seed: int = 0
) -> State:
    """The state after these cells, the first ``known`` of them with outcomes (all of them by
    default).
    """
    costs = PaidCosts(world.problem)
    for cell in cells:
        costs.charge(*cell)
    known = len(cells) if known is None else known
    finished = observations(
        cells, [world.outcome(world.problem.cell(*cell)) for cell in cells[:known]]
    )
    pending = np.array(cells[known:], dtype=np.intp).reshape(-1, 2)
    return State(world.problem, finished, pending, costs.paid, costs.cost(), np.inf, seed)


def observations(cells: list[tuple[int, int]], outcomes: list[Outcome]) -> Observations:
    """The outcomes of the first cells."""
    pairs = zip(cells, outcomes, strict=False)
    return Observations.of((*cell, outcome.score, outcome.stderr) for cell, outcome in pairs)


def random_cells(world: World, n: int, seed: int = 0) -> list[tuple[int, int]]:
    cells = np.argwhere(np.isfinite(world.scores))
    return [(int(a), int(t)) for a, t in np.random.default_rng(seed).permutation(cells)[:n]]


@pytest.fixture(scope="session")
def after() -> Callable[..., State]:
    return state_after


@pytest.fixture(scope="session")
def draw() -> Callable[..., list[tuple[int, int]]]:
    return random_cells


STEPS = (0, 1, 4, 16, 64, 256)


LAYERS = range(5)


TASKS = {"cheap": 1.0, "fair": 4.0, "expensive": 100.0, "extreme": 400.0}


KINDS = {"cheap": "pairs", "fair": "pairs", "expensive": "classes", "extreme": "classes"}


def known_rows(seed: int = 0) -> list[ScoreRow]:
    rng = np.random.default_rng(seed)
    rows = []
    for t, step in enumerate(STEPS):
        for layer in LAYERS:
            quality = 0.5 + 0.05 * t - 0.03 * (layer - 3) ** 2
            for task, seconds in TASKS.items():
                score = round(quality + rng.normal(0, 0.003), 6)
                rows.append(
                    ScoreRow(
                        Arm("m", f"step{step}", layer), task, score, 0.01, seconds, 0.0, KINDS[task]
                    )
                )
    return rows


@pytest.fixture
def known() -> ScoreTable:
    return score_table(known_rows())


@pytest.fixture
def known_csv(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "model",
                "revision",
                "layer",
                "task",
                "score",
                "seconds",
                "stderr",
                "kind",
                "metric:entropy",
            ]
        )
        for row in known_rows():
            own = [
                row.arm.model,
                row.arm.revision,
                row.arm.layer,
                row.task,
                row.score,
                row.seconds,
                row.stderr,
                row.kind,
            ]
            writer.writerow([*own, row.arm.layer * 0.1])
    return path
