"""The same work with several numbers of workers, in interleaved rounds, and the calibration that
results. The work is a part of an experiment, or a map, from the beginning.
"""

from __future__ import annotations

import io
import math
import shutil
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count, product
from math import fsum
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
from daskmetrics.core.names import Cell, Checkpoint
from daskmetrics.core.results import Scored
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import read
from daskmetrics.execution.map.api import run as run_map
from daskmetrics.execution.map.source import MapSpec
from daskmetrics.experiment import Display, Experiment, prepare, run
from daskmetrics.experiment import train as training
from daskmetrics.planning import scaling
from daskmetrics.planning.calibration import Calibration, Sample, versions
from daskmetrics.planning.estimate import samples
from daskmetrics.planning.scaling import Amdahl, BenchTrial, ScalingRow, WorkerSize, makespan
from daskmetrics.training.data import effective
from daskmetrics.training.ddp.driver import launch
from daskmetrics.training.ddp.ranks import Program, Progress
from daskmetrics.training.suite import write_corpus


@dataclass(frozen=True)
class TrialResult:
    """What one trial took: the driver's seconds, and the seconds of each unit on its worker.

    Units that must follow each other are in one of ``chains``.
    """

    seconds: float
    chains: tuple[tuple[float, ...], ...]
    samples: tuple[Sample, ...]
    start: float = 0.0  # seconds in which processes of the trial started; not in ``seconds``
    sequences: float = 0.0  # that a training by process groups learned from
    memory: int = 0  # greatest peak of a worker in bytes


Runner = Callable[[Client], TrialResult]  # does the whole work again on a client's workers


@dataclass(frozen=True)
class Bench:
    """Trials and their analysis."""

    name: str  # of the work
    trials: tuple[BenchTrial, ...]
    chains: tuple[tuple[float, ...], ...]  # seconds of the units, measured with the fewest workers
    calibration: Calibration
    price: float | None = None  # of one worker for an hour
    cores: int = 1  # of a worker, which computed one unit at a time
    memory: int = 0  # bytes; the peak of such a worker

    @property
    def is_shared(self) -> bool:
        """Whether all workers share each unit, as in a training by process groups."""
        return any(trial.samples for trial in self.trials)

    @property
    def rows(self) -> tuple[ScalingRow, ...]:
        return scaling.rows(self.trials, self.price)

    @property
    def law(self) -> Amdahl | None:
        return scaling.fit(self.trials)

    @property
    def dispatch(self) -> float:
        """Seconds of the driver per unit: what the fewest workers took beyond their units, divided
        by the units.
        """
        workers = min(trial.workers for trial in self.trials)
        fewest = [trial for trial in self.trials if trial.workers == workers]
        busy = fsum(map(fsum, self.chains)) / workers
        idle = min(trial.seconds for trial in fewest) - busy
        return max(0.0, idle / max(1, fewest[0].units))

    def simulation(self, most: int) -> tuple[tuple[ScalingRow, ...], Amdahl | None]:
        """Rows of up to ``most`` simulated workers, from the measured seconds of the units, and
        Amdahl's law fitted to them.

        Workers that share each unit follow the measured law; ConfigError if it could not be fitted.
        """
        measured = self.trials[0]
        law = self.law

        def trial(workers: int) -> BenchTrial:
            if law and self.is_shared:
                seconds = law.seconds(workers)
            else:
                seconds = makespan(self.chains, workers, self.dispatch)
            return BenchTrial(workers, seconds, measured.units, samples=measured.samples)

        if law is None and self.is_shared:
            raise ConfigError("More workers are simulated from two measured numbers: --workers 1,2")
        trials = [trial(workers) for workers in scaling.doublings(most)]
        if not self.is_shared:
            law = scaling.fit(trials)
        return scaling.rows(trials, self.price, simulated=True), law

    def sizes(
        self,
        cores: Sequence[int],
        memory: Sequence[float | None],
        most: int,
    ) -> tuple[tuple[WorkerSize, float, float], ...]:
        """Simulated sizes of a worker, with the seconds of one and of ``most`` such workers; inf if
        no unit fits.

        Each unit takes the cores and the peak memory of the measured worker.
        """

        def seconds(workers: int, size: WorkerSize) -> float:
            if not size.units:
                return math.inf
            return makespan(self.chains, workers * size.units, self.dispatch)

        combinations = product(cores, memory)
        sizes = [WorkerSize.of(c, m, self.cores, self.memory) for c, m in combinations]
        return tuple((size, seconds(1, size), seconds(most, size)) for size in sizes)


def bench(
    name: str,
    runner: Runner,
    profile: Cluster,
    counts: Sequence[int],
    repeats: int,
    *,
    price: float | None = None,
    on_start: Callable[[], None] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Do the same work with each number of workers, in interleaved rounds.

    ``on_start`` is called on every worker before the clock starts, for instance `warm`;
    ``progress`` is called with a line about each trial. Raises DaskmetricsError if workers do not
    arrive, or a trial did not finish a unit.
    """
    trials: list[BenchTrial] = []
    fewest: list[TrialResult] = []
    for repeat, n in scaling.interleaved(counts, repeats):
        trial, result = _trial(runner, profile.model_copy(update={"workers": n}), repeat, on_start)
        trials.append(trial)
        if n == counts[0]:
            fewest.append(result)
        progress(f"{n} workers, round {repeat + 1} of {repeats}: {trial.seconds:.1f} s")
    chains = min(fewest, key=lambda result: result.seconds).chains
    peak = max(result.memory for result in fewest)
    return Bench(
        name,
        tuple(trials),
        chains,
        _calibration(trials, fewest, profile),
        price,
        profile.threads,
        peak,
    )


def _trial(
    runner: Runner, profile: Cluster, repeat: int, on_start: Callable[[], None] | None
) -> tuple[BenchTrial, TrialResult]:
    began = time.perf_counter()
    with connect(profile) as client:
        try:
            client.wait_for_workers(profile.workers, timeout=profile.patience)
        except TimeoutError:
            raise DaskmetricsError(
                f"Not all {profile.workers} workers arrived within {profile.patience:.0f} s. Use "
                "fewer with --workers, or allow more time with --set cluster.arrive_within=SECONDS."
            ) from None
        if on_start is not None:
            client.run(on_start)
        start = time.perf_counter() - began
        result = runner(client)
        result = replace(
            result,
            memory=max((used["memory"] for used in usage(client).workers.values()), default=0),
        )
    units = sum(map(len, result.chains))
    if not units:
        raise DaskmetricsError(
            "The work did not finish a single unit. Run it once without bench to see why."
        )
    return (
        BenchTrial(
            profile.workers, result.seconds, units, repeat, start + result.start, result.sequences
        ),
        result,
    )


def warm() -> None:
    """Import what the units of an experiment need, so that no unit's time includes it."""
    import torch
    import transformers

    torch.zeros(1)
    assert transformers


def _calibration(
    trials: Sequence[BenchTrial],
    fewest: Sequence[TrialResult],
    profile: Cluster,
) -> Calibration:
    merged: dict[tuple[str, str, int], Sample] = {}  # of all rounds
    for sample in chain.from_iterable(result.samples for result in fewest):
        kind = sample.kind, sample.group, sample.ranks
        if kind in merged:
            sample = replace(sample, seconds=merged[kind].seconds + sample.seconds)
        merged[kind] = sample
    calibration = Calibration(
        device=profile.device,
        host=socket.gethostname(),
        at=time.time(),
        versions=versions(),
        samples=tuple(merged.values()),
        workers=max(trial.workers for trial in trials),
        start=median_high(trial.start for trial in trials),
    )
    if law := scaling.fit(trials):
        calibration = replace(calibration, serial=law.serial.bounds)
    busy = fsum(fsum(map(fsum, result.chains)) for result in fewest)
    if busy:
        workers = min(trial.workers for trial in trials)
        wall = fsum(trial.seconds * workers for trial in trials if trial.workers == workers)
        calibration = replace(calibration, overhead=max(0.0, wall / busy - 1.0))
    return calibration


TRIAL = "{trial}"  # in an argument of a program: a new folder for each trial


def ranks_share(config: Config, phase: str) -> bool:
    """Whether all workers share each unit of a phase, as the ranks of a training do."""
    return phase == "train" and any(
        model.recipe and model.recipe.ranks > 1 for model in config.models
    )


@contextmanager
def experiment_runner(config: Config, phase: str) -> Iterator[Runner]:
    """The runner of a part of an experiment, ``train`` or ``all`` (measuring and searching): each
    call runs it again, in a new folder.

    Measuring starts from suites that are trained once, before the first call.
    """
    trains = any(model.recipe for model in config.models)
    if phase == "train" and not trains:
        raise ConfigError(
            "No model of the configuration has a 'train' recipe. Bench another --workload."
        )
    without_work = config.model_copy(update={"tasks": (), "metrics": ()})
    kinds = {"measure", "score", "search"}
    if phase == "train":
        ddp = config.ddp.model_copy(update={"folder": None})
        config, kinds = without_work.model_copy(update={"ddp": ddp}), {"train"}
    numbers = count(1)
    with (
        tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as root,
        ExitStack() as stack,
    ):
        base = RunFolder(Path(root) / "base")
        if phase == "train":  # again in each trial
            cache = str(Path(root, "cache").resolve())
            stack.enter_context(variable("DASKMETRICS_CACHE", cache))

        def runner(client: Client) -> TrialResult:
            folder = RunFolder(Path(root) / f"trial{next(numbers)}")
            suites: Mapping[str, training.TrainedSuite] = {}
            if phase == "train":
                suites = _untrained(config)
            elif trains and not base.journal.exists():
                with connect(config.cluster) as base_client:
                    _run_quietly(prepare(without_work), base, base_client)
            prepared = prepare(_with_workers(config, client))
            seconds = _run_quietly(prepared, folder, client)
            entries = tuple(read(folder.journal))
            units = [record for record in records(entries) if record.ok and record.kind in kinds]
            measured = tuple(
                sample for sample in samples(prepared, entries) if sample.kind in kinds
            )
            result = TrialResult(seconds, _chains(units), measured)
            if not ranks_share(config, phase):
                return result
            # the processes of ranks start before their clock does
            steps = fsum(record.seconds for record in units)
            recipes = [suite.recipe for suite in suites.values()]
            sequences = float(sum(recipe.steps * effective(recipe) for recipe in recipes))
            return replace(result, seconds=steps, start=seconds - steps, sequences=sequences)

        yield runner


def _with_workers(config: Config, client: Client) -> Config:
    """The configuration with as many workers as there are; a search keeps all of them busy."""
    cluster = config.cluster.model_copy(update={"workers": len(workers(client))})
    return config.model_copy(update={"cluster": cluster})


def _untrained(config: Config) -> Mapping[str, training.TrainedSuite]:
    """The suites of a configuration with their tokenized corpus, and without what earlier trials
    trained.
    """
    suites = training.suites_to_train(config)
    for suite in suites.values():
        suite.claim()
        write_corpus(suite.recipe, suite.folder)
        for path in suite.folder.iterdir():
            if path.name in ("corpus", training.OWNER):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    return suites


@dataclass
class _Meter:
    """The first and the latest progress of a program, and when they were reported."""

    first: tuple[float, Progress] | None = None
    latest: tuple[float, Progress] | None = None

    def message(self, text: str) -> None:
        pass

    def progressed(self, program: Program, progress: Progress) -> None:
        self.latest = time.perf_counter(), progress
        self.first = self.first or self.latest


@contextmanager
def program_runner(model: Model, config: Config) -> Iterator[Runner]:
    """The runner of a training program: each call starts it with as many ranks as there are
    workers.

    The time is that from its first reported step to its last one. Where it reports samples, it is
    the time of as many samples as the first call has learned from, since a program may take as many
    steps with more ranks. `TRIAL` in an argument stands for a new folder.
    """
    script, name = model.program, model.name
    assert script is not None
    work: list[float] = []  # samples of the first call

    with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as root:

        def runner(client: Client) -> TrialResult:
            folder = Path(tempfile.mkdtemp(dir=root)).absolute()
            args = tuple(arg.replace(TRIAL, str(folder)) for arg in script.args)
            changes = {"ranks": len(workers(client)), "args": args, "max_restarts": 0}
            changed = model.model_copy(update={"train": script.model_copy(update=changes)})
            program = training.program_of(changed, _with_workers(config, client), folder)
            meter = _Meter()
            began = time.perf_counter()
            launch(client, program, meter)
            wall = time.perf_counter() - began
            if meter.first is None or meter.latest is None or meter.first[1] == meter.latest[1]:
                raise ConfigError(
                    f"'{name}' reported fewer than two steps, so that it cannot be timed. Report"
                    " them by daskmetrics.progress(step, total) or a bar of tqdm; if it resumed"
                    f" from what an earlier trial saved, give it an argument with {TRIAL}, such as"
                    f" --output_dir {TRIAL}/out."
                )
            (start, first), (end, last) = meter.first, meter.latest
            seconds = end - start
            samples = last.numbers.get("samples", 0.0) - first.numbers.get("samples", 0.0)
            if samples:
                work.append(samples)
                seconds *= work[0] / samples
            sample = Sample("program", name, (seconds,), 1.0, program.ranks)
            sequences = work[0] if samples else 0.0
            return TrialResult(seconds, ((seconds,),), (sample,), wall - seconds, sequences)

        yield runner


def _chains(units: Sequence[Record]) -> tuple[tuple[float, ...], ...]:
    """Seconds of units: a suite's training is one chain, and an encoding counts with the first
    score that used it.
    """
    trained: dict[str, list[float]] = defaultdict(list)
    chains: list[tuple[float, ...]] = []
    encoded: set[object] = set()
    for record in units:
        seconds = record.seconds
        if record.kind == "train":
            trained[Checkpoint.parse(record.name).model].append(seconds)
            continue
        if record.kind == "score" and isinstance(record.value, Scored):
            cell = Cell.parse(record.name)
            encoding = cell.arm.checkpoint, cell.task, record.value.encode_seconds
            if encoding not in encoded:
                seconds += record.value.encode_seconds
            encoded.add(encoding)
        chains.append((seconds,))
    return (*(tuple(chain) for chain in trained.values()), *chains)


def _run_quietly(prepared: Experiment, folder: RunFolder, client: Client) -> float:
    """Run an experiment without output; returns its seconds."""
    began = time.perf_counter()
    run(prepared, folder, Display(Console(file=io.StringIO())), client)
    return time.perf_counter() - began


@contextmanager
def map_runner(spec: MapSpec) -> Iterator[Runner]:
    """The runner of a map: all items again at each call."""
    with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as root:
        folders = (RunFolder(Path(root) / f"trial{i}") for i in count(1))

        def runner(client: Client) -> TrialResult:
            folder = next(folders).create()
            with Journal(folder.journal, folder.lock) as journal:
                began = time.perf_counter()
                results = run_map(spec, client, journal)
                seconds = time.perf_counter() - began
                batches = [record for record in journal.records() if record.ok]
            if failed := [result for result in results if not result.ok]:
                raise ConfigError(
                    f"{len(failed)} items failed, the first with: {failed[0].reason}. "
                    "Bench a function that succeeds."
                )
            item_seconds = sum(record.seconds for record in batches) / max(1, len(results))
            sample = Sample("map", spec.function.name, (item_seconds,), 1.0)
            return TrialResult(seconds, tuple((record.seconds,) for record in batches), (sample,))

        yield runner
