"""An experiment as a workload: the units still to be done, with assumed or measured seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import fsum
from typing import TypeVar

import yaml

from daskmetrics.bandit import Problem
from daskmetrics.bandit._clock import useful_workers
from daskmetrics.config import Cluster, Recipe
from daskmetrics.core._costs import CostModel
from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.core._events import Event, Record, RunStarted, UnitAsked, latest, measures_nothing, records
from daskmetrics.core._files import RunFolder, cache_folder
from daskmetrics.core.names import Cell, Checkpoint
from daskmetrics.execution import WorkUnit
from daskmetrics.execution._journal import read
from daskmetrics.experiment import Experiment, _search
from daskmetrics.experiment._estimate import cells_left, download_text, estimate, texts_of, unit_seconds, units_left
from daskmetrics.planning._calibration import ASSUMED, Calibration, Sample, best_sample, calibrated
from daskmetrics.planning._workload import NOTHING_SERIAL, USUAL_START, Phase, Workload
from daskmetrics.training import is_complete, revisions
from daskmetrics.training._data import effective
from daskmetrics.training._estimate import shape_of
from daskmetrics.training._suite import epoch

WORKER_GIB = 1.5  # assumed host memory of a worker with its libraries
CUDA_GIB = 0.6  # assumed GPU memory of a process that uses CUDA at all
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
ASSUMED_LINK = 1e9  # bytes of gradients that ranks are assumed to exchange in a second
CPU = CostModel("cpu")  # samples are compared with its seconds, whatever device measured them

Unit = TypeVar("Unit", Record, WorkUnit)


def workload(experiment: Experiment, folder: RunFolder, known: Sequence[Calibration], device: str) -> Workload:
    """The remaining work of an experiment, as phases with seconds on a device: ``cpu``, or a kind of GPU.

    What the journal in the run's folder holds already is not counted.
    """
    entries = tuple(read(folder.journal)) if folder.journal.is_file() else ()
    known = sorted((each for each in known if each.device == device), key=lambda each: each.at)
    remaining = [*_measuring(experiment, folder, entries), *_searching(experiment, entries, device)]
    plan = estimate(experiment, folder, entries)
    start = USUAL_START
    if starts := [each for each in known if each.start]:
        last = starts[-1]
        start = Estimate(Interval.around(last.start, 2.0), f"measured on {last.host}", True, last.at)
    phases = tuple(each.phase(known, device) for each in remaining if each.units)
    if not phases:
        start = Estimate(Interval.exactly(0.0), "nothing to do", True)
    download = Estimate(Interval.around(plan.download_seconds, ASSUMED), download_text(plan)) if plan.missing else None
    return Workload(
        phases,
        device,
        start,
        vram_gib=_gpu_gib(experiment),
        host_gib=WORKER_GIB + _weights_gib(experiment, 4),
        disk_bytes=round(plan.store_bytes),
        missing=plan.missing,
        texts=texts_of(experiment) if experiment.tasks else "",
        download=download,
    )


@dataclass(frozen=True)
class _Remaining:
    """Units of one kind and model that are still to be done, with the mean seconds that a cost model assumes."""

    kind: str
    group: str
    units: int
    assumed: Callable[[CostModel], float]
    chains: int | None = None
    recipe: Recipe | None = None  # of a training that ranks share
    epoch: float | None = None  # sequences of its corpus, where they have been counted

    def phase(self, known: Sequence[Calibration], device: str) -> Phase:
        """With seconds by the best calibration, and the overhead and the serial share of the latest bench."""
        seconds = calibrated(self.kind, self.group, self.assumed(CPU), known, device, self.assumed(CostModel(device)))
        benches = [c for c in known if c.workers > 1 and any(sample.kind == self.kind for sample in c.samples)]
        serial = NOTHING_SERIAL
        # in a bench of training, the serial share is the chain of steps, which `chains` already counts
        if benches and self.kind != "train":
            seconds = seconds.times(1.0 + benches[-1].overhead)
            serial = Interval(*benches[-1].serial)
        name = self.kind if self.kind == "search" else f"{self.kind} {self.group}"
        if self.recipe is None:
            return Phase(name, self.units, seconds, self.chains, serial=serial)
        exchange = calibrated("allreduce", self.group, exchange_seconds(self.recipe), known, device)
        best = best_sample(self.kind, self.group, known, device)
        ranks = best[1].ranks if best else 1
        steps = self.assumed(CPU) / _step_seconds(self.recipe)
        share = exchange_share(seconds.times(1 / steps).interval, exchange.interval, ranks)
        source = f"{seconds.source}; exchange of gradients {exchange.source}"
        shared = Estimate(seconds.interval, source, seconds.measured and exchange.measured, seconds.at)
        return Phase(
            name,
            self.units,
            shared,
            self.recipe.ranks,
            together=True,
            workers=ranks,
            serial=share,
            samples=steps * effective(self.recipe),
            epoch=self.epoch,
        )


def exchange_seconds(recipe: Recipe) -> float:
    """Assumed seconds in which very many ranks exchange the gradients of a step; n of them take (1 - 1/n) as long."""
    return 4.0 * shape_of(recipe).parameters / ASSUMED_LINK


def _step_seconds(recipe: Recipe) -> float:
    shape = shape_of(recipe)
    return CPU.train_seconds(shape.width, shape.depth, effective(recipe) * recipe.context, recipe.context)


def exchange_share(step: Interval, exchange: Interval, ranks: int) -> Interval:
    """The serial share of a training: the exchange among very many ranks, beside a step of one rank alone.

    Seconds of a step were measured with ``ranks`` ranks: a part of the work, and (1 - 1/n) of the exchange.

    >>> exchange_share(Interval.exactly(6.0), Interval.exactly(2.0), ranks=2).value
    0.2
    """

    def share(step: float, exchange: float) -> float:
        return min(1.0, exchange / max(step, ranks * step - (ranks - 1) * exchange))

    return Interval(share(step.high, exchange.low), share(step.value, exchange.value), share(step.low, exchange.high))


def _measuring(experiment: Experiment, folder: RunFolder, entries: Sequence[Event]) -> Iterator[_Remaining]:
    for kind, model, remaining in _by_suite(experiment, units_left(experiment, folder, entries)):
        assumed = partial(_mean_seconds, experiment, kind, [unit.name for unit in remaining])
        yield _Remaining(kind, model, len(remaining), assumed, chains=1 if kind == "train" else None)
    for model, trained in experiment.trainings.items():
        if trained.recipe.ranks > 1:  # a process group trains it
            missing = [each for each in revisions(trained.recipe) if not is_complete(trained.folder, each)]
            assumed = partial(_mean_seconds, experiment, "train", [f"{model}@{each}" for each in missing])
            sequences = epoch(trained.recipe, trained.folder, cache_folder())
            yield _Remaining("train", model, len(missing), assumed, recipe=trained.recipe, epoch=sequences)


def _searching(experiment: Experiment, entries: Sequence[Event], device: str) -> Iterator[_Remaining]:
    """The cells that the budget allows; their mean seconds include a share of the encoding that cells share."""
    if not experiment.tasks:
        return

    problem_on = cache(partial(_problem_on, experiment))
    cells = len(experiment.arms) * len(experiment.tasks)
    left = cells_left(experiment, entries, problem_on(CostModel(device)))
    useful = useful_workers(experiment.config.search.policy)
    at_once = _search.fixed_window(experiment, entries) or (int(useful) if useful < math.inf else None)
    yield _Remaining("search", "cells", left, lambda costs: problem_on(costs).exhaustive_cost / cells, at_once)


def samples(experiment: Experiment, entries: Sequence[Event], workers: int | None = None) -> tuple[Sample, ...]:
    """The measured seconds of the units in a run's journal, beside the assumed seconds.

    The run had so many workers; by default as many as the configuration has.
    """
    workers = workers or experiment.config.cluster.workers
    finished = [record for record in records(entries) if record.ok and not measures_nothing(record)]
    result = []
    for kind, model, units in _by_suite(experiment, finished):
        if units:
            assumed = _mean_seconds(experiment, kind, [record.name for record in units], CPU)
            ranks = min(workers, experiment.trainings[model].recipe.ranks) if kind == "train" else 1
            result.append(Sample(kind, model, tuple(record.seconds for record in units), assumed, ranks))
    return (*result, *_search_sample(experiment, finished, entries))


def calibration_of_run(experiment: Experiment, folder: RunFolder) -> Calibration | None:
    """What the journal of a run says about its units, on its latest workers; None before the first result."""
    if not folder.journal.is_file():
        return None
    entries = tuple(read(folder.journal))
    start = latest(entries, RunStarted)
    profile = Cluster.model_validate(yaml.safe_load(folder.config.read_text(encoding="utf-8"))["cluster"])
    measured = samples(experiment, entries, profile.workers)
    if not (start and measured):
        return None
    return Calibration(profile.device, f"the workers of {folder.path}", start.at, samples=measured)


def _search_sample(experiment: Experiment, finished: Sequence[Record], entries: Sequence[Event]) -> Iterator[Sample]:
    picks = {entry.key: entry.pick for entry in entries if isinstance(entry, UnitAsked) and entry.pick}
    scores = [record for record in finished if record.kind == "score" and record.key in picks]
    spent = fsum(picks[record.key]["cost"] for record in scores)
    if spent > 0:
        encoded = {}
        for record in scores:
            cell = Cell.parse(record.name)
            encoded[cell.arm.checkpoint, cell.task] = record.value["encode_seconds"]
        seconds = fsum(record.seconds for record in scores) + fsum(encoded.values())
        cpu, assumed = (_problem_on(experiment, costs).exhaustive_cost for costs in (CPU, None))
        yield Sample("search", "cells", (seconds / len(scores),), spent / len(scores) * cpu / assumed)


def _problem_on(experiment: Experiment, costs: CostModel | None) -> Problem:
    """The search of an experiment with the costs of a device; by default of the configured one."""
    return _search.build_problem(experiment, experiment.suites, costs=costs)


def _weights_gib(experiment: Experiment, size: int) -> float:
    """Assumed memory of the largest model's blocks, at a number of bytes per weight."""
    depth = {suite.model: suite.depth for suite in experiment.suites}
    return max(12.0 * width**2 * depth[model] * size for model, width in experiment.widths.items()) / 2**30


def _gpu_gib(experiment: Experiment) -> float:
    """Assumed GPU memory of a worker: weights, states of one batch, and CUDA itself."""
    protocol = experiment.config.protocol
    width = max(experiment.widths.values())
    depth = max(suite.depth for suite in experiment.suites)
    size = BYTES[protocol.dtype]
    # states of all layers, and the widest intermediate ones (four widths, in and out) of one block
    states = protocol.batch_tokens * width * size * (depth + 1 + 8) / 2**30
    return CUDA_GIB + _weights_gib(experiment, size) + states


def _by_suite(experiment: Experiment, units: Sequence[Unit]) -> Iterator[tuple[str, str, list[Unit]]]:
    """Kind, model and units of each suite's training and measuring."""
    for kind, suite in product(("train", "measure"), experiment.suites):
        model = suite.model
        yield kind, model, [each for each in units if each.kind == kind and Checkpoint.parse(each.name).model == model]


def _mean_seconds(experiment: Experiment, kind: str, names: Sequence[str], costs: CostModel) -> float:
    return fsum(unit_seconds(experiment, kind, name, costs) for name in names) / len(names)
