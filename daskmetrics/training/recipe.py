"""The built-in recipe as a training program: ``python -m daskmetrics.training.recipe FOLDER``, once
for each rank.

It trains what ``recipe.json`` in the folder asks for, as one of the ranks that the variables of
``torchrun`` describe. Started again, it resumes from its newest state.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from daskmetrics.config import DDP, Recipe
from daskmetrics.core import files as files
from daskmetrics.training import suite as suite
from daskmetrics.training.data import effective
from daskmetrics.training.ddp.ranks import Program
from daskmetrics.training.estimate import memory
from daskmetrics.training.progress import progress, report

if TYPE_CHECKING:
    from daskmetrics.training._distributed import World

REQUEST = "recipe.json"  # in the suite's folder: what is to be trained
PROGRESS = "progress.jsonl"  # there: the loss by step
POLL = 0.1  # seconds between two looks for the corpus


@dataclass(frozen=True)
class DdpTraining:
    """A suite to be trained by a process group."""

    name: str
    recipe: Recipe
    folder: Path
    ddp: DDP
    interface: str | None = None  # network interface between ranks
    workers: int | None = None  # largest number; further ranks are not waited for
    probe: str | None = None  # measure this instead of training; see `_probes`
    telemetry: Path | None = None  # file for what the workers use meanwhile

    @property
    def revisions(self) -> tuple[str, ...]:
        return suite.revisions(self.recipe)

    @property
    def is_done(self) -> bool:
        return all(suite.is_complete(self.folder, revision) for revision in self.revisions)

    def program(self) -> Program:
        """This module as a program, with its request in the suite's folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        request = {
            "recipe": self.recipe.model_dump(mode="json"),
            "ddp": self.ddp.model_dump(mode="json"),
            "probe": self.probe,
        }
        files.atomic_write(self.folder / REQUEST, json.dumps(request, indent=2) + "\n")
        return Program(
            self.name,
            ("-m", "daskmetrics.training.recipe", str(self.folder.absolute())),
            self.folder,
            self.recipe.ranks,
            least=1,
            timeout=self.ddp.timeout,
            patience=self.ddp.patience,
            restarts=0 if self.probe else Program.restarts,
            interface=self.interface,
            workers=self.workers,
            memory=memory(self.recipe),
            variables=(("OMP_NUM_THREADS", str(self.recipe.threads)),),
            telemetry=self.telemetry,
        )


def main(folder: Path) -> None:
    """Train, or measure, as one rank; the program ends once all revisions are written."""
    from daskmetrics.training import _learning as learning
    from daskmetrics.training._probes import PROBES
    from daskmetrics.training._stage import staged

    request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    recipe, ddp = Recipe.model_validate(request["recipe"]), DDP.model_validate(request["ddp"])
    _write_corpus(recipe, folder)
    with _world(ddp.timeout) as world:
        if request["probe"]:
            with staged(folder / "corpus", ddp.stage, world.wait) as corpus:
                measured = PROBES[request["probe"]](recipe, corpus, world, world.nodes())
            report(measured=measured)
            return
        if world.is_leader:
            _truncate(folder / PROGRESS, suite.newest_step(folder))

        def show(step: int, loss: float) -> None:
            sequences = step * effective(recipe)
            numbers = {"loss": loss, "samples": sequences, "tokens": sequences * recipe.context}
            if world.device != "cpu":
                numbers["memory"] = world.peak_memory()
            progress(step, recipe.steps, **numbers)
            if world.is_leader:
                with (folder / PROGRESS).open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"step": step, "loss": loss}) + "\n")

        learning.train(recipe, folder, suite.revisions(recipe), ddp, world, show)


def _write_corpus(recipe: Recipe, folder: Path) -> None:
    """Let rank 0 tokenize the corpus; the others wait, before the time of the process group runs."""
    if os.environ["RANK"] == "0":
        suite.write_corpus(recipe, folder)
    while not (folder / "corpus").is_dir():
        time.sleep(POLL)


@contextmanager
def _world(timeout: float) -> Iterator[World]:
    """This rank's view of the process group, once all ranks have arrived."""
    import torch
    import torch.distributed as dist

    from daskmetrics.training._distributed import World

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device, backend = "cpu", "gloo"
    if torch.cuda.is_available():
        device, backend = f"cuda:{os.environ['LOCAL_RANK']}", "nccl"
        torch.cuda.set_device(device)
    if size == 1:
        yield World(device=device)
        return
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    yield World(rank, size, device)
    dist.barrier()  # rank 0 writes last; the others wait for it
    dist.destroy_process_group()


def _truncate(path: Path, after: int) -> None:
    """Remove the lines of steps that will be repeated."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= after]
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
