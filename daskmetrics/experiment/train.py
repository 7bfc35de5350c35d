"""Suites that a configuration trains: their folders, and the training of those with several ranks
by process groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distributed import Client

from daskmetrics import training
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.locations import LocatedSuite, Location
from daskmetrics.cluster.slurm.partitions import account_limits
from daskmetrics.config import Config, Model, Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import atomic_write, cache_folder
from daskmetrics.core.names import Key, Suite, content_key
from daskmetrics.core.results import Trained
from daskmetrics.execution import Record
from daskmetrics.execution.display import Display
from daskmetrics.training.ddp.driver import train as train_by_ddp
from daskmetrics.training.ddp.ranks import DdpTraining
from daskmetrics.training.estimate import shape_of
from daskmetrics.training.suite import with_steps

OWNER = "suite.key"  # file in a named folder that holds the key of its suite
TELEMETRY = "telemetry.jsonl"  # in the folder of a suite that the command `train` trained


@dataclass(frozen=True)
class TrainedSuite:
    """A suite that this run trains, in a folder that later runs share."""

    recipe: Recipe
    folder: Path
    key: Key

    def located(self, model: Model) -> LocatedSuite:
        """The suite as it will be after training."""
        shape = shape_of(self.recipe)
        names = checkpoints.revisions_of(model, training.revisions(self.recipe))
        locations = tuple(
            Location(str(self.folder / name), None, content_key(self.key, name)) for name in names
        )
        suite = Suite(model.name, names, checkpoints.layers_of(model, shape.depth), shape.depth)
        return LocatedSuite(suite, locations, shape.width)

    def claim(self) -> None:
        """Create the folder and write into it which suite it belongs to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / OWNER).exists():
            atomic_write(self.folder / OWNER, f"{self.key}\n")


def suites_to_train(config: Config) -> dict[str, TrainedSuite]:
    """The suites that a configuration trains, by model."""
    suites = {}
    for model in config.models:
        if not model.train:
            continue
        recipe = with_steps(model.train, cache_folder())
        key = training.recipe_key(recipe)
        shape_of(recipe)  # an error of the recipe is one now
        folder = cache_folder() / "suites" / key
        if config.ddp.folder is not None:
            folder = Path(config.ddp.folder).expanduser() / model.name
            owner = folder / OWNER
            if folder.is_dir() and not (
                owner.is_file() and owner.read_text(encoding="utf-8").strip() == key
            ):
                raise ConfigError(
                    f"'{folder}' does not hold the suite of this recipe. Choose another ddp.folder or model name, or "
                    "remove it."
                )
            folder = folder.resolve()
        suites[model.name] = TrainedSuite(recipe, folder, key)
    return suites


def ddp_trainings(config: Config, suites: Mapping[str, TrainedSuite]) -> list[DdpTraining]:
    """The trainings of these suites by process groups, largest first."""
    trainings = [
        DdpTraining(
            name,
            suite.recipe,
            suite.folder,
            config.ddp,
            config.cluster.interface,
            config.cluster.workers,
        )
        for name, suite in suites.items()
    ]
    return sorted(
        trainings, key=lambda group: -shape_of(group.recipe).parameters * group.recipe.steps
    )


@dataclass
class _DisplayObserver:
    """Shows a process group's progress on the user's screen."""

    display: Display

    def message(self, text: str) -> None:
        self.display.say(text)

    def step_done(self, training: DdpTraining, report: Mapping[str, Any]) -> None:
        self.display.advance(training.name, step_text(training.recipe, report), to=report["took"])


def step_text(recipe: Recipe, report: Mapping[str, Any]) -> str:
    """A step's report in a few words.

    >>> step_text(Recipe(context=64), {"took": 8, "loss": 4.2, "rate": 100.0})
    'loss 4.200  100 samples/s  6,400 tokens/s'
    """
    words = [f"loss {report['loss']:.3f}"]
    if report.get("rate"):
        words += [
            f"{report['rate']:,.0f} samples/s",
            f"{report['rate'] * recipe.context:,.0f} tokens/s",
        ]
    if "memory" in report:
        words.append(f"GPU {report['memory'] / 2**30:.1f} GiB")
    return "  ".join(words)


def train(
    client: Client,
    config: Config,
    display: Display,
    suites: Mapping[str, TrainedSuite],
    telemetry: Path | None = None,
) -> dict[str, Path]:
    """Train suites by process groups, one after the other, each on as many workers as its recipe
    has ranks.

    What the workers use is kept in the file ``telemetry``, or by default in one in the folder of
    each suite.

    Returns the folder of each suite, with one folder per checkpoint. A process group that fails
    repeatedly is a `ProcessGroupError`.
    """
    missing = [group for group in ddp_trainings(config, suites) if not group.is_done]
    if missing and config.cluster.kind in ("slurm", "allocation"):
        for line in account_limits():
            display.say(f"Limit of {line}")
    for group in missing:
        suites[group.name].claim()
        display.phase(group.name, group.recipe.steps)
        file = telemetry or group.folder / TELEMETRY
        train_by_ddp(client, replace(group, telemetry=file), _DisplayObserver(display))
    return {name: suite.folder for name, suite in suites.items()}


def records(suites: Mapping[str, TrainedSuite]) -> Iterator[Record]:
    """The checkpoints that process groups have trained, as records of a run."""
    for name, suite in suites.items():
        for revision in training.revisions(suite.recipe):
            summary = Trained(**training.summary(suite.folder, revision))
            key = content_key("train", suite.key, revision)
            yield Record(key, f"{name}@{revision}", "train", "ok", summary, seconds=summary.seconds)
