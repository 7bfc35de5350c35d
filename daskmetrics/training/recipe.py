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
from dataclasses import asdict, dataclass
from pathlib import Path

from daskmetrics.config import DDP, Recipe
from daskmetrics.core import files as files
from daskmetrics.training import suite as suite
from daskmetrics.training.data import effective, staged
from daskmetrics.training.ddp.ranks import Program
from daskmetrics.training.progress import progress, report

REQUEST = "recipe.json"  # in the suite's folder: what is to be trained
PROGRESS = "progress.jsonl"  # there: the loss by step; a step that was repeated has two lines
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
            memory=suite.memory(self.recipe),
            telemetry=self.telemetry,
        )


def main(folder: Path) -> None:
    """Train, or measure, as one rank; the program ends once all revisions are written."""
    from daskmetrics.training import _learning as learning
    from daskmetrics.training._distributed import process_group
    from daskmetrics.training._probes import PROBES

    request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    recipe, ddp = Recipe.model_validate(request["recipe"]), DDP.model_validate(request["ddp"])
    if os.environ["RANK"] == "0":
        suite.write_corpus(recipe, folder)
    while not (folder / "corpus").is_dir():  # before the time of the process group runs
        time.sleep(POLL)
    with process_group(ddp.timeout) as world:
        if request["probe"]:
            with staged(folder / "corpus", ddp.stage, lambda: world.gather(None)) as corpus:
                measured = PROBES[request["probe"]](recipe, corpus, world)
            report(measured=asdict(measured))
            return

        def show(step: int, loss: float) -> None:
            sequences = step * effective(recipe)
            tokens = sequences * recipe.context
            progress(step, recipe.steps, loss=loss, samples=sequences, tokens=tokens)
            if world.is_leader:
                with (folder / PROGRESS).open("a", encoding="utf-8") as file:
                    # the first sign ends what a killed rank wrote half
                    file.write("\n" + json.dumps({"step": step, "loss": loss}))

        learning.train(recipe, folder, suite.revisions(recipe), ddp, world, show)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
