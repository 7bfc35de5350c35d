"""Does a search end sure and wrong where scores are made to mislead it?

Twelve made-up landscapes of two models, 4 checkpoints, 8 layers and 12 tasks of four kinds, whose
costs differ by their tasks (log-normal) and by model (1 and 4). Landscapes like ``cheap tasks`` and
``opposite`` were known when the rule of the end was made; the ten others were made afterwards.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from replay import WITHIN

from daskmetrics.bandit import Learner, Outcome, Problem, arm_features, policy_named
from daskmetrics.core.table import Table
from daskmetrics.domain.names import Suite, grid

Floats = NDArray[np.float64]
CHECKPOINTS, LAYERS, TASKS, KINDS = 4, 8, 12, 4
BUDGET = 0.3  # of the cost of all scores


@dataclass(frozen=True)
class Axes:
    """What a landscape is made of."""

    rng: np.random.Generator
    time: Floats  # 0 to 1, as a column (A, 1)
    depth: Floats
    is_large: Floats  # the model that costs 4
    task: Floats  # number of the task, the cheapest first (1, T)
    kind: Floats

    @property
    def smooth(self) -> Floats:
        """Better with training, and best at some depth."""
        peak = self.rng.uniform(0.3, 0.7)
        return 0.08 * self.time - 0.15 * (self.depth - peak) ** 2

    def one_arm(self) -> Floats:
        """1 for an arm of the last checkpoints."""
        late = np.flatnonzero(self.time[:, 0] > 0.5)
        return np.eye(len(self.time))[:, [self.rng.choice(late)]]


Landscape = Callable[[Axes], Floats]
LANDSCAPES: dict[str, Landscape] = {
    # the better model is worse on the three cheapest tasks
    "cheap tasks": lambda a: a.smooth + 0.03 * a.is_large * np.where(a.task < 3, -1, 1),
    # the five cheapest tasks prefer the opposite layers
    "opposite": lambda a: 0.05 * a.time + 0.1 * a.depth * np.where(a.task < 5, -1, 1),
    "plateau": lambda a: 0.02 * np.minimum(a.time + a.depth, 0.7),
    "needle": lambda a: a.smooth + 0.03 * a.one_arm(),
    "cliff at the last layer": lambda a: 0.1 * a.time + 0.1 * a.depth - 0.3 * (a.depth == 1),
    "peak at the last layer": lambda a: 0.05 * a.time + 0.1 * (a.depth == 1),
    "late bloom": lambda a: a.smooth + 0.15 * (a.time == 1),
    "over-trained": lambda a: a.smooth - 0.2 * (a.time - 0.4) ** 2,
    "one wide task": lambda a: np.where(a.task == 11, 10, 1) * 0.02 * (a.time - a.depth),
    "two kinds against two": lambda a: a.smooth + 0.1 * a.depth * np.where(a.kind < 2, -1, 1.3),
    "half of the tasks noise": lambda a: np.where(a.task % 2, 0, 2) * a.smooth,
    "layers in turn": lambda a: a.smooth + 0.02 * (np.round(a.depth * (LAYERS - 1)) % 2),
}


def made(landscape: Landscape, seed: int) -> tuple[Problem, Floats]:
    """A search, and the scores (A, T)."""
    rng = np.random.default_rng(seed)
    steps = tuple(f"step{4**i}" for i in range(CHECKPOINTS))
    suites = [Suite(name, steps, tuple(range(LAYERS)), LAYERS - 1) for name in ("small", "large")]
    features = arm_features(suites)
    is_large = features[:, [3]] > features[:, [3]].min()
    task = np.arange(TASKS)[None]
    axes = Axes(rng, features[:, [0]], features[:, [1]], is_large, task, task % KINDS)
    scores = rng.uniform(0.3, 0.7, TASKS) + landscape(axes)
    scores += rng.normal(scale=0.004, size=scores.shape)
    cost = np.sort(rng.lognormal(sigma=1.2, size=TASKS)) * np.where(is_large, 4.0, 1.0)
    names = tuple(f"task{i}" for i in range(TASKS))
    kinds = tuple(f"kind{i % KINDS}" for i in range(TASKS))
    return Problem(grid(suites), names, features, 0 * cost, cost, kinds=kinds), scores


def searched(landscape: Landscape, seed: int) -> tuple[float, float, bool, bool]:
    """What the arm at the end loses, the cost, whether what is stated holds, and whether the search
    ended by itself.
    """
    problem, scores = made(landscape, seed)
    learner = Learner(problem, policy_named("race"), budget=BUDGET, window=1, seed=seed)
    while picks := learner.ask(1):
        learner.tell(picks[0].index, Outcome(float(scores[problem.locate(picks[0].cell)])))
    found = learner.recommendation()
    means = scores.mean(axis=1)
    lost = means.max() - means[learner.state.recommended]
    holds = found.most_lost is None or lost <= found.most_lost
    share = learner.spent / problem.exhaustive_cost
    return lost / means.max(), share, bool(holds), learner.ending in ("within", "sure")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    chosen = parser.parse_args(arguments)
    rows = []
    for name, landscape in LANDSCAPES.items():
        ends = [searched(landscape, seed) for seed in range(chosen.seeds)]
        losses, costs, holds, by_itself = (np.array(column) for column in zip(*ends, strict=True))
        is_wrong = losses > WITHIN
        cells = f"{(~is_wrong).sum()} of {len(ends)}", f"{(is_wrong & by_itself).sum()}"
        cells += f"{losses.mean():.2%}", f"{losses.max():.1%}", f"{holds.sum()}"
        rows.append((name, *cells, f"{costs.mean():.1%}"))
    header = ("landscape", "right", "sure and wrong", "mean loss", "greatest", "held", "cost")
    print(Table(header, rows, f"Ends of searches, right within {WITHIN:.0%}").as_text(140))


if __name__ == "__main__":
    main()
