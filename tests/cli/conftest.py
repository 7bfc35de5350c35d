"""A folder with all that commands name: a configuration, a module, scores and labelled texts."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

MODEL = {"name": "tiny", "train": {"width": 8, "depth": 1, "heads": 2, "steps": 2}}
CONFIG = {"name": "x", "models": [MODEL], "tasks": ["stdlib:order"]}
MODULE = """
import os, random, time

def step(item, *, seed):
    if item == int(os.environ.get("SLOW", "-1")):
        time.sleep(1000)
    if item == 13 and "REPAIRED" not in os.environ:
        raise ValueError(f"planted in {item}")
    return {"loss": random.Random(seed).random(), "twice": 2 * item}

def of_row(row):
    return float(row["rate"]) * 2
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump({**CONFIG, "metrcs": ["all"]}))
    (tmp_path / "untrained.yaml").write_text("{name: x, models: [{name: a, source: there}]}")
    (tmp_path / "slurm.yaml").write_text("{kind: slurm, partition: gpu, scoring: {workers: 2}}")
    (tmp_path / "bench.py").write_text(MODULE)
    (tmp_path / "rates.csv").write_text("rate\n1\n0.5\n")
    days = (f"tea was {how} on day {day},{how}\n" for day in range(8) for how in ("good", "bad"))
    (tmp_path / "reviews.csv").write_text("".join(["body,stars\n", *days]))
    (tmp_path / "empty").mkdir()
    with (tmp_path / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "revision", "layer", "task", "score", "seconds"])
        for step in (1, 8, 64, 512):
            for layer in range(4):
                score = 0.4 + 0.02 * step.bit_length() - 0.03 * (layer - 2) ** 2
                writer.writerow(["m", f"step{step}", layer, "cheap", score, 1])
                writer.writerow(["m", f"step{step}", layer, "expensive", score + 0.001, 50])
    return tmp_path
