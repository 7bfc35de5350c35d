"""The command `train`, and `run` on the suites that it trained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import daskmetrics as dm
from daskmetrics import config
from daskmetrics.answer import analysis

ROOT = Path(__file__).parents[2]
TINY = {"width": 16, "depth": 2, "heads": 2, "context": 32, "vocabulary": 300, "steps": 8}


def call(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "daskmetrics", *words],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, "DASKMETRICS_CACHE": str(place / "cache")},
    )


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder with the ready-made configuration, made small."""
    wanted = yaml.safe_load((ROOT / "configs" / "train-and-search.yaml").read_text())
    for model in wanted["models"]:
        model["train"] |= TINY
    wanted["corpus"]["prompts"] = 16
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(wanted))
    return tmp_path


def test_train_then_run_then_nothing_to_do(place):
    done = call(place, "train", "small.yaml")
    assert done.returncode == 0, done.stderr
    for part in ("two-ranks: 5 checkpoints, loss", "one-rank: 5 checkpoints, loss", "loss.png"):
        assert part in done.stdout
    for part in ("2 ranks on 1 node", "GiB of free memory", "tokens/s"):
        assert part in done.stderr
    suites = {
        path: path.stat().st_mtime_ns for path in (place / "cache").rglob("model.safetensors")
    }
    assert len(suites) == 10

    done = call(place, "run", "small.yaml")
    assert done.returncode == 0, done.stderr
    assert {
        path: path.stat().st_mtime_ns for path in (place / "cache").rglob("model.safetensors")
    } == suites
    run = dm.open(place / "runs" / "train-and-search")
    assert str(run.best().arm) in done.stdout
    assert [step for step, _ in analysis.losses(run)["two-ranks"]] == [0, 1, 2, 4, 8]
    assert "Nothing to do" in call(place, "run", "small.yaml").stdout


def test_run_trains_by_a_process_group_in_a_named_folder(place):
    done = call(place, "run", "small.yaml", "--set", "ddp.folder=suites")
    assert done.returncode == 0, done.stderr
    assert "2 ranks on 1 node" in done.stderr
    assert (place / "suites" / "two-ranks" / "step8" / "model.safetensors").is_file()
    assert (place / "suites" / "one-rank" / "step8" / "model.safetensors").is_file()
    again = call(place, "train", "small.yaml", "--folder", "suites")
    assert again.returncode == 0 and "rank" not in again.stderr
    other = call(
        place, "train", "small.yaml", "--folder", "suites", "--set", "models.0.train.seed=1"
    )
    assert other.returncode == 2
    assert "does not hold the suite of this recipe" in other.stderr


def test_a_dry_run_shows_ranks_steps_memory_and_disk(place):
    words = ["--set", "models.0.train.accumulate=4"]
    done = call(place, "train", "small.yaml", "--dry-run", *words)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    for text in (
        "ranks 2",
        "64 sequences = 8 per pass x 4 passes x 2 ranks",
        "steps 8",
        "memory per rank 0.37 GiB (estimated, float32)",
        "disk 0.7 MB of 5 checkpoints in",
        "Nothing was started.",
    ):
        assert text in shown, text
    assert not (place / "cache").exists()


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("models.0.train.width=17", "width 17 is not divisible by 2 heads"),
        ("models.0.train.checkpoints=[9]", "checkpoint 9 is after the last step, 8"),
        ("models.0.train.corpus=gone.txt", "No corpus file 'gone.txt'"),
        ("ddp.timeut=5", "Did you mean 'timeout'?"),
    ],
)
def test_an_invalid_recipe_is_an_error_before_anything_starts(place, setting, text):
    from daskmetrics.core.errors import ConfigError
    from daskmetrics.experiment import train as train

    with pytest.raises(ConfigError) as refused:
        train.suites_to_train(config.load(place / "small.yaml", [setting]))
    assert text in str(refused.value)


def test_a_configuration_without_training_is_an_error(place):
    (place / "none.yaml").write_text("name: none\nmodels: [{name: a, source: there}]\n")
    done = call(place, "train", "none.yaml")
    assert done.returncode == 2
    assert "no model has a 'train' section" in done.stderr


def test_in_python(client, tmp_path, place, monkeypatch):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "own"))
    wanted = config.load(place / "small.yaml", ["models.1.train.steps=2", "models.0.train.steps=2"])
    folders = dm.train(client, wanted)
    assert {name: (folder / "step2").is_dir() for name, folder in folders.items()} == {
        "two-ranks": True,
        "one-rank": True,
    }
