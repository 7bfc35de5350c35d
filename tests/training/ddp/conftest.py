from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client

from daskmetrics.cluster import connect
from daskmetrics.config import DDP, Cluster, Recipe
from daskmetrics.training import revisions
from daskmetrics.training.ddp.ranks import Program, Progress
from daskmetrics.training.recipe import program

SAVED = (0, 20, 60, 100, 140)
RECIPE = Recipe(
    width=32,
    depth=2,
    heads=2,
    context=32,
    batch=8,
    steps=400,
    ranks=2,
    checkpoints=SAVED,
    corpus="stdlib",
)


@dataclass(frozen=True)
class Training:
    """A suite that two ranks train; a test may change its program."""

    recipe: Recipe
    folder: Path
    timeout: float = 20.0
    patience: float = 120.0
    telemetry: Path | None = None

    @property
    def revisions(self) -> tuple[str, ...]:
        return revisions(self.recipe)

    def program(self) -> Program:
        ddp = DDP(timeout=self.timeout, patience=self.patience, save_every=10)
        started = program("tiny", self.recipe, self.folder, ddp)
        return replace(started, telemetry=self.telemetry)


@dataclass
class Recorder:
    """Records what a user would see."""

    lines: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def message(self, text: str) -> None:
        self.lines.append(text)

    def progressed(self, program: Program, progress: Progress) -> None:
        self.steps.append(progress.step)

    def failures(self) -> list[str]:
        return [line for line in self.lines if "failed first" in line]


@pytest.fixture(scope="package")
def client() -> Iterator[Client]:
    """Two workers, which tests kill; they ignore Ctrl-C as those that a run has used, and the ranks
    that they start do not.
    """
    with connect(Cluster(workers=2)) as client:
        client.run(lambda: bool(signal.signal(signal.SIGINT, signal.SIG_IGN)))
        yield client


@pytest.fixture
def observer() -> Recorder:
    return Recorder()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text(
        "\n".join(f"{n} times seven is {7 * n}, as everyone knows." for n in range(400)),
        encoding="utf-8",
    )
    return path


@pytest.fixture
def make_training(corpus, tmp_path):
    """Makes a training in its own folder."""

    def make(timeout: float = 20.0, patience: float = 120.0, **changes: Any) -> Training:
        recipe = Recipe.model_validate({**RECIPE.model_dump(), "corpus": str(corpus), **changes})
        return Training(recipe, tmp_path / "suite", timeout, patience)

    return make


def weights(training: Training) -> bytes:
    return (training.folder / training.revisions[-1] / "model.safetensors").read_bytes()


class Planted:
    """Faults, each injected once a revision is complete; ``ranks`` collects all rank processes.

    A process group gets one fault: the next fault waits for the next process group.

    Parameters
    ----------
    training : Training
    faults : mapping of int to (rank, signal or "worker")
        Faults by step of the revision.
    """

    def __init__(
        self, training: Training, faults: Mapping[int, tuple[int, signal.Signals | str]]
    ) -> None:
        self.training, self.faults = training, dict(faults)
        self.ranks, self._seen = set[psutil.Process](), set[psutil.Process]()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Planted:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        hit: set[psutil.Process] = set()  # the process group that had the last fault
        while not self._end.wait(0.01):
            living = self._ranks_alive()
            self.ranks |= set(living.values())
            for step, (rank, fault) in (
                () if hit & set(living.values()) else sorted(self.faults.items())
            ):
                if (
                    self.training.folder / f"step{step}" / "training.json"
                ).exists() and rank in living:
                    del self.faults[step]
                    self._inject(living[rank], fault)
                    hit = set(living.values())
                    break

    def _inject(self, process: psutil.Process, fault: signal.Signals | str) -> None:
        with suppress(psutil.NoSuchProcess):
            if fault == "worker":
                process.parent().kill()
            else:
                os.kill(process.pid, fault)

    def _ranks_alive(self) -> dict[int, psutil.Process]:
        """Rank processes of this test, by rank: on one machine the local number is the rank."""
        ranks = {}
        for process in psutil.Process().children(recursive=True):
            # it ends, or begins, meanwhile
            with suppress(psutil.Error, ProcessLookupError, KeyError):
                if (
                    process.status() != "zombie"
                    and "daskmetrics.training._rank" in process.cmdline()
                ):
                    self._seen.add(process)
                    if os.getsid(process.pid) == process.pid:  # the others are its loaders
                        ranks[int(process.environ()["LOCAL_RANK"])] = process
        return ranks

    def orphans(self) -> list[psutil.Process]:
        _, alive = psutil.wait_procs(self._seen, timeout=20)
        return alive
