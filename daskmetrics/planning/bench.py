"""The same work with several numbers of workers, in interleaved rounds, and the calibration that
results; short measurements by the ranks of a training.

The work is a part of an experiment, a training program, or a map, from the beginning.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import fsum
from operator import attrgetter
from pathlib import Path
from statistics import median_high

from distributed import Client
from rich.console import Console

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster, Config, Model
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.events import records
from daskmetrics.core.files import RunFolder
from daskmetrics.core.machine import usage, variable, workers
from daskmetrics.core.names import Checkpoint
from daskmetrics.core.table import Table
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import read
from daskmetrics.execution.map.api import run as run_map
from daskmetrics.execution.map.source import MapSpec
from daskmetrics.experiment import Display, Experiment, prepare, run
from daskmetrics.experiment import train as training
from daskmetrics.planning.estimate import (
    Calibration,
    Sample,
    exchange_seconds,
    samples,
    unit_seconds,
)
from daskmetrics.planning.options import NOTHING_SERIAL, makespan
from daskmetrics.planning.scaling import Bench, BenchTrial, fit
from daskmetrics.training.data import effective, write_corpus
from daskmetrics.training.ddp.driver import launch
from daskmetrics.training.ddp.ranks import Program, Progress
from daskmetrics.training.recipe import MEASURED
from daskmetrics.training.recipe import program as recipe_program

Runner = Callable[[Client, Path], BenchTrial]
"""Does the whole work again on a client's workers, with its files in a new folder, in that of the
bench."""


def bench(
    name: str,
    runner: Runner,
    profile: Cluster,
    counts: Sequence[int],
    repeats: int,
    *,
    on_start: Callable[[], None] | None,
    progress: Callable[[str], None],
) -> Bench:
    """Do the same work with each number of workers, in interleaved rounds: every other one runs in
    reverse order, so that a machine that becomes slower treats all numbers alike.

    ``on_start`` is called on every worker before the clock starts, for instance `warm`;
    ``progress`` is called with a line about each trial. Raises DaskmetricsError if workers do not
    arrive, or a trial did not finish a unit.
    """
    trials = []
    with new_folder() as root:
        for repeat in range(repeats):
            for n in counts[:: -1 if repeat % 2 else 1]:
                of_size = profile.model_copy(update={"workers": n})
                trial = _run_trial(runner, root, of_size, on_start)
                trials.append(replace(trial, repeat=repeat))
                progress(f"{n} workers, round {repeat + 1} of {repeats}: {trial.seconds:.1f} s")
    return Bench(name, tuple(trials), profile.threads)


@contextmanager
def new_folder() -> Iterator[Path]:
    """A folder in the present one, since workers must see it; it is removed with the block."""
    with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as root:
        yield Path(root).resolve()


def _run_trial(
    runner: Runner, root: Path, profile: Cluster, on_start: Callable[[], None] | None
) -> BenchTrial:
    """The work once, on workers of its own."""
    began = time.perf_counter()
    with connect(profile, wait=profile.workers) as client:
        if on_start is not None:
            client.run(on_start)
        start = time.perf_counter() - began
        trial = runner(client, Path(tempfile.mkdtemp(dir=root)))
        peaks = [used["memory"] for used in usage(client).workers.values()]
    if not trial.units:
        raise DaskmetricsError(
            "The work did not finish a single unit. Run it once without bench to see why."
        )
    # the processes of a trial can start, too, before its clock does
    return replace(trial, start=start + trial.start, memory=max(peaks, default=0))


def warm() -> None:
    """Import what the units of an experiment need, so that no unit's time includes it."""
    import sklearn.linear_model
    import torch
    import transformers

    torch.zeros(1)
    # transformers and scikit-learn import their parts when they are used
    assert transformers.PreTrainedModel and sklearn.linear_model.Ridge


def calibration_of(bench: Bench, device: str) -> Calibration:
    """What a bench has measured on a device, by the trials with the fewest workers; of a program
    by all, since its steps may depend on the number of ranks.
    """
    fewest = bench.fewest
    least = fewest[0].workers
    merged: dict[tuple[str, str, int], Sample] = {}  # of all rounds
    for trial in sorted(bench.trials, key=attrgetter("workers")):
        for sample in trial.samples:
            kind = sample.kind, sample.group, sample.ranks
            if kind in merged:
                sample = replace(sample, seconds=merged[kind].seconds + sample.seconds)
            if trial.workers == least or sample.kind == "program":
                merged[kind] = sample
    law = fit(bench.trials)
    serial = law.serial if law else NOTHING_SERIAL
    busy = fsum(fsum(map(fsum, trial.chains)) for trial in fewest)
    # workers without a unit at the end, and the serial share, are no overhead
    spans = fsum(makespan(trial.chains, trial.workers) for trial in fewest)
    ideal = spans + serial.value * (busy - spans)
    wall = fsum(trial.seconds for trial in fewest)
    return Calibration(
        device,
        samples=tuple(merged.values()),
        workers=max(trial.workers for trial in bench.trials),
        serial=serial.bounds,
        start=median_high(trial.start for trial in bench.trials),
        overhead=max(0.0, wall / ideal - 1.0) if ideal else 0.0,
    )


NO_RECIPE = "No model of the configuration has a 'train' recipe. Bench another --workload."
TRIAL = "{trial}"  # in an argument of a program: a new folder for each trial


def ranks_share(config: Config, phase: str) -> bool:
    """Whether all workers share each unit of a phase, as the ranks of a training do."""
    recipes = [model.recipe for model in config.models if model.recipe]
    return phase == "train" and any(recipe.ranks > 1 for recipe in recipes)


def experiment_runner(config: Config) -> Runner:
    """The runner of measuring and searching: each call runs both again, from suites that are
    trained once, before.
    """
    if any(model.recipe for model in config.models):
        only_training = prepare(config.model_copy(update={"tasks": (), "metrics": ()}))
        with connect(config.cluster) as client, new_folder() as root:
            _run_quietly(only_training, client, root, ())

    def runner(client: Client, folder: Path) -> BenchTrial:
        prepared = prepare(_with_workers(config, client))
        return _run_quietly(prepared, client, folder, ("measure", "score", "search"))

    return runner


def training_runner(config: Config) -> Runner:
    """The runner of the trainings by recipes: each call trains again, in a cache of the bench."""
    if not any(model.recipe for model in config.models):
        raise ConfigError(NO_RECIPE)
    ddp = config.ddp.model_copy(update={"folder": None})
    only_training = config.model_copy(update={"tasks": (), "metrics": (), "ddp": ddp})

    def runner(client: Client, folder: Path) -> BenchTrial:
        with variable("DASKMETRICS_CACHE", str(folder.parent / "cache")):
            sequences = 0.0
            for suite in training.suites_to_train(only_training).values():
                _remove_trained(suite)
                sequences += suite.recipe.steps * effective(suite.recipe)
            prepared = prepare(_with_workers(only_training, client))
            trial = _run_quietly(prepared, client, folder, ("train",))
        if not ranks_share(config, "train"):
            return trial
        # the processes of ranks start before their clock does
        steps = fsum(map(fsum, trial.chains))
        return replace(trial, seconds=steps, start=trial.seconds - steps, sequences=sequences)

    return runner


def _run_quietly(
    prepared: Experiment, client: Client, folder: Path, kinds: Sequence[str]
) -> BenchTrial:
    """Run an experiment in a folder without output; the trial has its units of these kinds."""
    run_folder = RunFolder(folder)
    began = time.perf_counter()
    run(prepared, run_folder, Display(Console(file=io.StringIO())), client)
    seconds = time.perf_counter() - began
    entries = tuple(read(run_folder.journal))
    units = [record for record in records(entries) if record.ok and record.kind in kinds]
    profile = prepared.config.cluster
    measured = samples(prepared, entries, profile)
    of_kinds = tuple(sample for sample in measured if sample.kind in kinds)
    return BenchTrial(profile.workers, seconds, _chains(units), of_kinds)


def _with_workers(config: Config, client: Client) -> Config:
    """The configuration with as many workers as there are; a search keeps all of them busy."""
    cluster = config.cluster.model_copy(update={"workers": len(workers(client))})
    return config.model_copy(update={"cluster": cluster})


def _remove_trained(suite: training.TrainedSuite) -> None:
    """Leave of a suite only its tokenized corpus, not what earlier trials have trained."""
    suite.claim()
    write_corpus(suite.recipe, suite.folder)
    for path in suite.folder.iterdir():
        if path.name in ("corpus", training.OWNER):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@dataclass
class Meter:
    """What a program reported, and when."""

    message: Callable[[str], None] = lambda text: None  # gets the lines for the user
    reports: list[tuple[float, Progress]] = field(default_factory=list)

    def progressed(self, program: Program, progress: Progress) -> None:
        self.reports.append((time.perf_counter(), progress))

    @property
    def steps(self) -> int:
        """From the first report to the last."""
        steps = 0
        for (_, before), (_, after) in pairwise(self.reports):
            steps += after.step
            # a bar of each epoch begins again, also where each shows its last step alone
            is_same = before.numbers.get("epoch") == after.numbers.get("epoch")
            if before.step <= after.step and (is_same or not after.is_of_epoch):
                steps -= before.step
        return steps


def epochs_done(progress: Progress) -> float:
    """The epochs that a program reports, with the share of the present one; 0 if it reports none."""
    epochs = progress.numbers.get("epoch")
    if epochs is None:
        return 0.0
    if progress.is_of_epoch and progress.total:
        epochs += progress.step / progress.total
    return epochs


def program_runner(model: Model, config: Config) -> Runner:
    """The runner of a training program: each call starts it with as many ranks as there are
    workers.

    The time is that from its first reported step to its last one. Where it reports samples, it is
    the time of as many samples as the first call has learned from, since a program may take as many
    steps with more ranks. `TRIAL` in an argument stands for a new folder.
    """
    script = model.program
    name = model.name
    assert script is not None
    work: list[float] = []  # samples of the first call

    def runner(client: Client, folder: Path) -> BenchTrial:
        args = tuple(arg.replace(TRIAL, str(folder)) for arg in script.args)
        changes = {"args": args, "ranks": len(workers(client)), "max_restarts": 0}
        changed = model.model_copy(update={"train": script.model_copy(update=changes)})
        program = training.program_of(changed, _with_workers(config, client), folder)
        meter = Meter()
        began = time.perf_counter()
        launch(client, program, meter)
        ended = time.perf_counter()
        if not meter.reports or meter.reports[0][1] == meter.reports[-1][1]:
            raise ConfigError(
                f"'{name}' reported fewer than two steps, so that it cannot be timed. Report"
                " them by daskmetrics.progress(step, total) or a bar of tqdm; if it resumed"
                f" from what an earlier trial saved, give it an argument with {TRIAL}, such as"
                f" --output_dir {TRIAL}/out."
            )
        (start, first_progress), *_, (end, last_progress) = meter.reports
        beside = ended - began - (end - start)  # before the first step and after the last one
        samples = last_progress.numbers.get("samples", 0.0)
        samples -= first_progress.numbers.get("samples", 0.0)
        share = 1.0
        if samples:
            work.append(samples)
            share = work[0] / samples
        seconds = share * (end - start)
        # whole numbers would be those of begun epochs
        begun = epochs_done(first_progress)
        epochs = 0.0
        if begun % 1:
            epochs = epochs_done(last_progress) - begun
        sample = Sample(
            "program",
            name,
            (seconds,),
            1.0,
            program.ranks,
            steps=share * meter.steps,
            samples=share * samples,
            epochs=share * epochs,
        )
        return BenchTrial(
            program.ranks,
            seconds,
            ((seconds,),),
            (sample,),
            start=beside,
            sequences=sample.samples,
        )

    return runner


def _chains(units: Sequence[Record]) -> tuple[tuple[float, ...], ...]:
    """Seconds of units: the training of a suite is one chain, and each other unit is one."""
    trained: dict[str, list[float]] = defaultdict(list)
    others = []
    for record in units:
        if record.kind == "train":
            trained[Checkpoint.parse(record.name).model].append(record.seconds)
        else:
            others.append(record)
    single = [(seconds,) for seconds in unit_seconds(others)]
    return (*map(tuple, trained.values()), *single)


def map_runner(spec: MapSpec) -> Runner:
    """The runner of a map: all items again at each call."""

    def runner(client: Client, folder: Path) -> BenchTrial:
        run_folder = RunFolder(folder)
        with Journal(run_folder.journal, run_folder.lock) as journal:
            began = time.perf_counter()
            results = run_map(spec, client, journal)
            seconds = time.perf_counter() - began
            batches = [record for record in journal.records() if record.ok]
        failed = [result for result in results if not result.ok]
        if failed:
            raise ConfigError(
                f"{len(failed)} items failed, the first with: {failed[0].reason}. "
                "Bench a function that succeeds."
            )
        item_seconds = sum(record.seconds for record in batches) / max(1, len(results))
        sample = Sample("map", spec.function.name, (item_seconds,), 1.0)
        chains = tuple((record.seconds,) for record in batches)
        return BenchTrial(len(workers(client)), seconds, chains, (sample,))

    return runner


def probe(
    config: Config,
    workload: str,
    workers: int,
    show: Callable[[str], None],
) -> tuple[list[Table], Calibration | None]:
    """Measure with this number of workers on the largest model that the configuration trains;
    returns tables of what the ranks measured, and the calibration that `plan` uses.

    Raises
    ------
    ConfigError
        If no model has a `train` section, or there are too few workers.
    """
    suites = training.suites_to_train(config)
    if not suites:
        raise ConfigError(NO_RECIPE)
    if workload == "allreduce" and workers < 2:
        raise ConfigError("An all-reduce needs two workers or more: --workers 2")
    name, suite = training.largest_first(suites)[0]
    ranks = 1 if workload == "precision" else workers
    suite.claim()
    recipe = suite.recipe.model_copy(update={"ranks": ranks})
    profile = config.cluster.model_copy(update={"workers": ranks})
    measuring = replace(
        recipe_program(name, recipe, suite.folder, config.ddp, workload),
        interface=profile.interface,
        workers=ranks,
        restarts=0,
    )
    with connect(profile) as client:
        launch(client, measuring, Meter(show))
    measured = json.loads((suite.folder / MEASURED).read_text(encoding="utf-8"))
    tables = []
    for table in measured["tables"]:
        title = f"{name}: {table.pop('title')}"
        tables.append(Table(**table, title=title))
    if not measured["exchange"]:
        return tables, None
    # an exchange takes (1 - 1/n) of what it takes among very many ranks
    many = ranks / (ranks - 1)
    seconds = tuple(max(1e-6, many * added) for added in measured["exchange"])
    sample = Sample("allreduce", name, seconds, exchange_seconds(recipe))
    return tables, Calibration(profile.device, samples=(sample,), workers=ranks)
