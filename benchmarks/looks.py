"""Do cheaper looks pay? A look is a score from a share of a task's items: one more column of the
search, with weight 0, the kind of its task, and a cost and an error of its own.

A run scores all layers on whole tasks. Then each look is scored with the same code, on the items
that `daskmetrics.tasks.examples` leaves for a search: nested in those of a greater share,
with equal shares of each label. Searches of these scores, with and without looks and with the same
seeds, are compared by the cost from which on the recommended arm is within 1 % of the best.

Without any search: what looks at all cells cost, and how much worse than the best is the arm that
is the best by these looks alone.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from replays import quantile

import daskmetrics as dm
from daskmetrics import config, experiment
from daskmetrics.bandit import Budget, Learner, Outcome, Problem, policy_named
from daskmetrics.bandit.recommend import WITHIN
from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.results import Scored
from daskmetrics.core.table import Table
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.experiment.search import build_problem, score_unit
from daskmetrics.tasks.examples import Portion

BUDGET = 0.3  # of the cost of all whole cells
SMALL = (
    "models=[{name: tiny, train: {width: 16, depth: 3, steps: 8}}]",
    "corpus.prompts=16",
    "tasks=['stdlib:order']",
    "cluster.workers=1",
)


def look_at(prepared: Experiment, share: float, scratch: Path) -> tuple[Experiment, np.ndarray]:
    """The experiment on a share of each task's items, and its scores and errors (A, T, 2)."""
    portion = Portion(1 - share, fresh=False)
    looks = replace(prepared, tasks=tuple(task.part(portion) for task in prepared.tasks))  # type: ignore[attr-defined]
    scores = np.full((len(looks.arms), len(looks.tasks), 2), np.nan)
    for column, task in enumerate(looks.tasks):
        embeddings, checkpoint = None, None
        for row, arm in enumerate(looks.arms):
            unit = score_unit(looks, arm, task, scratch, "score", {})
            if arm.checkpoint != checkpoint:
                assert unit.input
                embeddings, checkpoint = unit.input.function(*unit.input.args), arm.checkpoint
            with suppress(UndefinedError):
                scored: Scored = unit.function(embeddings, *unit.args)
                scores[row, column] = scored.score, scored.stderr
    return looks, scores


def with_looks(problem: Problem, looks: Problem) -> Problem:
    """The columns of one problem, and those of looks at its tasks, which do not count."""
    size = len(problem.tasks)
    return replace(
        problem,
        tasks=(*problem.tasks, *(f"{task}, a share" for task in looks.tasks)),
        encode_cost=np.hstack([problem.encode_cost, looks.encode_cost]),
        score_cost=np.hstack([problem.score_cost, looks.score_cost]),
        weights=(*(problem.weights or (1.0,) * size), *(0.0,) * size),
        kinds=problem.kind_names + looks.kind_names,
    )


def lasting_cost(problem: Problem, scores: np.ndarray, exhaustive: float, seed: int) -> float:
    """The share of the exhaustive cost from which on the recommended arm is within `WITHIN` of the
    best; infinite if it is not at the end.
    """
    means = scores[:, problem.in_objective, 0].mean(axis=1)
    is_good = means >= (1 - WITHIN) * np.nanmax(means)
    budget = Budget(cost=BUDGET * exhaustive)
    learner = Learner(problem, policy_named("race"), budget=budget, window=1, seed=seed)
    since = math.inf
    while picks := learner.ask(1):
        score, stderr = scores[problem.locate(picks[0].cell)].tolist()
        outcome = Outcome(None) if math.isnan(score) else Outcome(score, stderr)
        learner.tell(picks[0].index, outcome)
        if not (len(learner.state.observations) and is_good[learner.state.recommended]):
            since = math.inf
        elif math.isinf(since):
            since = learner.spent / exhaustive
    return since


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--shares", default="0.25", help="of the items; separated by commas")
    parser.add_argument("--small", action="store_true", help="one tiny model, one task")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = ["metrics=[]", *(SMALL if chosen.small else ()), *chosen.settings]
        sweep = [*settings, "search.policy=sweep", "search.budget=1"]
        run = dm.run(settings=sweep, folder=folder / "whole")
        prepared = experiment.prepare(config.load(config.folder() / "demo.yaml", settings))
        problem = build_problem(prepared, prepared.suites)
        scores = np.full((len(prepared.arms), len(prepared.tasks), 2), np.nan)
        for row, arm in enumerate(prepared.arms):
            for column, task in enumerate(problem.tasks):
                if cell := run.recorded.get(arm, {}).get(task):
                    scores[row, column] = cell.score, cell.stderr
        means = scores[..., 0].mean(axis=1)
        searches, alone = {"whole tasks": (problem, scores)}, {"whole tasks": ("100.0%", "0.0%")}
        for share in map(float, chosen.shares.split(",")):
            looks, look_scores = look_at(prepared, share, folder)
            columns = build_problem(looks, looks.suites)
            both = np.concatenate([scores, look_scores], axis=1)
            title = f"with looks at {share:.1%}"
            searches[title] = with_looks(problem, columns), both
            best = np.nan_to_num(look_scores[..., 0].mean(axis=1)).argmax()
            cost = columns.exhaustive_cost / problem.exhaustive_cost
            alone[title] = f"{cost:.1%}", f"{1 - means[best] / np.nanmax(means):.1%}"
        rows = []
        for title, (searched, known) in searches.items():
            costs = [
                lasting_cost(searched, known, problem.exhaustive_cost, seed)
                for seed in range(chosen.seeds)
            ]
            shares = (f"{quantile(costs, q):.1%}" for q in (0.25, 0.5, 0.75))
            found = sum(map(math.isfinite, costs))
            rows.append((title, *shares, f"{found} of {chosen.seeds}", *alone[title]))
        quarters = ("first quarter", "median", "third quarter")
        header = ("search", *quarters, "found at the end", "all cells cost", "their best loses")
        heading = f"Cost from which on the arm is within {WITHIN:.0%}, of that of all whole scores"
        print(Table(header, tuple(rows), heading).as_text(140))


if __name__ == "__main__":
    main()
