"""What a configuration trains: suites by the built-in recipe, those with several ranks by process
groups, and programs of the user's own.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from distributed import Client

from daskmetrics import training
from daskmetrics.checkpoints.folders import revisions_of
from daskmetrics.checkpoints.locations import LocatedSuite, Location, layers_of
from daskmetrics.cluster.slurm.partitions import account_limits
from daskmetrics.config import Config, Model, Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import atomic_write, cache_folder, expanded
from daskmetrics.core.names import Key, Suite, content_key
from daskmetrics.core.results import Trained
from daskmetrics.execution import Record
from daskmetrics.execution.display import Display
from daskmetrics.training.data import with_steps
from daskmetrics.training.ddp.driver import launch
from daskmetrics.training.ddp.ranks import Program, Progress
from daskmetrics.training.recipe import program as recipe_program
from daskmetrics.training.suite import parameters

OWNER = "suite.key"  # file in a named folder that holds the key of its suite
TELEMETRY = "telemetry.jsonl"  # in the folder of a suite that the command `train` trained


@dataclass(frozen=True)
class TrainedSuite:
    """A suite that this run trains, in a folder that later runs share."""

    recipe: Recipe
    folder: Path
    key: Key
    epochs: float = 0.0  # that were asked for in place of steps

    @property
    def is_done(self) -> bool:
        """Whether all of its checkpoints are there."""
        return all(
            training.is_complete(self.folder, revision)
            for revision in training.revisions(self.recipe)
        )

    def located(self, model: Model) -> LocatedSuite:
        """The suite as it will be after training."""
        depth = self.recipe.depth
        names = revisions_of(model, training.revisions(self.recipe))
        locations = tuple(
            Location(str(self.folder / name), None, content_key(self.key, name)) for name in names
        )
        suite = Suite(model.name, names, layers_of(model, depth), depth)
        return LocatedSuite(suite, locations, self.recipe.width)

    def claim(self) -> None:
        """Create the folder and write into it which suite it belongs to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / OWNER).exists():
            atomic_write(self.folder / OWNER, f"{self.key}\n")


def suites_to_train(config: Config) -> dict[str, TrainedSuite]:
    """The suites that a configuration trains, by model."""
    suites = {}
    for model in config.models:
        if not model.recipe:
            continue
        recipe = with_steps(model.recipe, cache_folder())
        key = training.recipe_key(recipe)
        folder = cache_folder() / "suites" / key
        if config.ddp.folder is not None:
            folder = expanded(config.ddp.folder) / model.name
            owner = folder / OWNER
            if folder.is_dir() and not (
                owner.is_file() and owner.read_text(encoding="utf-8").strip() == key
            ):
                raise ConfigError(
                    f"'{folder}' does not hold the suite of this recipe. Choose another ddp.folder"
                    " or model name, or remove it."
                )
            folder = folder.resolve()
        suites[model.name] = TrainedSuite(recipe, folder, key, model.recipe.epochs or 0.0)
    return suites


def largest_first(suites: Mapping[str, TrainedSuite]) -> list[tuple[str, TrainedSuite]]:
    """Models and their suites, by the work of a training."""
    work = {name: parameters(suite.recipe) * suite.recipe.steps for name, suite in suites.items()}
    return sorted(suites.items(), key=lambda item: work[item[0]], reverse=True)


def programs(config: Config, folder: Path = Path()) -> list[Program]:
    """The programs with which a run trains all of its models while it follows them; empty if it
    trains by none.

    Raises
    ------
    ConfigError
        If it has other models, too, or a program cannot be started.
    """
    if not any(model.program for model in config.models):
        return []
    for model in config.models:
        if model.program is None or model.program.checkpoints is None:
            raise ConfigError(
                f"Model '{model.name}' has no 'train: {{script: ..., checkpoints:"
                " out/checkpoint-*}'. A run that trains by a program needs the place of its"
                " checkpoints, and only such models; name others in a configuration of their own."
            )
    return [program_of(model, config, folder / "training" / model.name) for model in config.models]


def program_of(model: Model, config: Config, folder: Path) -> Program:
    """The training program of a model; what its ranks print is kept in a folder.

    Raises
    ------
    ConfigError
        If there is no such program, or the cluster has too few workers for its ranks.
    """
    script = model.program
    assert script is not None
    if script.script.endswith(".py"):
        if not expanded(script.script).is_file():
            raise ConfigError(f"Model '{model.name}': no program '{script.script}' is here.")
    elif shutil.which(script.script) is None:
        raise ConfigError(
            f"Model '{model.name}': '{script.script}' is neither a Python file nor a command."
        )
    cluster = config.cluster
    if script.ranks > cluster.workers and cluster.kind in ("local", "slurm", "allocation"):
        raise ConfigError(
            f"Model '{model.name}' has {script.ranks} ranks, and the cluster {cluster.workers} "
            f"workers, one for each rank: --workers {script.ranks}, or fewer ranks."
        )
    path = str(expanded(script.script))
    return Program(
        model.name,
        (path, *script.args),
        folder.absolute(),
        script.ranks,
        least=script.ranks,
        timeout=config.ddp.timeout,
        patience=max(config.ddp.patience, cluster.patience),
        restarts=script.max_restarts,
        interface=cluster.interface,
    )


@contextmanager
def programs_beside(
    client: Client, programs: Sequence[Program], display: Display
) -> Iterator[tuple[Future[None], list[str]]]:
    """Training programs that run one after the other in a thread, while others use the client; the
    ranks end with the block.

    Gives the future of all of them, which has the error for which a program has ended, and the
    names of those that have ended well so far.
    """
    finished: list[str] = []
    stop = threading.Event()

    def run() -> None:
        for program in programs:
            launch(client, program, DisplayObserver(display), stop.is_set)
            if stop.is_set():
                return
            finished.append(program.name)

    with ThreadPoolExecutor(1, "training") as pool:
        try:
            yield pool.submit(run), finished
        finally:
            stop.set()


@dataclass
class DisplayObserver:
    """Shows a process group's progress on the user's screen."""

    display: Display

    def message(self, text: str) -> None:
        self.display.say(text)

    def progressed(self, program: Program, progress: Progress) -> None:
        bar = program.name
        epoch = progress.numbers.get("epoch")
        if epoch is not None and progress.is_of_epoch:
            bar = f"{bar} epoch {epoch:.0f}"
        if bar not in self.display.phases:
            if progress.total is None:
                self.display.say(f"{bar}: step {progress.step:,}  {progress.text}")
                return
            self.display.phase(bar, progress.total)
        self.display.advance(bar, progress.text, to=progress.step)


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
    cluster = config.cluster
    missing = [(name, suite) for name, suite in largest_first(suites) if not suite.is_done]
    if missing and cluster.kind in ("slurm", "allocation"):
        for source, limits in account_limits():
            values = ", ".join(f"{name}={value}" for name, value in limits.items())
            display.say(f"Limit of {source}: {values}")
    for name, suite in missing:
        suite.claim()
        program = replace(
            recipe_program(name, suite.recipe, suite.folder, config.ddp),
            interface=cluster.interface,
            workers=cluster.workers,
            telemetry=telemetry or suite.folder / TELEMETRY,
        )
        launch(client, program, DisplayObserver(display))
    return {name: suite.folder for name, suite in suites.items()}


def records(suites: Mapping[str, TrainedSuite]) -> Iterator[Record]:
    """The checkpoints that process groups have trained, as records of a run."""
    for name, suite in suites.items():
        for revision in training.revisions(suite.recipe):
            summary = Trained(**training.summary(suite.folder, revision))
            key = content_key("train", suite.key, revision)
            yield Record(key, f"{name}@{revision}", "train", "ok", summary, seconds=summary.seconds)
