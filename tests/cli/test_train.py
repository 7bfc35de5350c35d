"""The command `train`, and `run` on the suites that it trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import daskmetrics as dm
from daskmetrics import config
from daskmetrics.answer import analysis
from daskmetrics.domain.training import TrainingStatus
from tests.cli.calling import COMMAND, call, process, start, wait_until

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


# the second rank fails at the first start; the second start waits
FAILS_ONCE = """
import os, time
from pathlib import Path
import daskmetrics
rank, start = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for step in range(1, 41):
    time.sleep(0.02)
    if rank == 0:
        daskmetrics.progress(step, 50.0, epoch=step / 10, loss=2.0, lr=None, phase="warm")
if start == 0:
    print("batch 7 is gone")
    os._exit(3 if rank else 0)
while not Path("go_on").exists():
    time.sleep(0.1)
"""


def test_status_of_a_program_while_it_trains_and_afterwards(tmp_path):
    (tmp_path / "mine.py").write_text(FAILS_ONCE)
    folder = tmp_path / "training" / "mine"

    def has_steps() -> bool:
        status = TrainingStatus.read(folder)
        return bool(status and status.attempt == 2 and status.left is not None)

    words = [*COMMAND[1:], "train", "mine.py", "--ranks", "2"]
    with process(tmp_path, *words) as driver:
        wait_until(has_steps, driver)
        shown = call(tmp_path, "status training/mine").stdout
        document = json.loads(call(tmp_path, "status training/mine --json").stdout)
        driver.kill()
        driver.wait()
        killed = call(tmp_path, "status training/mine").stdout
    for fact in (
        f"mine        running, driven by process {driver.pid} on ",
        "ranks       2 of 2, on 1 node; attempt 2",
        "step        40 of 50 (80 %), ",
        " left\n",
        "latest      epoch 4.00  loss 2.000",
        "rank 1      failed: its process ended with exit code 3; its last line: batch 7 is gone",
        "2 known: 2 busy",
    ):
        assert fact in shown, shown
    assert "rank 0 " not in shown
    assert document["progress"]["step"] == 40 and document["progress"]["total"] == 50
    assert document["progress"]["numbers"] == {"epoch": 4.0, "loss": 2.0}
    assert document["left"] > 0 and not document["finished"] and document["workers"]["busy"] == 2
    assert [ending["rank"] for ending in document["failed"]] == [1]
    assert "unfinished, and no process drives it; run the same command again" in killed
    assert " left" not in killed
    followed = call(tmp_path, "status --follow training/mine")
    assert followed.exit_code == 1 and "40 of 50" in followed.stdout

    (tmp_path / "go_on").touch()
    with process(tmp_path, *words) as driver:
        assert driver.wait(120) == 0, driver.communicate()
    finished = call(tmp_path, "status --follow training/mine")
    assert finished.exit_code == 0 and "mine        finished\n" in finished.stdout
    assert "left" not in finished.stdout


def test_status_of_a_program_that_failed_for_good(tmp_path):
    (tmp_path / "mine.py").write_text("import gone")
    assert start(tmp_path, "train mine.py").returncode == 1
    shown = call(tmp_path, "status training/mine").stdout
    assert "mine        failed. Training 'mine' failed: rank 0: node " in shown
    assert "rank 0      failed: ModuleNotFoundError: No module named 'gone'" in shown
    assert json.loads(call(tmp_path, "status training/mine --json").stdout)["error"]


def test_in_python_run_trains_by_a_process_group(client, small, monkeypatch):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(small / "own"))
    wanted = config.load(small / "small.yaml", ["models.1.train.steps=2", "models.0.train.steps=2"])
    folders = dm.train(client, wanted)
    assert folders.keys() == {"two-ranks", "one-rank"}
    assert all((folder / "step2").is_dir() for folder in folders.values())
