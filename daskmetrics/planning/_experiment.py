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

from daskmetrics.bandit._clock import useful_workers
from daskmetrics.config import Cluster
from daskmetrics.core._costs import CostModel
from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.core._events import Event, Record, RunStarted, UnitAsked
from daskmetrics.core._files import RunFolder
from daskmetrics.core.names import Cell, Checkpoint
from daskmetrics.execution import WorkUnit
from daskmetrics.execution._journal import latest, read, records
from daskmetrics.experiment import Experiment, _search
from daskmetrics.experiment._estimate import cells_left, download_text, estimate, texts_of, unit_seconds, units_left
from daskmetrics.planning._calibration import ASSUMED, Calibration, Sample, calibrated
from daskmetrics.planning._workload import NOTHING_SERIAL, USUAL_START, Phase, Workload

WORKER_GIB = 1.5  # assumed host memory of a worker with its libraries
CUDA_GIB = 0.6  # assumed GPU memory of a process that uses CUDA at all
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
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
        return Phase(name, self.units, seconds, self.chains, serial=serial)


def _measuring(experiment: Experiment, folder: RunFolder, entries: Sequence[Event]) -> Iterator[_Remaining]:
    for kind, model, remaining in _by_suite(experiment, units_left(experiment, folder, entries)):
        assumed = partial(_mean_seconds, experiment, kind, [unit.name for unit in remaining])
        yield _Remaining(kind, model, len(remaining), assumed, chains=1 if kind == "train" else None)


def _searching(experiment: Experiment, entries: Sequence[Event], device: str) -> Iterator[_Remaining]:
    """The cells that the budget allows; their mean seconds include a share of the encoding that cells share."""
    if not experiment.tasks:
        return

    exhaustive = cache(partial(_exhaustive_cost, experiment))
    cells = len(experiment.arms) * len(experiment.tasks)
    left = cells_left(experiment, entries, exhaustive(CostModel(device)))
    useful = useful_workers(experiment.config.search.policy)
    at_once = _search.fixed_window(experiment, entries) or (int(useful) if useful < math.inf else None)
    yield _Remaining("search", "cells", left, lambda on: exhaustive(on) / cells, at_once)


def samples(experiment: Experiment, entries: Sequence[Event]) -> tuple[Sample, ...]:
    """The measured seconds of the units in a run's journal, beside the assumed seconds."""
    finished = [record for record in records(entries) if record.ok]
    result = []
    for kind, model, units in _by_suite(experiment, finished):
        if units:
            assumed = _mean_seconds(experiment, kind, [record.name for record in units], CPU)
            result.append(Sample(kind, model, tuple(record.seconds for record in units), assumed))
    return (*result, *_search_sample(experiment, finished, entries))


def calibration_of_run(experiment: Experiment, folder: RunFolder) -> Calibration | None:
    """What the journal of a run says about its units, on its latest workers; None before the first result."""
    if not folder.journal.is_file():
        return None
    entries = tuple(read(folder.journal))
    start = latest(entries, RunStarted)
    measured = samples(experiment, entries)
    if not (start and measured):
        return None
    profile = Cluster.model_validate(yaml.safe_load(folder.config.read_text(encoding="utf-8"))["cluster"])
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
        cpu, assumed = (_exhaustive_cost(experiment, costs) for costs in (CPU, None))
        yield Sample("search", "cells", (seconds / len(scores),), spent / len(scores) * cpu / assumed)


def _exhaustive_cost(experiment: Experiment, costs: CostModel | None) -> float:
    return _search.build_problem(experiment, experiment.suites, costs=costs).exhaustive_cost


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
