"""Damage to the files of a run while it goes on: no unit is blamed, and the same command heals it."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from daskmetrics import config, experiment
from daskmetrics.core.errors import DamageError
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.events import RunFinished, StoreCreated, latest, records
from daskmetrics.execution.journal import read
from daskmetrics.experiment import maintenance
from daskmetrics.experiment._worker import LayerEmbeddings

SMALL = {
    "name": "small",
    "corpus": {"prompts": 12},
    "metrics": ["effective_rank", "curvature"],
    "tasks": ["stdlib:order"],
    "search": {"budget": 1.0},
}


@pytest.fixture
def prepared(suite) -> experiment.Experiment:
    return experiment.prepare(
        config.parse({**SMALL, "models": [{"name": "a", "source": str(suite)}]})
    )


@contextmanager
def meanwhile(folder: RunFolder, damage: Callable[[RunFolder], None]) -> Iterator[None]:
    """Within the block, the damage is done once the run has laid out its store."""

    def wait() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with suppress(Exception):  # half a line, or none yet
                if latest(list(read(folder.journal)), StoreCreated):
                    break
            time.sleep(0.005)
        damage(folder)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def run(prepared: experiment.Experiment, folder: RunFolder, client) -> None:
    with experiment.Display() as display:
        experiment.run(prepared, folder, display, client)


def check_whole(folder: RunFolder) -> None:
    entries = list(read(folder.journal))
    assert latest(entries, RunFinished)
    assert all(record.ok for record in records(entries))
    assert not maintenance.verify(folder).damages


STORE = {
    "a flipped coordinate": lambda run: flip(run.store / "a/checkpoint/c/0"),
    "flipped metadata": lambda run: flip(run.store / "a/metrics/zarr.json"),
    "cut metadata": lambda run: cut(run.store / "a/zarr.json"),
    "no array": lambda run: shutil.rmtree(run.store / "a/metrics_stderr"),
    "no store": lambda run: shutil.rmtree(run.store),
}


@pytest.mark.parametrize("damage", STORE.values(), ids=STORE.keys())
def test_a_store_that_is_damaged_meanwhile_is_whole_at_the_end(client, prepared, tmp_path, damage):
    folder = RunFolder(tmp_path / "run")
    with meanwhile(folder, damage):
        run(prepared, folder, client)
    check_whole(folder)


def test_damaged_prompts_end_a_run_that_the_same_command_heals(client, prepared, tmp_path):
    folder = RunFolder(tmp_path / "run")
    with (
        pytest.raises(DamageError, match=r"prompts of the run .* run the same command"),
        meanwhile(folder, lambda run: flip(run.corpus)),
    ):
        run(prepared, folder, client)
    assert all(record.ok for record in records(read(folder.journal)))
    run(prepared, folder, client)
    check_whole(folder)


def test_embeddings_with_a_flipped_byte_are_no_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("daskmetrics.experiment._worker.MEMORY", 0)
    vectors = LayerEmbeddings((0, 1), 4, {"": [3, 3]}, tmp_path, "key")
    vectors.put(np.arange(4), [np.ones((2, 4, 3), np.float32)])
    assert vectors.at(1).shape == (4, 3)
    flip(next(tmp_path.glob("*/1.f32")))
    with pytest.raises(DamageError, match="Embeddings cannot be read"):
        vectors.at(1)
    assert vectors.at(0).sum() == 12
