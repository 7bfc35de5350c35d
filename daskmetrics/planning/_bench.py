"""The same work with several numbers of workers, in interleaved rounds, and the calibration that results."""

from __future__ import annotations

import io
import math
import shutil
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count, cycle, islice, product
from math import fsum
from pathlib import Path
from statistics import median_high

from distributed import Client
from rich.console import Console

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster, Config
from daskmetrics.core._events import records
from daskmetrics.core._files import RunFolder
from daskmetrics.core._machine import usage, variable, workers
from daskmetrics.core.errors import ConfigError, DaskmetricsError, unknown
from daskmetrics.core.names import Cell, Checkpoint
from daskmetrics.execution import Journal, Record
from daskmetrics.execution._journal import read
from daskmetrics.execution.map._api import run as run_map
from daskmetrics.execution.map._source import MapSpec
from daskmetrics.experiment import Display, Experiment, prepare, run
from daskmetrics.experiment import _train as training
from daskmetrics.planning import _scaling as scaling
from daskmetrics.planning._calibration import Calibration, Sample, versions
from daskmetrics.planning._experiment import samples
from daskmetrics.planning._scaling import Amdahl, BenchTrial, ScalingRow, WorkerSize, makespan
from daskmetrics.training._data import effective


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
        """Seconds of the driver per unit: what the fewest workers took beyond their units, divided by the units."""
        fewest = [trial for trial in self.trials if trial.workers == min(t.workers for t in self.trials)]
        busy = fsum(fsum(chain) for chain in self.chains) / fewest[0].workers
        return max(0.0, (min(t.seconds for t in fewest) - busy) / max(1, fewest[0].units))

    def simulation(self, most: int, units: int | None = None) -> tuple[tuple[ScalingRow, ...], Amdahl | None]:
        """Rows of up to ``most`` simulated workers, from the measured seconds of the units, repeated to ``units``.

        Workers that share each unit follow Amdahl's law; ConfigError if it could not be fitted.
        """
        counts = scaling.doublings(most)
        if self.is_shared:
            if (law := self.law) is None:
                raise ConfigError("More workers are simulated from two measured numbers: --workers 1,2")
            first = self.trials[0]
            trials = [BenchTrial(n, law.seconds(n), first.units, samples=first.samples) for n in counts]
            return scaling.rows(trials, self.price), law
        chains = self._repeated(units)
        seconds, law = scaling.simulated(chains, counts, self.dispatch)
        units = sum(len(chain) for chain in chains)
        return scaling.rows([BenchTrial(n, seconds[n], units) for n in counts], self.price), law

    def sizes(
        self, cores: Sequence[int], memory: Sequence[float | None], most: int, units: int | None = None
    ) -> tuple[tuple[WorkerSize, float, float], ...]:
        """Simulated sizes of a worker, with the seconds of one and of ``most`` such workers; inf if no unit fits.

        Each unit takes the cores and the peak memory of the measured worker.
        """
        found = []
        for size in (WorkerSize.of(c, m, self.cores, self.memory) for c, m in product(cores, memory)):
            one, many = (
                makespan(self._repeated(units), n * size.units, self.dispatch) if size.units else math.inf
                for n in (1, most)
            )
            found.append((size, one, many))
        return tuple(found)

    def _repeated(self, units: int | None) -> Sequence[Sequence[float]]:
        return list(islice(cycle(self.chains), units)) if units else self.chains


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

    ``on_start`` is called on every worker before the clock starts, for instance `warm`; ``progress`` is called with a
    line about each trial. Raises DaskmetricsError if workers do not arrive, or a trial did not finish a unit.
    """
    trials: list[BenchTrial] = []
    fewest: list[TrialResult] = []
    for repeat, n in scaling.interleaved(counts, repeats):
        trial, result = _trial(runner, profile.model_copy(update={"workers": n}), repeat, on_start)
        trials.append(trial)
        fewest += [result] if n == counts[0] else []
        progress(f"{n} workers, round {repeat + 1} of {repeats}: {trial.seconds:.1f} s")
    chains = min(fewest, key=lambda result: result.seconds).chains
    peak = max(result.memory for result in fewest)
    return Bench(name, tuple(trials), chains, _calibration(trials, fewest, profile), price, profile.threads, peak)


def _trial(
    runner: Runner, profile: Cluster, repeat: int, on_start: Callable[[], None] | None
) -> tuple[BenchTrial, TrialResult]:
    began = time.perf_counter()
    with connect(profile) as client:
        try:
            client.wait_for_workers(profile.workers, timeout=profile.patience)
        except TimeoutError:
            raise DaskmetricsError(
                f"Not all {profile.workers} workers arrived within {profile.patience:.0f} s. Use fewer with --workers, "
                "or allow more time with --set cluster.arrive_within=SECONDS."
            ) from None
        if on_start is not None:
            client.run(on_start)
        start = time.perf_counter() - began
        result = runner(client)
        result = replace(result, memory=max((used["memory"] for used in usage(client).workers.values()), default=0))
    units = sum(len(chain) for chain in result.chains)
    if not units:
        raise DaskmetricsError("The work did not finish a single unit. Run it once without bench to see why.")
    return BenchTrial(profile.workers, result.seconds, units, repeat, start + result.start, result.sequences), result


def warm() -> None:
    """Import what the units of an experiment need, so that no unit's time includes it."""
    import torch
    import transformers

    torch.zeros(1)
    assert transformers


def probe(profile: Cluster, runner: Runner) -> Calibration:
    """A calibration from a little work on one worker: seconds of units, but not how they scale."""
    trial, result = _trial(runner, profile.model_copy(update={"workers": 1}), 0, warm)
    return _calibration([trial], [result], profile, overhead=False)


def _calibration(
    trials: Sequence[BenchTrial], fewest: Sequence[TrialResult], profile: Cluster, overhead: bool = True
) -> Calibration:
    law = scaling.fit(trials)
    few = min(trial.workers for trial in trials)
    busy = fsum(fsum(fsum(chain) for chain in result.chains) for result in fewest)
    wall = fsum(trial.seconds * few for trial in trials if trial.workers == few)
    return Calibration(
        device=profile.device,
        host=socket.gethostname(),
        at=time.time(),
        versions=versions(),
        samples=_merged(sample for result in fewest for sample in result.samples),
        workers=max(trial.workers for trial in trials),
        serial=law.serial.bounds if law else (0.0, 0.0, 0.0),
        start=median_high(trial.start for trial in trials),
        overhead=max(0.0, wall / busy - 1.0) if overhead and busy else 0.0,
    )


def _merged(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Samples of the same kind and group as one."""
    groups: dict[tuple[str, str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.kind, sample.group, sample.ranks].append(sample)
    return tuple(
        Sample(kind, group, tuple(s for e in same for s in e.seconds), fsum(e.assumed for e in same) / len(same), ranks)
        for (kind, group, ranks), same in groups.items()
    )


PHASES: Mapping[str, tuple[str, ...]] = {
    "all": ("measure", "search"),
    "train": ("train",),
    "measure": ("measure",),
    "search": ("search",),
}
"""Parts of an experiment that can be benched, with the kinds of their samples."""
FEW, PROBED_CELLS = 5, 8  # checkpoints of each model, and cells, that a probe measures


def ranks_share(config: Config, phase: str) -> bool:
    """Whether all workers share each unit of a phase, as the ranks of a training do."""
    return phase == "train" and any(model.train and model.train.ranks > 1 for model in config.models)


@contextmanager
def experiment_runner(config: Config, phase: str) -> Iterator[Runner]:
    """The runner of one phase of an experiment, which must have it: each call runs it again, in a new folder.

    The phases before it run once: a trial starts from the suites and measurements of the first call.
    """
    if phase not in PHASES:
        raise unknown("workload", phase, PHASES)
    if phase == "search" and not config.tasks:
        raise ConfigError("There is nothing to search: the configuration has no 'tasks'. Bench another --workload.")
    if phase == "train" and not any(model.train for model in config.models):
        raise ConfigError("No model of the configuration has a 'train' recipe. Bench another --workload.")
    if ranks_share(config, phase):
        with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as place:
            caches = (Path(place) / f"cache{number}" for number in count(1))
            yield lambda client: _train_again(config, client, next(caches))
        return
    without_tasks = config.model_copy(update={"tasks": ()})
    benched = without_tasks if phase in ("train", "measure") else config
    kinds = ("train",) if phase == "train" else ("measure", "score")
    numbers = count(1)
    with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as place:
        base = RunFolder(Path(place) / "base")

        def runner(client: Client) -> TrialResult:
            if phase != "train" and not base.journal.exists():
                experiment = prepare(without_tasks)
                with connect(config.cluster) as base_client:
                    _run_quietly(experiment, base, base_client)
            number = next(numbers)
            folder = RunFolder(Path(place) / f"trial{number}")
            if phase == "search":
                shutil.copytree(base.path, folder.path)
            known = {r.key for r in records(read(folder.journal))} if folder.journal.exists() else set()
            with _cache(Path(place) / f"cache{number}") if phase == "train" else nullcontext():
                # a search keeps all of the client's workers busy, so the configuration has to say how many there are
                cluster = config.cluster.model_copy(update={"workers": len(workers(client))})
                prepared = prepare(benched.model_copy(update={"cluster": cluster}))
                seconds = _run_quietly(prepared, folder, client)
                entries = tuple(read(folder.journal))
                units = [r for r in records(entries) if r.key not in known and r.ok and r.kind in kinds]
                measured = tuple(s for s in samples(prepared, entries) if s.kind in PHASES[phase])
            return TrialResult(seconds, _chains(units), measured)

        yield runner


def _train_again(config: Config, client: Client, cache: Path) -> TrialResult:
    """Train all suites by process groups in a new cache; their processes start before the clock does."""
    ddp, cluster = {"folder": None}, {"workers": len(workers(client))}
    config = config.model_copy(
        update={"ddp": config.ddp.model_copy(update=ddp), "cluster": config.cluster.model_copy(update=cluster)}
    )
    with _cache(cache):
        began = time.perf_counter()
        suites = training.suites_to_train(config)
        training.train(client, config, Display(Console(file=io.StringIO())), suites)
        wall = time.perf_counter() - began
        trained = tuple(training.records(suites))
        measured = samples(prepare(config.model_copy(update={"tasks": ()})), trained)
    seconds = fsum(record.seconds for record in trained)
    sequences = float(sum(suite.recipe.steps * effective(suite.recipe) for suite in suites.values()))
    return TrialResult(seconds, _chains(trained), measured, wall - seconds, sequences)


def _chains(units: Sequence[Record]) -> tuple[tuple[float, ...], ...]:
    """Seconds of units: a suite's training is one chain, and an encoding counts with the first score that used it."""
    trained: dict[str, list[float]] = defaultdict(list)
    chains: list[tuple[float, ...]] = []
    encoded: set[object] = set()
    for record in units:
        seconds = record.seconds
        if record.kind == "train":
            trained[Checkpoint.parse(record.name).model].append(seconds)
            continue
        if record.kind == "score":
            cell = Cell.parse(record.name)
            encoding = cell.arm.checkpoint, cell.task, record.value["encode_seconds"]
            seconds += 0.0 if encoding in encoded else encoding[2]
            encoded.add(encoding)
        chains.append((seconds,))
    return (*(tuple(chain) for chain in trained.values()), *chains)


def probe_runner(config: Config) -> Runner:
    """The runner of a small part of an experiment: a few checkpoints of each model, and a few cells."""

    def runner(client: Client) -> TrialResult:
        with tempfile.TemporaryDirectory(prefix="daskmetrics-probe-", dir=".") as place, _cache(Path(place) / "cache"):
            revisions = {suite.model: suite.revisions[:FEW] for suite in prepare(config).suites}
            models = tuple(each.model_copy(update={"revisions": revisions[each.name]}) for each in config.models)
            search = config.search.model_copy(update={"budget": 1.0, "cells": PROBED_CELLS, "baseline": None})
            prepared = prepare(config.model_copy(update={"models": models, "search": search}))
            folder = RunFolder(Path(place) / "run")
            seconds = _run_quietly(prepared, folder, client)
            entries = tuple(read(folder.journal))
            return TrialResult(seconds, _chains([r for r in records(entries) if r.ok]), samples(prepared, entries))

    return runner


def _run_quietly(prepared: Experiment, folder: RunFolder, client: Client) -> float:
    """Run an experiment without output; returns its seconds."""
    began = time.perf_counter()
    run(prepared, folder, Display(Console(file=io.StringIO())), client)
    return time.perf_counter() - began


def _cache(folder: Path) -> AbstractContextManager[None]:
    """Use a cache folder of its own meanwhile, so that suites are trained again."""
    return variable("DASKMETRICS_CACHE", str(folder.resolve()))


@contextmanager
def map_runner(spec: MapSpec) -> Iterator[Runner]:
    """The runner of a map: all items again at each call."""
    with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as place:
        folders = (RunFolder(Path(place) / f"trial{i}") for i in count(1))

        def runner(client: Client) -> TrialResult:
            folder = next(folders).create()
            with Journal(folder.journal, folder.lock) as journal:
                began = time.perf_counter()
                results = run_map(spec, client, journal)
                seconds = time.perf_counter() - began
                batches = [record for record in journal.records() if record.ok]
            if failed := [result for result in results if not result.ok]:
                raise ConfigError(
                    f"{len(failed)} items failed, the first with: {failed[0].reason}. Bench a function that succeeds."
                )
            each = sum(record.seconds for record in batches) / max(1, len(results))
            sample = Sample("map", spec.function.name, (each,), 1.0)
            return TrialResult(seconds, tuple((record.seconds,) for record in batches), (sample,))

        yield runner
