from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.arms import Arm, Cell, Checkpoint, Suite, training_order
from daskmetrics.bandit import Problem, arm_features, policy_named
from daskmetrics.bandit.replay import objectives, replay

DATA = os.environ.get("DASKMETRICS_PUBLISHED_DATA")


def test_the_trace_ends_at_the_answer_and_cost_only_grows(world):
    small = world()
    result = replay(small.problem, small.table, policy_named("race"), budget=0.3, seed=0, every=5)
    costs = [point.cost for point in result.trace]
    assert costs == sorted(costs) and costs[-1] == result.recommendation.spent
    assert result.trace[-1].arm == result.recommendation.arm
    assert result.trace[-1].regret <= result.trace[0].regret
    assert [pick.index for pick in result.picks] == list(range(len(result.picks)))


def test_an_exhaustive_sweep_has_no_regret(world):
    small = world(reward="zscore", revisions=4)
    result = replay(small.problem, small.table, policy_named("sweep"), budget=1.0, seed=0)
    assert result.trace[-1].regret == 0.0


def test_true_objectives_are_the_mean_score_or_the_mean_zscore(world):
    raw, scored = world(reward="mean"), world(reward="zscore")
    np.testing.assert_allclose(objectives(raw.problem, raw.table), raw.scores.mean(axis=1))
    sweep = scored.scores[scored.problem.baseline_arms]
    expected = ((scored.scores - sweep.mean(axis=0)) / sweep.std(axis=0)).mean(axis=1)
    np.testing.assert_allclose(objectives(scored.problem, scored.table), expected)


def test_a_cell_that_the_table_lacks_fails(world):
    small = world()
    table = {cell: score for cell, score in small.table.items() if cell.task != "task1"}
    result = replay(small.problem, table, policy_named("race"), budget=0.3, seed=0)
    assert result.recommendation.failed > 0
    assert "task1" not in result.recommendation.best.scores


def published_rows() -> Iterator[dict[str, str]]:
    with gzip.open(Path(str(DATA)) / "published_scores.csv.gz", "rt", encoding="utf-8") as lines:
        yield from (row for row in csv.DictReader(lines) if row["size"] == "410m")


def published(tasks: int, seed: int) -> tuple[Problem, dict[Cell, float]]:
    """The search of facts: 14 checkpoints x 25 layers of Pythia-410m, on a random choice of the 32 tasks."""
    rows = list(published_rows())
    names = sorted({row["task"] for row in rows})
    names = sorted(np.random.default_rng(seed).permutation(names)[:tasks].tolist())
    suite = Suite("410m", training_order({row["revision"] for row in rows}), tuple(range(25)), 24)
    cells = {Cell(Arm("410m", row["revision"], int(row["layer"])), row["task"]): row for row in rows}
    seconds = np.array([[float(cells[Cell(arm, task)]["evaluation_time"]) for task in names] for arm in suite.arms()])
    table = {cell: float(row["main_score"]) for cell, row in cells.items() if cell.task in names}
    baseline = Checkpoint("410m", "main")
    features = arm_features([suite])
    problem = Problem(suite.arms(), tuple(names), features, np.zeros_like(seconds), seconds, baseline, "mean")
    return problem, table


@pytest.mark.shared
@pytest.mark.skipif(not DATA, reason="set DASKMETRICS_PUBLISHED_DATA to the folder of published_scores.csv.gz")
@pytest.mark.parametrize("tasks", [16, 32])
def test_two_per_cent_of_the_cost_finds_the_best_published_arm(tasks):
    within = []
    for seed in range(5 if tasks < 32 else 1):  # with all tasks and noiseless scores every seed decides alike
        problem, table = published(tasks, seed)
        result = replay(problem, table, policy_named("race"), budget=0.02, seed=seed)
        truth = objectives(problem, table)
        within.append(result.trace[-1].regret <= 0.01 * truth.max())
        assert result.recommendation.spent <= 0.025 * problem.exhaustive_cost
        assert result.recommendation.confirmed
    assert np.mean(within) >= 0.8
