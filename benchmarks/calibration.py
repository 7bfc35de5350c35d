"""Is what a search states true, on each table by itself, and what does it cost to be sure?

Three kinds of tables are searched: published scores of `families.py`, alone and joined; with
``--folder``, where `sentences.py` keeps its states, those of MiniLM on docstrings and on comments;
and made-up ones whose most expensive task, of eight, varies ten times more than the others. A
moment is a doubling of the cost, or the end of a search.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import families
import numpy as np
import sentences
from replay import (
    ReplayPlan,
    ReplayTrial,
    Scenario,
    ScoreTable,
    Setting,
    run_trials,
)
from replay_statistics import CONFIDENCE_AT, confidence_bands, is_found, quantile, until_found

from daskmetrics.core.table import Table
from daskmetrics.domain.names import Suite

SURE = 0.9  # what counts as said
ARMS = (6, 10)  # checkpoints and layers of a made-up table
TASKS = 8
WIDE = 10.0  # spread of its most expensive task, in multiples of that of the others
BUDGET = 0.6  # of the cost of all scores
PUBLISHED_BUDGET = 0.3


def outlier_table(seed: int) -> ScoreTable:
    """Scores that are smooth over training and depth and correlated over tasks, of which the most
    expensive varies `WIDE` times more than the others.
    """
    rng = np.random.default_rng(seed)
    checkpoints, layers = ARMS
    grid = np.meshgrid(np.linspace(0, 1, checkpoints), np.linspace(0, 1, layers), indexing="ij")
    position = np.stack([axis.ravel() for axis in grid], axis=1)
    count = len(position)
    square = ((position[:, None] - position) ** 2).sum(axis=-1)
    root = np.linalg.cholesky(np.exp(-square / 2 / 0.3**2) + 1e-6 * np.eye(count))
    common = root @ rng.normal(size=count)
    scores = np.empty((count, TASKS))
    for task in range(TASKS):
        of_task = 0.7 * root @ rng.normal(size=count) + 0.05 * rng.normal(size=count)
        scores[:, task] = 0.02 * (common + of_task)
    scores[:, -1] *= WIDE
    names = tuple(f"step{2**i}" for i in range(checkpoints))
    suite = Suite("made", names, tuple(range(layers)), layers - 1)
    kinds = {f"task{i}": f"kind{i % 4}" for i in range(TASKS)}
    seconds = np.tile(2.0 ** np.arange(TASKS), (count, 1))
    return ScoreTable((suite,), kinds, 0.5 + scores, seconds, 0 * scores)


def encoder_table(folder: Path, texts: str) -> ScoreTable:
    """Scores of the layers of MiniLM's checkpoints; see `sentences.py`."""
    suite = sentences.mixtures(folder / "minilm", sentences.MIXTURES)
    table = sentences.build_table(folder, [suite], texts, 4800)
    problem = table.problem("cpu")
    return ScoreTable(
        table.suites,
        dict(zip(problem.tasks, problem.kind_names, strict=True)),
        table.scores,
        problem.encode_cost + problem.score_cost,
        problem.encode_cost,
    )


def plans(
    folder: Path | None, made: Sequence[int], small: bool
) -> Iterator[tuple[str, ReplayPlan]]:
    """Every table by its name, and how it is searched; the made-up ones have the seeds `made`."""
    for seed in made[:1] if small else made:
        plan = ReplayPlan(outlier_table(seed), Scenario("published"), BUDGET, 2, CONFIDENCE_AT)
        yield f"one wide task, {seed}", plan
    if small:
        return
    if folder:
        for texts in sentences.READERS:
            plan = ReplayPlan(
                encoder_table(folder, texts), Scenario("shared"), BUDGET, 1, CONFIDENCE_AT
            )
            yield f"MiniLM, {texts}", plan
    published = families.tables(Path(os.environ["DASKMETRICS_PUBLISHED_DATA"]))
    for name, table in families.joined(published).items():
        for label, costs in families.COSTS.items():
            scenario = replace(costs, subset=16)
            plan = ReplayPlan(table, scenario, PUBLISHED_BUDGET, 2, CONFIDENCE_AT)
            yield f"{name}, {label}", plan


def looks_at_tasks(plan: ReplayPlan, seeds: Sequence[int]) -> float:
    """The least share of the cost that pays for three scores on every task but the most expensive
    one, or on every one of at most twelve: what a search looks at before it is sure.
    """
    shares = []
    for seed in seeds:
        problem = plan.scenario.build_problem(plan.scenario.draw_tasks(plan.table, seed))
        cost = np.sort(problem.encode_cost + problem.score_cost, axis=0)
        of_task = np.sort(cost[:3].sum(axis=0))
        if problem.encode_cost.any():  # one encoding serves three layers
            of_task = np.sort(cost[0] + 2 * problem.score_cost.min(axis=0))
        shares.append(of_task[: len(of_task) - (len(of_task) > 12)].sum() / problem.exhaustive_cost)
    return float(np.mean(shares))


def row(name: str, plan: ReplayPlan, seeds: Sequence[int], jobs: int) -> tuple[str, ...]:
    """One line of the table."""
    trials = list(run_trials(plan, [Setting("race")], seeds, jobs))
    said = [_first_said(trial) for trial in trials]
    lasting = until_found(trials, lambda step: step.share, lasting=True)
    truth = ("never", "", "")
    if bands := confidence_bands(trials, ((SURE, 1.0),)):
        band = bands[0]
        low, high = band.interval
        rate = band.correct
        interval = f"{low:.2f}-{high:.2f}"
        truth = (f"{rate.hits} of {rate.of}", interval, f"{band.first.hits} of {band.first.of}")
    right, sure = quantile(lasting, 0.5), quantile(said, 0.5)
    found = sum(is_found(trial.path[-1]) for trial in trials)
    costs = (f"{share:.1%}" for share in (right, sure, looks_at_tasks(plan, seeds)))
    return name, *truth, *costs, f"{sure / right:.1f}", f"{found} of {len(trials)}"


def _first_said(trial: ReplayTrial) -> float:
    """The share of the cost at which a search first states `SURE`; infinite if it never does."""
    return next((step.share for step in trial.path if step.confidence >= SURE), np.inf)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="", help="parts of names; separated by semicolons")
    parser.add_argument("--folder", type=Path, help="checkpoints and states of sentences.py")
    parser.add_argument("--made", type=int, nargs="+", default=range(4), help="made-up tables")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="one made-up table")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    rows = []
    for name, plan in plans(chosen.folder, chosen.made, chosen.small):
        if any(part in name for part in chosen.tables.split(";")):
            rows.append(row(name, plan, seeds, chosen.jobs))
            print(*rows[-1], sep=" | ", flush=True)
    header = (
        "table",
        f"said {SURE:.2f}: true",
        "95 % interval",
        "first moments",
        "right for good",
        "said",
        "looks at tasks",
        "said / right",
        "found at the end",
    )
    note = "Costs are medians of the searches, as shares of that of all scores."
    title = f"Is what is stated with {SURE:.2f} or more true?"
    print("\n", Table(header, tuple(rows), title, (note,)).as_text(160), sep="")


if __name__ == "__main__":
    main()
