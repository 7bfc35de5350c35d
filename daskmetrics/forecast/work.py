"""What is benched: the phases of an experiment, or a map; each run anew in a folder of its own."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distributed import Client
from rich.console import Console

from daskmetrics import experiment as experiments
from daskmetrics import mapping
from daskmetrics.cluster import connect, workers
from daskmetrics.config import Config
from daskmetrics.errors import ConfigError, unknown
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import read, records
from daskmetrics.experiment import Experiment, prepare
from daskmetrics.forecast.bench import Done, Work
from daskmetrics.forecast.experiments import samples
from daskmetrics.layout import RunFolder
from daskmetrics.planning import Sample

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

    def __call__(self, client: Client) -> Done:
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
        return Done(seconds, _chains([record for record in found if record.kind in wanted]), tuple(own))


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

    def work(client: Client) -> Done:
        with tempfile.TemporaryDirectory(prefix="daskmetrics-probe-", dir=".") as place, _cache(Path(place) / "cache"):
            prepared = prepare(_few(config))
            folder = RunFolder(Path(place) / "run")
            began = time.perf_counter()
            _quietly(prepared, folder, client)
            entries = tuple(read(folder.journal))
            found = [record for record in records(entries) if record.ok]
            return Done(time.perf_counter() - began, _chains(found), samples(prepared, entries))

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
def of_map(job: mapping.Job) -> Iterator[Work]:
    """The work of a map."""
    with tempfile.TemporaryDirectory(prefix="daskmetrics-bench-", dir=".") as place:
        yield _Map(job, Path(place))


class _Map:
    """Maps all items anew at each call."""

    def __init__(self, job: mapping.Job, place: Path) -> None:
        self.job, self.place, self.count = job, place, 0

    def __call__(self, client: Client) -> Done:
        self.count += 1
        folder = RunFolder(self.place / f"trial{self.count}").create()
        with Journal(folder.journal, folder.lock) as journal:
            began = time.perf_counter()
            results = mapping.run(self.job, client, journal)
            seconds = time.perf_counter() - began
            batches = [record for record in journal.records() if record.ok]
        failed = [result for result in results if not result.ok]
        if failed:
            raise ConfigError(f"{len(failed)} items failed, the first: {failed[0].reason}. Bench what succeeds.")
        each = sum(record.seconds for record in batches) / max(1, len(results))
        sample = Sample("map", self.job.function.name, (each,), 1.0)
        return Done(seconds, tuple((r.seconds,) for r in batches), (sample,))
