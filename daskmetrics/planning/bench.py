"""The same work with several numbers of workers, measured and simulated.

The work is a part of an experiment, a training program, or a map, from the beginning. The rounds
are interleaved. Amdahl (1967): a share s of it cannot be divided, T(n) = T(1) (s + (1 - s) / n).
"""

from __future__ import annotations

import heapq
import io
import math
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import fsum
from operator import attrgetter
from pathlib import Path
from statistics import mean, median_high

import numpy as np
from distributed import Client
from rich.console import Console

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster, Config, Model
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.machine import usage, variable, workers
from daskmetrics.core.table import Table
from daskmetrics.core.telemetry import gpu_share, read_samples
from daskmetrics.core.text import duration, listed, plural, size_text
from daskmetrics.domain.events import records
from daskmetrics.domain.names import Checkpoint
from daskmetrics.domain.training import Progress
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import read
from daskmetrics.execution.map.api import run as run_map
from daskmetrics.execution.map.source import MapSpec
from daskmetrics.experiment import Display, Experiment, prepare, run
from daskmetrics.experiment import train as training
from daskmetrics.planning.calibration import Calibration, Sample, unit_seconds
from daskmetrics.planning.estimate import samples
from daskmetrics.planning.options import doublings
from daskmetrics.planning.work import (
    ONE_SAMPLE,
    Bounds,
    amount,
    bounded,
    divided,
    exactly,
    mean_of,
)
from daskmetrics.training.data import effective, write_corpus
from daskmetrics.training.ddp.driver import launch
from daskmetrics.training.ddp.ranks import Program

VERDICTS = {0.8: "good", 0.5: "acceptable", -math.inf: "wasteful"}  # by efficiency


@dataclass(frozen=True)
class BenchTrial:
    """One run of the work."""

    workers: int
    seconds: float  # from the first unit's submission to the last record, with all workers ready
    # seconds of each unit on its worker; units that must follow each other are in one chain
    chains: tuple[tuple[float, ...], ...]
    samples: tuple[Sample, ...] = ()
    repeat: int = 0  # number of the round
    start: float = 0.0  # seconds until the workers were ready and had imported their libraries
    sequences: float = 0.0  # that a training by process groups learned from
    memory: int = 0  # greatest peak of a worker in bytes
    busy: float | None = None  # share of the time in which the GPUs computed

    @property
    def units(self) -> int:
        """How many were finished."""
        return sum(map(len, self.chains))


@dataclass(frozen=True, eq=False)
class Law:
    """Amdahl's law, fitted to trials."""

    alone: float  # seconds on one worker
    serial: Bounds  # share that more workers do not shorten

    def on(self, workers: int) -> float:
        return self.alone * float(divided(self.serial, workers)[1])


def fit(trials: Sequence[BenchTrial]) -> Law | None:
    """Amdahl's law by least squares; None for one number of workers.

    The bounds of the serial share are those of the single rounds, whose trials share conditions.

    >>> fit([BenchTrial(1, 10.0, ()), BenchTrial(2, 12.0, ())]).serial
    array([1., 1., 1.])
    >>> fit([BenchTrial(2, 1.0, ()), BenchTrial(2, 1.1, ())])
    """
    if len({trial.workers for trial in trials}) < 2:
        return None
    rounds = defaultdict[int, list[BenchTrial]](list)
    for trial in trials:
        rounds[trial.repeat].append(trial)
    alone, serial = _least_squares(trials)
    comparable = [of_round for of_round in rounds.values() if len(of_round) > 1]
    shares = [serial, *(_least_squares(of_round)[1] for of_round in comparable)]
    return Law(alone, np.array([min(shares), serial, max(shares)]))


def _least_squares(trials: Sequence[BenchTrial]) -> tuple[float, float]:
    """Seconds on one worker and serial share.

    Of T = a + b / n with neither below zero.
    """
    from scipy.optimize import nnls

    design = [[1.0, 1.0 / trial.workers] for trial in trials]
    (fixed, shared), _ = nnls(np.array(design), [trial.seconds for trial in trials])
    return float(fixed + shared), round(float(fixed / (fixed + shared)), 9)


def makespan(chains: Iterable[Sequence[float]], workers: int, dispatch: float = 0.0) -> float:
    """Seconds until all units are finished.

    Each free worker takes the next unit that may start.

    A chain holds the seconds of units that must follow each other; an independent unit is a chain
    of one. Before each unit a free worker waits ``dispatch`` seconds for the driver, which handles
    one at a time.

    >>> makespan([[1.0]] * 5, workers=2)
    3.0
    >>> makespan([[1.0, 1.0, 1.0], [1.0]], workers=4)
    3.0
    >>> makespan([[0.5]] * 100, workers=100, dispatch=1.0)
    100.5
    """
    lengths = [list(chain) for chain in chains]
    waiting = [(0.0, i, 0) for i, chain in enumerate(lengths) if chain]
    free = [0.0] * min(workers, max(1, len(waiting)))
    driver = 0.0
    while waiting:
        ready, chain, unit = heapq.heappop(waiting)
        driver = max(driver, ready, heapq.heappop(free)) + dispatch
        done = driver + lengths[chain][unit]
        heapq.heappush(free, done)
        if unit + 1 < len(lengths[chain]):
            heapq.heappush(waiting, (done, chain, unit + 1))
    return max(free)


@dataclass(frozen=True)
class Bench:
    """Trials of the same work with several numbers of workers."""

    name: str  # of the work
    trials: tuple[BenchTrial, ...]
    cores: int = 1  # of a worker, which computed one unit at a time

    @property
    def fewest(self) -> list[BenchTrial]:
        """The trials with the fewest workers, the quickest first.

        Their units disturb each other least.
        """
        workers = min(trial.workers for trial in self.trials)
        fewest = [trial for trial in self.trials if trial.workers == workers]
        return sorted(fewest, key=attrgetter("seconds"))

    @property
    def repeats(self) -> int:
        return len({trial.repeat for trial in self.trials})

    @property
    def memory(self) -> int:
        """Bytes; the peak of such a worker."""
        return max(trial.memory for trial in self.fewest)

    @property
    def is_shared(self) -> bool:
        """Whether all workers share each unit, as ranks do."""
        return any(trial.sequences for trial in self.trials)

    @property
    def busy(self) -> float | None:
        """The share of the time in which the GPUs computed; None where none was read."""
        shares = [trial.busy for trial in self.fewest if trial.busy is not None]
        return mean(shares) if shares else None

    @cached_property
    def dispatch(self) -> float:
        """Seconds of the driver per unit.

        What the fewest workers waited beside their units.
        """
        quickest = self.fewest[0]
        idle = quickest.seconds - makespan(quickest.chains, quickest.workers)
        units = max(1, quickest.units)
        # with more the driver alone would take longer than the trial
        return min(max(0.0, idle * quickest.workers / units), quickest.seconds / units)

    def seconds(self, slots: int) -> float:
        """Simulated seconds, if so many units are computed side by side."""
        return makespan(self.fewest[0].chains, slots, self.dispatch)


def bench_table(bench: Bench, price: float | None) -> Table:
    """What was measured; the price is of a worker-hour."""
    numbers = sorted({trial.workers for trial in bench.trials})
    seconds = {
        number: mean_of([trial.seconds for trial in bench.trials if trial.workers == number])
        for number in numbers
    }
    equal = fastest(seconds)
    cheapest = min(equal, key=lambda number: number * float(seconds[number][1]))
    spread = "bounds are 90 % intervals of the geometric mean"
    if bench.repeats == 1:
        spread = f"one repeat does not show the spread: bounds assume a factor of {ONE_SAMPLE} either way"
    notes = [
        f"fastest within the error: {listed(list(map(str, equal)))} workers;"
        f" of these the cheapest: {cheapest}",
        _serial_note(fit(bench.trials)),
        spread,
    ]
    if bench.busy is not None:
        notes.append(
            f"the GPUs computed {bench.busy:.0%} of the time; the rest needs no faster GPU"
        )
    units = plural(bench.fewest[0].units, "unit")
    title = f"{bench.name}: {units}, {plural(bench.repeats, 'repeat')}, measured"
    return Table.of(_scaling_rows(bench.trials, seconds, price), title, notes)


def simulation_table(bench: Bench, most: int, price: float | None) -> Table:
    """What up to ``most`` workers would take.

    Workers that share each unit follow the measured law; ConfigError if it could not be fitted.
    """
    quickest = bench.fewest[0]
    law = fit(bench.trials)
    if not bench.is_shared:
        driver = f"{bench.dispatch * 1e3:.1f} ms of the driver for each unit"
        basis = f"unit times as measured on {plural(quickest.workers)}, and {driver}"
        simulated = {number: bench.seconds(number) for number in doublings(most)}
    elif law:
        basis = "Amdahl's law, fitted to the measured times; the batch of a step stays the same"
        simulated = {number: law.on(number) for number in doublings(most)}
    else:
        raise ConfigError("More workers are simulated from two measured numbers: --workers 1,2")
    trials = [
        replace(quickest, workers=number, seconds=taken) for number, taken in simulated.items()
    ]
    if not bench.is_shared:
        law = fit(trials)
    seconds = {number: exactly(taken) for number, taken in simulated.items()}
    rows = _scaling_rows(trials, seconds, price)
    title = f"{bench.name}: SIMULATED, not measured"
    return Table.of(rows, title, (basis, _serial_note(law)))


def fastest(seconds: Mapping[int, Bounds]) -> list[int]:
    """The numbers of workers that may be the fastest.

    >>> fastest({1: exactly(10), 2: np.array([4, 5, 6]), 4: np.array([4, 4.5, 5])})
    [2, 4]
    """
    smallest = min(seconds.values(), key=lambda bounds: float(bounds[1]))
    return [number for number, bounds in seconds.items() if bounds[0] <= smallest[2]]


def _serial_note(law: Law | None) -> str:
    if law is None:
        return "serial share: unknown, since it takes two numbers of workers to fit it"
    low, share, high = (f"{100 * bound:.3g} %" for bound in law.serial)
    return f"serial share {share} ({low} to {high}), which more workers do not shorten"


def _scaling_rows(
    trials: Sequence[BenchTrial], seconds: Mapping[int, Bounds], price: float | None
) -> list[dict[str, str]]:
    """A row for each number of workers, compared with the fewest."""
    fewest = min(seconds)
    rows = []
    for number, bounds in seconds.items():
        ratio = exactly(1.0)  # of the fewest workers itself, without error
        if number != fewest:
            ratio = seconds[fewest] / bounds[::-1]
        efficiency = ratio * fewest / number
        expected = float(bounds[1])
        hours = number * expected / 3600
        of_number = [trial for trial in trials if trial.workers == number]
        sequences = mean(trial.sequences for trial in of_number)
        row = {
            "workers": str(number),
            "time": bounded(bounds),
            "speed-up": bounded(ratio * fewest, "{:.2f}".format, "-"),
            "efficiency": bounded(efficiency, "{:.0%}".format, "-"),
            "worker hours": amount(hours),
            "cost": "",
            "units/s": "",
            "samples/s": "",
            "cost per million samples": "",
            "verdict": "",
        }
        if price is not None:
            row["cost"] = amount(price * hours)
        if sequences:
            row["samples/s"] = amount(sequences / expected)
            row["verdict"] = next(w for share, w in VERDICTS.items() if efficiency[1] >= share)
        else:
            row["units/s"] = amount(mean(trial.units for trial in of_number) / expected)
        if sequences and price is not None:
            row["cost per million samples"] = amount(price * hours / sequences * 1e6)
        rows.append(row)
    return rows


def size_table(
    bench: Bench,
    cores: Sequence[int],
    memory: Sequence[float | None],
    most: int,
) -> Table:
    """What larger workers would change, simulated.

    How many units fit side by side, each with the cores and the peak memory of the measured worker, and
    the time that follows.
    """
    table = []
    for number, size in product(cores, memory):
        units = number // bench.cores
        limit = "cores"
        allowed = "any"
        if size is not None:
            allowed = size_text(size)
            fitting = int(size // max(1, bench.memory))
            if fitting < units:
                units = fitting
                limit = "memory"
        shown = ["no unit fits"] * 2
        if units:
            shown = [duration(bench.seconds(workers * units)) for workers in (1, most)]
        table.append((str(number), allowed, str(units), limit, *shown))
    unit = f"{plural(bench.cores, 'core')} and the peak memory ({size_text(bench.memory)})"
    notes = (
        f"a unit takes the {unit} of the worker that was measured",
        "units side by side also share caches and the bus to the memory, which is not simulated",
    )
    header = (
        "cores",
        "memory",
        "units side by side",
        "limit",
        "time, 1 worker",
        f"time, {plural(most)}",
    )
    title = f"{bench.name}: larger workers, SIMULATED, not measured"
    return Table(header, tuple(table), title, notes)


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
    """Do the same work with each number of workers, in rounds.

    Every other round runs in reverse order, so that a machine that becomes slower treats all numbers
    alike.

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
    """A temporary folder in the present one, which workers see."""
    with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as root:
        yield Path(root).resolve()


def _run_trial(
    runner: Runner, root: Path, profile: Cluster, on_start: Callable[[], None] | None
) -> BenchTrial:
    began = time.perf_counter()
    with connect(profile, wait=profile.workers) as client:
        if on_start is not None:
            client.run(on_start)
        start = time.perf_counter() - began
        folder = Path(tempfile.mkdtemp(dir=root))
        trial = runner(client, folder)
        peaks = [used["memory"] for used in usage(client).values()]
    if not trial.units:
        raise DaskmetricsError(
            "The work did not finish a single unit. Run it once without bench to see why."
        )
    files = folder.rglob(RunFolder(folder).telemetry.name)  # also of a program below it
    busy = gpu_share(sample for file in files for sample in read_samples(file))
    # the processes of a trial can start, too, before its clock does
    return replace(trial, start=start + trial.start, memory=max(peaks, default=0), busy=busy)


def warm() -> None:
    """Import what the units of an experiment need.

    No unit's time then includes it.
    """
    import sklearn.linear_model
    import torch
    import transformers

    torch.zeros(1)
    # transformers and scikit-learn import their parts when they are used
    assert transformers.PreTrainedModel and sklearn.linear_model.Ridge


def calibration_of(bench: Bench, device: str) -> Calibration:
    """What a bench has measured on a device.

    It is that of the trials with the fewest workers; of a program that of all, since its steps may
    depend on the number of ranks.
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
    serial = exactly(0.0)
    if law:
        serial = law.serial
    busy = fsum(fsum(map(fsum, trial.chains)) for trial in fewest)
    # workers without a unit at the end, and the serial share, are no overhead
    spans = fsum(makespan(trial.chains, trial.workers) for trial in fewest)
    ideal = spans + float(serial[1]) * (busy - spans)
    wall = fsum(trial.seconds for trial in fewest)
    return Calibration(
        device,
        samples=tuple(merged.values()),
        workers=max(trial.workers for trial in bench.trials),
        serial=tuple(serial.tolist()),
        start=median_high(trial.start for trial in bench.trials),
        overhead=max(0.0, wall / ideal - 1.0) if ideal else 0.0,
        busy=bench.busy,
    )


TRIAL = "{trial}"  # in an argument of a program: a new folder for each trial


def ranks_share(config: Config, phase: str) -> bool:
    """Whether all workers share each unit, as ranks do."""
    recipes = [model.recipe for model in config.models if model.recipe]
    return phase == "train" and any(recipe.ranks > 1 for recipe in recipes)


def experiment_runner(config: Config) -> Runner:
    """The runner of measuring and searching, from suites that are trained once."""
    if any(model.recipe for model in config.models):
        only_training = prepare(config.model_copy(update={"tasks": (), "metrics": ()}))
        with connect(config.cluster) as client, new_folder() as root:
            _run_quietly(only_training, client, root, ())

    def runner(client: Client, folder: Path) -> BenchTrial:
        prepared = prepare(_with_workers(config, client))
        return _run_quietly(prepared, client, folder, ("measure", "score"))

    return runner


def training_runner(config: Config) -> Runner:
    """The runner of the trainings by recipes, again at each call."""
    if not any(model.recipe for model in config.models):
        raise ConfigError(
            "No model of the configuration has a 'train' recipe. Bench --workload all."
        )
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
    """Run without output; the trial has the units of these kinds."""
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
    """The configuration with as many workers as there are."""
    cluster = config.cluster.model_copy(update={"workers": len(workers(client))})
    return config.model_copy(update={"cluster": cluster})


def _remove_trained(suite: training.TrainedSuite) -> None:
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

    reports: list[tuple[float, Progress]] = field(default_factory=list)

    def message(self, text: str) -> None:
        """Nothing is shown of the lines for the user."""

    def progressed(self, program: Program, progress: Progress) -> None:
        if self.reports:
            latest = self.reports[-1][1]
            if progress.step < latest.step and progress.total != latest.total:
                self.reports = []  # of other work than the training
        self.reports.append((time.perf_counter(), progress))

    @property
    def steps(self) -> int:
        """From the first report to the last."""
        return self.reports[-1][1].step - self.reports[0][1].step

    @property
    def epochs(self) -> float:
        """Those of the steps; 0 if the program does not report their share."""
        reached = [
            (progress.numbers["epoch"], progress.step)
            for _, progress in self.reports
            if "epoch" in progress.numbers
        ]
        # whole numbers would be those of begun epochs
        if not any(epoch % 1 for epoch, _ in reached):
            return 0.0
        epoch, step = reached[-1]
        return self.steps * epoch / step


def program_runner(model: Model, config: Config) -> Runner:
    """The runner of a training program, with a rank on each worker.

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
        sample = Sample(
            "program",
            name,
            (seconds,),
            1.0,
            program.ranks,
            steps=share * meter.steps,
            samples=share * samples,
            epochs=share * meter.epochs,
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
    """Seconds of units; the training of a suite is one chain."""
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
