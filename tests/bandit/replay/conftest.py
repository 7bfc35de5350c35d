"""A small table of known scores as a CSV file: best in the middle of depth, late in training; tasks of unequal cost."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.bandit.replay import ScoreRow, ScoreTable, score_table
from daskmetrics.core.names import Arm

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
                rows.append(ScoreRow(Arm("m", f"step{step}", layer), task, score, 0.01, seconds, 0.0, KINDS[task]))
    return rows


@pytest.fixture
def known() -> ScoreTable:
    metrics = {row.arm: {"entropy": row.score} for row in known_rows()}
    return score_table(known_rows(), metrics)


@pytest.fixture
def known_csv(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "revision", "layer", "task", "score", "seconds", "stderr", "kind", "metric:entropy"])
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
