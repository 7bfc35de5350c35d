"""The same workload at several numbers of workers, one after the other and again, and what that comes to."""

from __future__ import annotations

import io
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from math import fsum
from pathlib import Path

from distributed import Client
from rich.console import Console

from daskmetrics import experiment as experiments
from daskmetrics.cluster import connect
from daskmetrics.config import Cluster, Config
from daskmetrics.core._files import RunFolder
from daskmetrics.core._workers import workers
from daskmetrics.core.errors import ConfigError, DaskmetricsError, unknown
from daskmetrics.execution import Journal, Record
from daskmetrics.execution._journal import read, records
from daskmetrics.execution.map._api import run as run_map
from daskmetrics.execution.map._spec import MapSpec
from daskmetrics.experiment import Experiment, prepare
from daskmetrics.planning import Amdahl, BenchTrial, Calibration, Sample, ScalingRow
from daskmetrics.planning import _calibration as calibrations
from daskmetrics.planning._experiment import samples
from daskmetrics.planning._scaling import doublings, fit, interleaved, rows, simulated, verdict


@dataclass(frozen=True)
class TrialResult:
    """One run of a workload: seconds of the driver, and of each unit on its worker.

    ``chains`` holds the units' seconds; those that can only follow each other are of one chain.
    """

    seconds: float
    chains: tuple[tuple[float, ...], ...]
    samples: tuple[Sample, ...]


Work = Callable[[Client], TrialResult]
"""Does the whole workload anew on a client's workers."""


@dataclass(frozen=True)
class Bench:
    """Trials and what they say.

    Attributes
    ----------
    name : str
        Of the workload.
    trials : tuple of BenchTrial
    chains : tuple of tuple of float
        Seconds of the units, as the fewest workers took them.
    calibration : Calibration
    price : float or None
        Of one worker for an hour.
    """

    name: str
    trials: tuple[BenchTrial, ...]
    chains: tuple[tuple[float, ...], ...]
    calibration: Calibration
    price: float | None = None

    @property
    def rows(self) -> tuple[ScalingRow, ...]:
        return rows(self.trials, self.price)

    @property
    def law(self) -> Amdahl | None:
        return fit(self.trials)

    @property
    def verdict(self) -> str:
        return verdict(self.rows)

    @property
    def dispatch(self) -> float:
        """Seconds of the driver per unit: what the fewest workers took beyond their units, shared out."""
        fewest = [trial for trial in self.trials if trial.workers == min(t.workers for t in self.trials)]
        busy = fsum(map(fsum, self.chains)) / fewest[0].workers
        return max(0.0, (min(t.seconds for t in fewest) - busy) / max(1, fewest[0].units))

    def simulation(self, most: int, units: int | None = None) -> tuple[tuple[ScalingRow, ...], Amdahl | None]:
        """Rows of up to ``most`` simulated workers, from the measured seconds of the units, repeated to ``units``."""
        counts = doublings(most)
        chains = list(islice(cycle(self.chains), units)) if units else self.chains
        seconds, law = simulated(chains, counts, self.dispatch)
        units = sum(map(len, chains))
        return rows([BenchTrial(n, seconds[n], units) for n in counts], self.price), law


def bench(
    name: str,
    work: Work,
    profile: Cluster,
    counts: Sequence[int],
    repeats: int,
    *,
    price: float | None = None,
    before: Callable[[], None] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Run a workload at each number of workers, interleaved, and fit what was seen.

    Parameters
    ----------
    name : str
        Of the workload, for people.
    work : callable
        Does it all anew and tells the seconds.
    profile : Cluster
        Where; its number of workers is replaced.
    counts : sequence of int
        Numbers of workers, increasing.
    repeats : int
    price : float, optional
        Of one worker (GPU) for an hour.
    before : callable, optional
        Called on every worker before the clock starts, for instance `warm`.
    say : callable
        Told of each trial.

    Raises
    ------
    DaskmetricsError
        If workers do not arrive, or a trial did nothing.
    """
    trials: list[BenchTrial] = []
    done: dict[tuple[int, int], TrialResult] = {}
    for repeat, count in interleaved(counts, repeats):
        trial, result = _trial(work, profile.model_copy(update={"workers": count}), repeat, before)
        trials.append(trial)
        done[repeat, count] = result
        say(f"{count} workers, round {repeat + 1} of {repeats}: {trial.seconds:.1f} s")
    fewest = [result for (_, count), result in done.items() if count == counts[0]]
    chains = min(fewest, key=lambda result: result.seconds).chains
    calibration = _calibration(trials, fewest, profile)
    return Bench(name, tuple(trials), chains, calibration, price)


def _trial(
    work: Work, profile: Cluster, repeat: int, before: Callable[[], None] | None
) -> tuple[BenchTrial, TrialResult]:
    began = time.perf_counter()
    with connect(profile) as client:
        try:
            client.wait_for_workers(profile.workers, timeout=profile.patience)
        except TimeoutError:
            raise DaskmetricsError(
                f"Not all of {profile.workers} workers arrived within {profile.patience:.0f} s. Ask for fewer by "
                "--workers, or allow more by --set cluster.arrive_within=SECONDS."
            ) from None
        if before is not None:
            client.run(before)
        start = time.perf_counter() - began
        result = work(client)
    units = sum(map(len, result.chains))
    if not units:
        raise DaskmetricsError("The workload did not finish a single unit: run it once without bench to see why.")
    return BenchTrial(profile.workers, result.seconds, units, repeat, start), result


def warm() -> None:
    """Import what units of an experiment need, so that no unit's time has it."""
    import torch
    import transformers

    torch.zeros(1)
    assert transformers


def probe(profile: Cluster, work: Work) -> Calibration:
    """What a little work on a single worker tells: seconds of units, but not how they scale."""
    trial, done = _trial(work, profile.model_copy(update={"workers": 1}), 0, warm)
    return _calibration([trial], [done], profile, overhead=False)


def _calibration(
    trials: Sequence[BenchTrial], fewest: Sequence[TrialResult], profile: Cluster, overhead: bool = True
) -> Calibration:
    law = fit(trials)
    few = min(trial.workers for trial in trials)
    busy = fsum(fsum(map(fsum, result.chains)) for result in fewest)
    wall = fsum(trial.seconds * few for trial in trials if trial.workers == few)
    starts = sorted(trial.start for trial in trials)
    return Calibration(
        device=profile.device,
        host=socket.gethostname(),
        at=time.time(),
        versions=calibrations.versions(),
        samples=_merged([sample for result in fewest for sample in result.samples]),
        workers=max(trial.workers for trial in trials),
        serial=(law.serial.low, law.serial.value, law.serial.high) if law else (0.0, 0.0, 0.0),
        start=starts[len(starts) // 2],
        overhead=max(0.0, wall / busy - 1.0) if overhead and busy else 0.0,
    )


def _merged(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Samples of the same kind and group as one."""
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.kind, sample.group), []).append(sample)
    return tuple(
        Sample(kind, group, tuple(s for each in own for s in each.seconds), fsum(e.assumed for e in own) / len(own))
        for (kind, group), own in groups.items()
    )


PHASES = ("all", "train", "measure", "search")
"""What of an experiment can be benched; ``all`` is what a run does when its suites are trained."""

FEW = 5
"""Checkpoints of each model that a probe tries."""

PROBED_CELLS = 8


@contextmanager
def of_experiment(config: Config, phase: str) -> Iterator[Work]:
    """The work of one phase of an experiment; what comes before it is done first and once.

    Raises
    ------
    ConfigError
        For a phase that there is not.
    """
    if phase not in PHASES:
        raise unknown("workload", phase, PHASES)
    if phase == "search" and not config.tasks:
        raise ConfigError("There is nothing to search: the configuration has no 'tasks'. Bench another --workload.")
    if phase == "train" and not any(model.train for model in config.models):
        raise ConfigError("No model of the configuration has a 'train' recipe. Bench another --workload.")
    with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as place:
        yield _Phase(config, phase, Path(place))


class _Phase:
    """Runs a phase anew at each call."""

    def __init__(self, config: Config, phase: str, place: Path) -> None:
        self.config = config.model_copy(update={"tasks": ()}) if phase in ("train", "measure") else config
        self.phase, self.place, self.count = phase, place, 0

    def prepare(self) -> None:
        """Have suites trained and, for a search, checkpoints measured."""
        if self.phase == "train":
            return
        before = prepare(self.config.model_copy(update={"tasks": ()}))
        with connect(self.config.cluster) as client:
            _quietly(before, self.base, client)

    @property
    def base(self) -> RunFolder:
        return RunFolder(self.place / "base")

    def __call__(self, client: Client) -> TrialResult:
        if not self.base.journal.exists():
            self.prepare()
        self.count += 1
        folder = RunFolder(self.place / f"trial{self.count}")
        if self.phase == "search":
            shutil.copytree(self.base.path, folder.path)
        known = {r.key for r in records(read(folder.journal))} if folder.journal.exists() else set()
        with _cache(self.place / f"cache{self.count}") if self.phase == "train" else _cache(None):
            prepared = prepare(_on(self.config, len(workers(client))))
            began = time.perf_counter()
            _quietly(prepared, folder, client)
            seconds = time.perf_counter() - began
            wanted = ("train",) if self.phase == "train" else ("measure", "score")
            entries = tuple(read(folder.journal))
            found = [r for r in records(entries) if r.key not in known and r.ok]
            kinds = {"train": ("train",), "search": ("search",), "measure": ("measure",)}
            own = [s for s in samples(prepared, entries) if s.kind in kinds.get(self.phase, ("measure", "search"))]
        return TrialResult(seconds, _chains([record for record in found if record.kind in wanted]), tuple(own))


def _on(config: Config, count: int) -> Config:
    """A configuration for so many workers, since a search keeps all of them busy."""
    return config.model_copy(update={"cluster": config.cluster.model_copy(update={"workers": count})})


def _chains(found: list[Record]) -> tuple[tuple[float, ...], ...]:
    """Seconds of units; training goes on from step to step, and an encoding belongs to the first score of it."""
    trained: dict[str, list[float]] = {}
    chains: list[tuple[float, ...]] = []
    encoded: set[object] = set()
    for record in found:
        if record.kind == "train":
            trained.setdefault(record.name.partition("@")[0], []).append(record.seconds)
        elif record.kind == "score":
            once = (record.name.rpartition("/")[0], record.name.partition(":")[2], record.value["encode_seconds"])
            chains.append((record.seconds + (0.0 if once in encoded else once[2]),))
            encoded.add(once)
        else:
            chains.append((record.seconds,))
    return (*map(tuple, trained.values()), *chains)


def probing(config: Config) -> Work:
    """A small run of the same configuration: a few checkpoints of each model, a few cells."""

    def work(client: Client) -> TrialResult:
        with tempfile.TemporaryDirectory(prefix="daskmetrics-probe-", dir=".") as place, _cache(Path(place) / "cache"):
            prepared = prepare(_few(config))
            folder = RunFolder(Path(place) / "run")
            began = time.perf_counter()
            _quietly(prepared, folder, client)
            entries = tuple(read(folder.journal))
            found = [record for record in records(entries) if record.ok]
            return TrialResult(time.perf_counter() - began, _chains(found), samples(prepared, entries))

    return work


def _few(config: Config) -> Config:
    whole = {suite.model: suite.revisions for suite in prepare(config).suites}
    models = tuple(model.model_copy(update={"revisions": whole[model.name][:FEW]}) for model in config.models)
    search = config.search.model_copy(update={"budget": 1.0, "cells": PROBED_CELLS, "baseline": None})
    return config.model_copy(update={"models": models, "search": search})


def _quietly(prepared: Experiment, folder: RunFolder, client: Client) -> None:
    experiments.run(prepared, folder, experiments.Display(Console(file=io.StringIO())), client)


@contextmanager
def _cache(folder: Path | None) -> Iterator[None]:
    """Suites are trained anew: into a folder of their own."""
    if folder is None:
        yield
        return
    before = os.environ.get("DASKMETRICS_CACHE")
    os.environ["DASKMETRICS_CACHE"] = str(folder)
    try:
        yield
    finally:
        del os.environ["DASKMETRICS_CACHE"]
        if before is not None:
            os.environ["DASKMETRICS_CACHE"] = before


@contextmanager
def of_map(spec: MapSpec) -> Iterator[Work]:
    """The work of a map."""
    with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as place:
        yield _Map(spec, Path(place))


class _Map:
    """Maps all items anew at each call."""

    def __init__(self, spec: MapSpec, place: Path) -> None:
        self.spec, self.place, self.count = spec, place, 0

    def __call__(self, client: Client) -> TrialResult:
        self.count += 1
        folder = RunFolder(self.place / f"trial{self.count}").create()
        with Journal(folder.journal, folder.lock) as journal:
            began = time.perf_counter()
            results = run_map(self.spec, client, journal)
            seconds = time.perf_counter() - began
            batches = [record for record in journal.records() if record.ok]
        failed = [result for result in results if not result.ok]
        if failed:
            raise ConfigError(f"{len(failed)} items failed, the first: {failed[0].reason}. Bench what succeeds.")
        each = sum(record.seconds for record in batches) / max(1, len(results))
        sample = Sample("map", self.spec.function.name, (each,), 1.0)
        return TrialResult(seconds, tuple((r.seconds,) for r in batches), (sample,))
