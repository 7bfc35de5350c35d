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
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel

from daskmetrics.config import DDP, Recipe
from daskmetrics.core.files import atomic_write, open_own
from daskmetrics.training import data as data
from daskmetrics.training import suite as suite
from daskmetrics.training.data import effective, staged
from daskmetrics.training.ddp.ranks import Program
from daskmetrics.training.progress import progress

REQUEST = "recipe.json"  # in the suite's folder: what is to be trained
PROGRESS = "progress.jsonl"  # there: the loss by step; a step that was repeated has two lines
MEASURED = "measured.json"  # there: what ranks that measure have found
POLL = 0.1  # seconds between two looks for the corpus


class Request(BaseModel):
    """What the ranks do: they train, or measure by one of `_probes`."""

    recipe: Recipe
    ddp: DDP
    probe: str | None


def program(name: str, recipe: Recipe, folder: Path, ddp: DDP, probe: str | None = None) -> Program:
    """This module as a program that trains a suite, or measures; its request is written into the
    suite's folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    request = Request(recipe=recipe, ddp=ddp, probe=probe).model_dump_json(indent=2)
    atomic_write(folder / REQUEST, request)
    return Program(
        name,
        ("-m", "daskmetrics.training.recipe", str(folder.absolute())),
        folder,
        recipe.ranks,
        least=1,
        timeout=ddp.timeout,
        patience=ddp.patience,
    )


def main(folder: Path) -> None:
    """Train, or measure, as one rank; the program ends once all revisions are written."""
    from daskmetrics.training._learning import process_group, train
    from daskmetrics.training._probes import PROBES

    request = Request.model_validate_json((folder / REQUEST).read_bytes())
    recipe = request.recipe
    ddp = request.ddp
    if os.environ["RANK"] == "0":
        data.write_corpus(recipe, folder)
    while not (folder / "corpus").is_dir():  # before the time of the process group runs
        time.sleep(POLL)
    with (
        process_group(ddp.timeout) as world,
        staged(folder / "corpus", ddp.stage, lambda: world.gather(None)) as corpus,
    ):
        tokens = data.read(corpus)

        def show(step: int, loss: float) -> None:
            samples = step * effective(recipe)
            seen = samples * recipe.context
            progress(step, recipe.steps, loss=loss, samples=samples, tokens=seen)
            if world.is_leader:
                with open_own(folder / PROGRESS, "ab") as file:
                    # the first sign ends what a killed rank wrote half
                    file.write(b"\n" + json.dumps({"step": step, "loss": loss}).encode())

        if request.probe:
            measured = PROBES[request.probe](recipe, tokens, world)
            if world.is_leader:
                atomic_write(folder / MEASURED, json.dumps(asdict(measured)))
        else:
            train(recipe, folder, suite.revisions(recipe), tokens, ddp, world, show)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
