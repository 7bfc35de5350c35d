"""What a configuration trains, by the built-in program or one's own."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from distributed import Client

from daskmetrics import training
from daskmetrics.checkpoints.folders import revisions_of
from daskmetrics.checkpoints.locations import LocatedSuite, Location, layers_of
from daskmetrics.cluster.slurm.partitions import account_limits
from daskmetrics.config import Config, Model, Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder, atomic_write, cache_folder, expanded
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.machine import workers
from daskmetrics.core.telemetry import RANK
from daskmetrics.domain.names import Suite, step_of
from daskmetrics.domain.results import Trained
from daskmetrics.domain.training import Progress
from daskmetrics.execution import Record
from daskmetrics.execution.display import Display
from daskmetrics.training.data import with_steps
from daskmetrics.training.ddp.driver import Places, launch
from daskmetrics.training.ddp.ranks import Program
from daskmetrics.training.suite import missing_revisions, parameters

OWNER = "suite.key"  # file in a named folder that holds the key of its suite


@dataclass(frozen=True)
class TrainedSuite:
    """A suite that a run trains, and that later runs share."""

    recipe: Recipe
    folder: Path
    key: Key
    epochs: float = 0.0  # that were asked for in place of steps
    until: float = math.inf  # the last step that is needed

    def up_to(self, revisions: Iterable[str]) -> TrainedSuite:
        """The suite, trained no further than these revisions need."""
        return replace(self, until=max(step_of(revision) or 0 for revision in revisions))

    @property
    def missing(self) -> tuple[str, ...]:
        """The revisions that are still to be trained, oldest first."""
        return missing_revisions(self.recipe, self.folder, self.until)

    @property
    def is_done(self) -> bool:
        """Whether all of its checkpoints are there."""
        return not self.missing

    def record_key(self, revision: str) -> Key:
        """Of the record of a revision's training."""
        return content_key("train", self.key, revision)

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


def programs(config: Config, folder: Path = Path()) -> list[Program]:
    """The programs by which a run trains all of its models, if any.

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
    return [
        program_of(model, config, RunFolder(folder).training / model.name)
        for model in config.models
    ]


def program_of(model: Model, config: Config, folder: Path) -> Program:
    """The training program of a model.

    What its ranks print is kept in the folder.

    Raises
    ------
    ConfigError
        If there is no such program, or the cluster has too few workers for its ranks.
    """
    script = model.program
    assert script is not None
    path = expanded(script.script)
    if path.suffix == ".py":
        if not path.is_file():
            raise ConfigError(f"Model '{model.name}': no program '{script.script}' is here.")
    elif shutil.which(script.script) is None:
        raise ConfigError(
            f"Model '{model.name}': '{script.script}' is neither a Python file nor a command."
        )
    cluster = config.cluster
    if script.ranks > cluster.workers and cluster.is_ours:
        raise ConfigError(
            f"Model '{model.name}' has {script.ranks} ranks, and the cluster {cluster.workers} "
            f"workers, one for each rank: --workers {script.ranks}, or fewer ranks."
        )
    return Program(
        model.name,
        (str(path), *script.args),
        folder.absolute(),
        script.ranks,
        least=script.ranks,
        timeout=config.ddp.timeout,
        patience=max(config.ddp.patience, cluster.patience),
        restarts=script.max_restarts,
        interface=cluster.interface,
    )


def recipe_programs(suites: Mapping[str, TrainedSuite], config: Config) -> list[Program]:
    """The programs that train what is missing, the longest one first."""
    missing = {name: suite.recipe for name, suite in suites.items() if not suite.is_done}
    work = {name: parameters(recipe) * recipe.steps for name, recipe in missing.items()}
    longest_first = sorted(work, key=work.__getitem__, reverse=True)
    return [recipe_program(name, suites[name], config) for name in longest_first]


def recipe_program(name: str, suite: TrainedSuite, config: Config) -> Program:
    """The built-in program that trains a suite, whose folder it claims."""
    suite.claim()
    recipe = suite.recipe
    cluster = config.cluster
    words = recipe.words
    if suite.until < math.inf:
        words += (f"--until={suite.until}",)
    patience = config.ddp.patience
    if recipe.ranks == 1:  # there are no fewer
        patience = max(patience, cluster.patience)
    return Program(
        name,
        ("-m", "daskmetrics.training.recipe", str(suite.folder.absolute()), *words),
        suite.folder,
        recipe.ranks,
        least=1,
        timeout=config.ddp.timeout,
        patience=patience,
        interface=cluster.interface,
        workers=cluster.workers,
    )


@dataclass(frozen=True)
class Trainings:
    """Programs that train while the driver does other work."""

    client: Client
    futures: Mapping[str, Future[None]]  # by the name of the program
    places: Places

    @property
    def ended(self) -> bool:
        """Whether all programs have ended, well or not."""
        return all(future.done() for future in self.futures.values())

    @property
    def succeeded(self) -> list[str]:
        """The names of the programs that have ended well."""
        return [
            name
            for name, future in self.futures.items()
            if future.done() and not future.exception()
        ]

    def leave_workers(self) -> bool:
        """Whether a worker has no rank, nor is about to get one."""
        return any(
            address not in self.places.taken and RANK not in worker["metrics"]
            for address, worker in workers(self.client).items()
        )

    def wait(self) -> None:
        """Wait for the programs; raises the error of one that fails."""
        for future in as_completed(self.futures.values()):
            future.result()


@contextmanager
def trainings(
    client: Client, programs: Sequence[Program], config: Config, display: Display
) -> Iterator[Trainings]:
    """Let programs train until the block ends.

    They train side by side if each has one rank, else one after the other. The limits of the user's
    accounts are shown before, where Slurm knows them.
    """
    if programs and config.cluster.in_slurm:
        for source, limits in account_limits():
            values = ", ".join(f"{name}={value}" for name, value in limits.items())
            display.say(f"Limit of {source}: {values}")
    stop = threading.Event()
    places = Places()
    observer = DisplayObserver(display)

    def run(program: Program) -> None:
        if not stop.is_set():
            launch(client, program, observer, stop.is_set, places)

    with ThreadPoolExecutor(at_once(programs), "training") as pool:
        try:
            futures = {program.name: pool.submit(run, program) for program in programs}
            yield Trainings(client, futures, places)
        finally:
            stop.set()


def at_once(programs: Sequence[Program]) -> int:
    """How many programs train at once, where there are workers."""
    if any(program.ranks > 1 for program in programs):
        return 1
    return max(1, len(programs))


@dataclass
class DisplayObserver:
    """Shows a process group's progress on the user's screen."""

    display: Display
    totals: dict[str, int] = field(default_factory=dict)  # steps, by program

    def message(self, text: str) -> None:
        self.display.say(text)

    def progressed(self, program: Program, progress: Progress) -> None:
        bar = program.name
        total = progress.total
        if total is None:
            self.display.say(f"{bar}: step {progress.step:,}  {progress.text}")
            return
        if total != self.totals.get(bar):
            self.totals[bar] = total
            self.display.phase(bar, total, progress.step)
        self.display.advance(bar, progress.text, to=progress.step)


def train(
    client: Client,
    config: Config,
    display: Display,
    suites: Mapping[str, TrainedSuite],
    programs: Sequence[Program] = (),
) -> dict[str, Path]:
    """Train suites, and by programs; returns the folder of each suite.

    A training that fails repeatedly is a `ProcessGroupError`.
    """
    wanted = (*recipe_programs(suites, config), *programs)
    with trainings(client, wanted, config, display) as running:
        running.wait()
    return {name: suite.folder for name, suite in suites.items()}


def own_revisions(
    suites: Mapping[str, TrainedSuite], recorded: Container[Key], began: float
) -> dict[str, list[str]]:
    """The revisions of each suite that a run trains, or has trained since it began.

    Those that were there before are of other runs. One that a killed run could not record any more
    is its own.
    """
    own = {}
    for name, suite in suites.items():
        missing = suite.missing
        own[name] = [
            revision
            for revision in training.revisions(suite.recipe)
            if revision in missing
            or suite.record_key(revision) in recorded
            or training.trained_at(suite.folder, revision) >= began
        ]
    return own


def records(
    suites: Mapping[str, TrainedSuite],
    revisions: Mapping[str, Iterable[str]],
    recorded: Container[Key],
) -> Iterator[Record]:
    """Those of these revisions that are trained and not yet recorded, as records of a run."""
    for name, suite in suites.items():
        for revision in revisions[name]:
            key = suite.record_key(revision)
            if key in recorded or not training.is_complete(suite.folder, revision):
                continue
            result = Trained(**training.summary(suite.folder, revision))
            yield Record(
                key,
                f"{name}@{revision}",
                "train",
                "ok",
                result,
                seconds=result.seconds,
                at=training.trained_at(suite.folder, revision),
            )
