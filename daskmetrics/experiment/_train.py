"""Suites that a configuration trains: where they lie, and the gangs that train those of several ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client

from daskmetrics import training
from daskmetrics.config import DDP, Config, Model, Recipe
from daskmetrics.config import _checkpoints as checkpoints
from daskmetrics.config._checkpoints import LocatedSuite, Location
from daskmetrics.core._files import atomic_write, cache_folder
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, Suite, content_key
from daskmetrics.execution import Record
from daskmetrics.experiment._progress import Display
from daskmetrics.training._estimate import shape_of
from daskmetrics.training.ddp._driver import Job
from daskmetrics.training.ddp._driver import train as train_gang

OWNER = "suite.key"  # file in a named folder that says which recipe it belongs to


@dataclass(frozen=True)
class Training:
    """A suite that this run trains itself, in a folder that later runs share."""

    recipe: Recipe
    folder: Path
    key: Key


def find(config: Config) -> dict[str, Training]:
    """The suites that a configuration trains, by model.

    Raises
    ------
    ConfigError
        If a corpus, tokenizer or model to go on from cannot be read, or a named folder holds another suite.
    """
    return {model.name: _find(model, config.ddp) for model in config.models if model.train}


def _find(model: Model, gang: DDP) -> Training:
    assert model.train is not None
    key = training.recipe_key(model.train)
    shape_of(model.train)
    if gang.folder is None:
        return Training(model.train, cache_folder() / "suites" / key, key)
    folder = Path(gang.folder).expanduser() / model.name
    owner = folder / OWNER
    if folder.is_dir() and (not owner.is_file() or owner.read_text(encoding="utf-8").strip() != key):
        raise ConfigError(
            f"'{folder}' holds something else than the suite of this recipe. Choose another ddp.folder or name, or "
            "remove it."
        )
    return Training(model.train, folder.resolve(), key)


def found(model: Model, own: Training) -> LocatedSuite:
    """A suite that will be there once it is trained."""
    shape = shape_of(own.recipe)
    names = checkpoints.revisions_of(model, training.revisions(own.recipe))
    locations = tuple(Location(str(own.folder / name), None, content_key(own.key, name)) for name in names)
    suite = Suite(model.name, names, checkpoints.layers_of(model, shape.depth), shape.depth)
    return LocatedSuite(suite, locations, shape.width)


def jobs(config: Config, trainings: Mapping[str, Training]) -> list[Job]:
    """What gangs are to train, largest first."""
    gang = config.ddp.model_copy(update={"interface": config.ddp.interface or config.cluster.interface})
    made = [Job(name, own.recipe, own.folder, gang, config.cluster.workers) for name, own in trainings.items()]
    return sorted(made, key=lambda job: -shape_of(job.recipe).parameters * job.recipe.steps)


class Shown:
    """A gang's progress on the user's screen."""

    def __init__(self, display: Display) -> None:
        self.display = display

    def say(self, text: str) -> None:
        from rich.markup import escape

        self.display.say(escape(text))

    def took(self, job: Job, facts: Mapping[str, Any]) -> None:
        self.display.advance(job.name, told(job.recipe, facts), to=facts["took"])


def told(recipe: Recipe, facts: Mapping[str, Any]) -> str:
    """What a step showed, in a few words.

    Examples
    --------
    >>> told(Recipe(context=64), {"took": 8, "loss": 4.2, "rate": 100.0})
    'loss 4.200  100 samples/s  6,400 tokens/s'
    """
    words = [f"loss {facts['loss']:.3f}"]
    if facts.get("rate"):
        words += [f"{facts['rate']:,.0f} samples/s", f"{facts['rate'] * recipe.context:,.0f} tokens/s"]
    if "memory" in facts:
        words.append(f"GPU {facts['memory'] / 2**30:.1f} GiB")
    if "busy" in facts:
        words.append(f"{facts['busy']} % busy")
    return "  ".join(words)


def train(client: Client, config: Config, display: Display, trainings: Mapping[str, Training]) -> dict[str, Path]:
    """Train suites by gangs, one after the other, each over as many workers as its recipe has ranks.

    Parameters
    ----------
    client : distributed.Client
    config : Config
    display : Display
    trainings : mapping of str to Training
        As `find` gives them, or some of them.

    Returns
    -------
    dict
        The folder of each suite, with one folder per checkpoint.

    Raises
    ------
    ConfigError
        If a corpus cannot be read, or a machine lacks the memory.
    GangError
        If a gang fails time and again.
    """
    watch = Shown(display)
    for job in jobs(config, trainings):
        if not job.is_done:
            own_up(job.folder, trainings[job.name].key)
            display.phase(job.name, job.recipe.steps)
            train_gang(client, job, watch)
    return {name: own.folder for name, own in trainings.items()}


def records(trainings: Mapping[str, Training]) -> Iterator[Record]:
    """What gangs have trained, as records of a run."""
    for name, own in trainings.items():
        for revision in training.revisions(own.recipe):
            told = training.summary(own.folder, revision)
            key = content_key("train", own.key, revision)
            yield Record(key, f"{name}@{revision}", "train", "ok", told, seconds=told["seconds"])


def own_up(folder: Path, key: Key) -> None:
    """Write down whose folder this is."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / OWNER).exists():
        atomic_write(folder / OWNER, f"{key}\n")
