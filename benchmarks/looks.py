"""Do looks pay: scores from a quarter of a task's items, as further tasks of weight 0 that tell about the whole ones?

With ``--run`` looks are computed from outcomes of an exhaustive run, and costs are its measured seconds. Else scores
are published ones and the error of a look is made up: `ITEMS` items per task, half of whose variance all arms share.
Budgets are shares of the exhaustive cost without looks. A look pays the whole overhead.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from daskmetrics.bandit import Budget, Learner, Outcome, Problem, policy_named
from daskmetrics.bandit.replay import Scenario, ScoreTable, ground_truth
from daskmetrics.core._outcomes import unpack
from daskmetrics.core._table import Table
from daskmetrics.execution._score_tables import read
from daskmetrics.report import Run

SHARE, ITEMS = 0.25, 2000
PUBLISHED = {
    "unit costs": Scenario("unit", subset=16),
    "published costs + 30 s per pull": Scenario("published", overhead=30, subset=16),
}


@dataclass(frozen=True)
class Scores:
    """Scores and standard errors of whole tasks, then of looks (A, 2 T)."""

    score: np.ndarray
    stderr: np.ndarray


def made_up(table: ScoreTable, seed: int) -> Scores:
    whole, rng = np.asarray(table.scores), np.random.default_rng(1000 + seed)
    sd = np.sqrt(np.clip(whole * (1 - whole), 0.01, None) * (1 - SHARE) / (SHARE * ITEMS))
    noise = (rng.normal(size=whole.shape[1]) + rng.normal(size=whole.shape)) / np.sqrt(2)
    return Scores(np.hstack([whole, whole + sd * noise]), np.hstack([np.zeros_like(whole), sd]))


def of_run(run: Run, table: ScoreTable, seed: int) -> Scores:
    size, rng = len(table.tasks), np.random.default_rng(seed)
    score, stderr = np.zeros((2, len(table.arms), 2 * size))
    for j, task in enumerate(table.tasks):
        each = [run.recorded[arm][task] for arm in table.arms]
        outcomes = np.array([unpack(value["outcomes"]) for value in each])
        drawn = outcomes[:, rng.permutation(outcomes.shape[1])[: round(SHARE * outcomes.shape[1])]]
        score[:, j], stderr[:, j] = np.array([(value["score"], value["stderr"]) for value in each]).T
        score[:, size + j], stderr[:, size + j] = drawn.mean(axis=1), drawn.std(axis=1, ddof=1) / drawn.shape[1] ** 0.5
    return Scores(score, stderr)


def with_looks(problem: Problem, overhead: float) -> Problem:
    """The problem with a look beside every task, which is of a kind with it alone."""
    names = problem.tasks
    return replace(
        problem,
        tasks=(*names, *(f"look at {name}" for name in names)),
        encode_cost=np.hstack([problem.encode_cost, SHARE * problem.encode_cost]),
        score_cost=np.hstack([problem.score_cost, overhead + SHARE * (problem.score_cost - overhead)]),
        weights=(1.0,) * len(names) + (0.0,) * len(names),
        kinds=names * 2,
    )


def losses(problem: Problem, scores: Scores, loss: np.ndarray, whole: float, shares: list[float]) -> list[float]:
    """Loss of the leader after each share of the cost."""
    learner = Learner(problem, policy_named("race"), budget=Budget(cost=shares[-1] * whole), window=1, seed=0)
    left, found, leader = list(shares), [], int(problem.default_arms[-1])
    while picks := learner.ask(1):
        while left and learner.spent > left[0] * whole:
            found.append(float(loss[leader]))
            left.pop(0)
        cell = problem.locate(picks[0].cell)
        learner.tell(picks[0].index, Outcome(float(scores.score[cell]), float(scores.stderr[cell])))
        leader = learner.state.leader
    return found + [float(loss[leader])] * len(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--scores", default=Path(os.environ.get("DASKMETRICS_PUBLISHED_DATA", "."), "published_scores.csv.gz")
    )
    parser.add_argument("--model", default="Pythia-410m")
    parser.add_argument("--run", help="folder of a run with every score and its outcomes")
    parser.add_argument("--seeds", type=int, default=10)
    chosen = parser.parse_args()
    run = Run(chosen.run) if chosen.run else None
    known = read(chosen.run) if run else read(chosen.scores, [chosen.model])
    shares = [0.05, 0.1, 0.15] if run else [0.003, 0.01, 0.02]
    rows = []
    for name, scenario in {"run": Scenario("shared")}.items() if run else PUBLISHED.items():
        for looks in (False, True):
            found = []
            for seed in range(chosen.seeds):
                table = scenario.draw_tasks(known, seed)
                plain = scenario.build_problem(table)
                problem = with_looks(plain, scenario.overhead) if looks else plain
                scores = of_run(run, table, seed) if run else made_up(table, seed)
                lost = losses(problem, scores, ground_truth(table, plain).loss, plain.exhaustive_cost, shares)
                found.append([loss <= 0.01 for loss in lost])
            rows.append(
                (name, "with looks" if looks else "without", *(f"{n}/{chosen.seeds}" for n in np.sum(found, axis=0)))
            )
            print(Table(("costs", "search", *(f"{share:.1%}" for share in shares)), tuple(rows)).as_text(), flush=True)


if __name__ == "__main__":
    main()
