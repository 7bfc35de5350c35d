"""The command `train`, and `run` on the suites that it trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import daskmetrics as dm
from daskmetrics import config
from daskmetrics.answer import analysis
from tests.cli.calling import call, start

ROOT = Path(__file__).parents[2]
TINY = {"width": 16, "depth": 2, "heads": 2, "context": 32, "vocabulary": 300, "steps": 8}


@pytest.fixture
def small(tmp_path) -> Path:
    """A folder with the ready-made configuration, made small."""
    wanted = yaml.safe_load((ROOT / "configs" / "train-and-search.yaml").read_text())
    for model in wanted["models"]:
        model["train"] |= TINY
    wanted["corpus"]["prompts"] = 16
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(wanted))
    return tmp_path


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}


def test_a_dry_run_shows_the_same_of_a_program_and_a_recipe(small):
    (small / "mine.py").touch()
    program = call(small, "train mine.py --ranks 2 --dry-run -- --batch-size 8").stdout
    recipe = call(small, "train small.yaml --dry-run").stdout
    for label in ("ranks ", "effective batch ", "steps "):
        assert f"\n{label}" in program and f"\n{label}" in recipe
    assert "16 samples = 8 per pass x 1 pass x 2 ranks, by its arguments" in program


def test_train_then_run_then_nothing_to_do(small):
    cache = {"DASKMETRICS_CACHE": str(small / "cache")}
    done = start(small, "train small.yaml --folder suites", **cache)
    assert done.returncode == 0, done.stderr
    for part in ("two-ranks: 5 checkpoints, loss", "one-rank: 5 checkpoints, loss", "loss.png"):
        assert part in done.stdout
    for part in ("2 ranks on 1 node", "GiB of free memory", "tokens/s"):
        assert part in done.stderr
    suites = times(small / "suites")
    assert len(suites) == 10

    line = "run small.yaml --set ddp.folder=suites"
    done = start(small, line, **cache)
    assert done.returncode == 0, done.stderr
    assert times(small / "suites") == suites
    run = dm.open(small / "runs" / "train-and-search")
    assert str(run.best().arm) in done.stdout
    assert not analysis.losses(run.plan, run.records)  # the suites are of another command
    assert "Nothing to do" in start(small, line, **cache).stdout
    other = start(small, "train small.yaml --folder suites --set models.0.train.seed=1", **cache)
    assert other.returncode == 2
    assert "does not hold the suite of this recipe" in other.stderr


def test_in_python_run_trains_by_a_process_group(client, small, monkeypatch):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(small / "own"))
    wanted = config.load(small / "small.yaml", ["models.1.train.steps=2", "models.0.train.steps=2"])
    folders = dm.train(client, wanted)
    assert folders.keys() == {"two-ranks", "one-rank"}
    assert all((folder / "step2").is_dir() for folder in folders.values())
