"""The default policy on published scores under every cost model, and what one decision costs.

    python benchmarks/race.py found --cost unit --tasks 32 --budget 0.01 --seeds 100
    python benchmarks/race.py found --cost published --tasks 16 --budget 0.01 --load 30 --workers 32 --free
    python benchmarks/race.py ask --cells 2000

``found`` needs DASKMETRICS_PUBLISHED_DATA, the folder of published_scores.csv.gz: Pythia-410m, 14 checkpoints x 25
layers x 32 tasks, or a random choice of the tasks by seed. An arm counts as found if its mean raw score is within 1 %
of the best one's.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import resource
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from daskmetrics.arms import Arm, Cell, Checkpoint, Suite, training_order
from daskmetrics.bandit import Campaign, Outcome, Problem, arm_features, policy_named
from daskmetrics.bandit.replay import Replay, replay

WITHIN = 0.01


def published(cost: str, tasks: int, seed: int, load: float) -> tuple[Problem, dict[Cell, float]]:
    """The search of one seed; ``shared``: nine tenths of a checkpoint's mean cost are an encoding for all layers."""
    path = Path(os.environ["DASKMETRICS_PUBLISHED_DATA"]) / "published_scores.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["size"] == "410m"]
    names = sorted({row["task"] for row in rows})
    names = sorted(np.random.default_rng(seed).permutation(names)[:tasks].tolist())
    suite = Suite("410m", training_order({row["revision"] for row in rows}), tuple(range(25)), 24)
    cells = {Cell(Arm("410m", row["revision"], int(row["layer"])), row["task"]): row for row in rows}
    seconds = np.array([[float(cells[Cell(arm, task)]["evaluation_time"]) for task in names] for arm in suite.arms()])
    encode = np.zeros_like(seconds)
    if cost == "unit":
        seconds = np.ones_like(seconds)
    elif cost == "overhead":
        seconds = seconds + 30.0
    elif cost == "shared":
        encode = np.repeat(0.9 * seconds.reshape(14, 25, -1).mean(axis=1), 25, axis=0)
        seconds = 0.1 * seconds
    problem = Problem(
        suite.arms(),
        tuple(names),
        arm_features([suite]),
        encode,
        seconds,
        Checkpoint("410m", "main"),
        "mean",
        load_cost=np.full(350, load),
    )
    return problem, {cell: float(row["main_score"]) for cell, row in cells.items() if cell.task in names}


def one(options: Mapping[str, object], seed: int) -> tuple[bool, float, float, float]:
    """Whether the best arm was found, how sure the search was of that, the hours it took for good, utilisation."""
    o = argparse.Namespace(**options)
    problem, table = published(o.cost, o.tasks, seed, o.load)
    race = policy_named("race")
    result = replay(
        problem,
        table,
        race,
        budget=o.budget,
        seed=seed,
        every=int(o.workers > 1),
        workers=o.workers,
        window=o.workers,
        free_running=o.free,
    )
    mean = {arm: np.mean([table[Cell(arm, task)] for task in problem.tasks]) for arm in problem.arms}
    good = [mean[point.arm] >= (1 - WITHIN) * max(mean.values()) for point in result.trace]
    return good[-1], result.recommendation.probability_within, _since(result, good), result.utilisation


def _since(result: Replay, good: list[bool]) -> float:
    """Hours after which the recommendation stayed good."""
    last = max((i for i, right in enumerate(good) if not right), default=-1)
    return result.trace[last + 1].time / 3600 if last + 1 < len(good) else float("inf")


def found(o: argparse.Namespace) -> None:
    with ProcessPoolExecutor(o.processes) as pool:
        rows = np.array(list(pool.map(one, [vars(o)] * o.seeds, range(o.seeds))), dtype=float)
    right, claimed, hours, busy = rows.T
    print(f"{o.cost} R{o.tasks} after {o.budget:.1%}: found by {right.mean():.0%} of {o.seeds} seeds")
    sure = claimed >= 0.9
    if sure.any():
        print(f"  said to be within 1 % with 90 % or more: {sure.mean():.0%} of them; {right[sure].mean():.0%} are")
    if o.workers > 1:
        middle, tail = np.percentile(hours, [50, 90], method="nearest")
        print(
            f"  {o.workers} workers: within 1 % for good after {middle:.3f} h (median), {tail:.3f} h (90th percentile)"
        )
        print(f"  utilisation {busy.mean():.2f}")


def ask(o: argparse.Namespace) -> None:
    """Three models x 144 checkpoints x 6, 6 and 24 layers, 32 tasks; processor time of a decision."""
    steps = tuple(f"step{1000 * i}" for i in range(144))
    suites = [Suite(f"m{i}", steps, tuple(range(1, depth + 1)), depth) for i, depth in enumerate((6, 6, 24))]
    features, rng = arm_features(suites), np.random.default_rng(0)
    arms = tuple(arm for suite in suites for arm in suite.arms())
    scores = 0.5 - 0.3 * (features[:, :1] - 0.9) ** 2 - 0.2 * (features[:, 1:2] - 0.7) ** 2
    scores = scores + 0.03 * features[:, :2] @ rng.normal(size=(2, 32)) + 0.01 * rng.normal(size=(len(arms), 32))
    cost = np.tile(rng.lognormal(sigma=1.5, size=32), (len(arms), 1))
    tasks = tuple(f"t{i}" for i in range(32))
    problem = Problem(arms, tasks, features, cost, 0.1 * cost, Checkpoint("m2", steps[-1]), "mean")
    campaign = Campaign(problem, policy_named("race"), budget=0.9, window=1, seed=0)
    spent: list[float] = []
    while len(spent) < o.cells:
        start = time.process_time()
        picks = campaign.ask(1)
        spent.append(1000 * (time.process_time() - start))
        if not picks:
            break
        campaign.tell(picks[0].index, Outcome(float(scores[problem.locate(picks[0].cell)]), 0.002))
    for first, last in ((0, 300), (300, 1000), (1000, 2000)):
        if part := spent[first:last]:
            middle, tail = np.percentile(part, [50, 99])
            print(
                f"{len(arms)} x 32, {first}-{last} cells: {middle:.0f} ms median, {tail:.0f} p99, {max(part):.0f} most"
            )
    print(f"most memory of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("found")
    verb.set_defaults(run=found)
    verb.add_argument("--cost", choices=["published", "unit", "overhead", "shared"], default="published")
    for name, kind, default in (
        ("tasks", int, 32),
        ("budget", float, 0.01),
        ("seeds", int, 100),
        ("load", float, 0.0),
        ("workers", int, 1),
        ("processes", int, 2),
    ):
        verb.add_argument(f"--{name}", type=kind, default=default)
    verb.add_argument("--free", action="store_true", help="decide on whatever has arrived")
    verb = verbs.add_parser("ask")
    verb.set_defaults(run=ask)
    verb.add_argument("--cells", type=int, default=600)
    options = parser.parse_args()
    run = options.run
    del options.run
    run(options)


if __name__ == "__main__":
    main()
