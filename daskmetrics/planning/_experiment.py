"""An experiment as a workload: its units by kind and model, what is assumed of them and what was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import Any

import yaml

from daskmetrics.config import Cluster
from daskmetrics.core._costs import CostModel
from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.core._events import Event, Record, RunStarted, UnitAsked
from daskmetrics.core._files import RunFolder
from daskmetrics.execution._journal import latest, read, records
from daskmetrics.experiment import Experiment
from daskmetrics.experiment import _measure as measure
from daskmetrics.experiment import _search as searching
from daskmetrics.experiment._estimate import estimate, unit_seconds
from daskmetrics.planning import Calibration, Phase, Sample, Workload, calibrated

WORKER_GIB = 1.5
"""Assumed host memory of a worker with its libraries."""

CUDA_GIB = 0.6
"""Assumed GPU memory of a process that uses CUDA at all."""

CPU = CostModel("cpu")
"""Samples are compared with what it assumes, whatever measured them."""

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def workload(experiment: Experiment, folder: RunFolder, known: Sequence[Calibration], device: str) -> Workload:
    """What is still to be done of an experiment, as phases with seconds on a device.

    Parameters
    ----------
    experiment : Experiment
    folder : RunFolder
        Where it runs or will run; what its journal holds already is not counted.
    known : sequence of Calibration
    device : str
        Whose seconds are wanted: ``cpu``, or a kind of GPU.
    """
    entries = tuple(read(folder.journal)) if folder.journal.is_file() else ()
    past = tuple(records(entries))
    own = tuple(calibration for calibration in known if calibration.device == device)
    window = searching.settled_window(experiment, entries)
    phases = [_put_right(phase, own) for phase in _phases(experiment, folder, past, window, own, device)]
    return Workload(
        tuple(phase for phase in phases if phase.units),
        device,
        _start(own),
        vram_gib=gpu_gib(experiment),
        host_gib=WORKER_GIB + weights_gib(experiment, 4),
        disk_bytes=estimate(experiment, folder, past).disk_bytes,
        missing=tuple(_missing(experiment)),
    )


def _phases(
    experiment: Experiment,
    folder: RunFolder,
    past: tuple[Record, ...],
    window: int | None,
    known: Sequence[Calibration],
    device: str,
) -> Iterator[Phase]:
    models = CPU, CostModel(device)
    done = {record.key for record in past if record.ok}
    units = [unit for unit in measure.units(experiment, folder, past) if unit.key not in done]
    for kind in ("train", "measure"):
        for suite in experiment.suites:
            group = [unit for unit in units if unit.kind == kind and _model(unit.name) == suite.model]
            assumed, otherwise = (
                _mean(unit_seconds(experiment, kind, unit.name, costs) for unit in group) or 1.0 for costs in models
            )
            seconds = calibrated(kind, suite.model, assumed, known, device, otherwise)
            yield Phase(f"{kind} {suite.model}", len(group), seconds, chains=1 if kind == "train" else None)
    if experiment.tasks:
        yield _search(experiment, past, window, known, device)


def _search(
    experiment: Experiment, past: tuple[Record, ...], window: int | None, known: Sequence[Calibration], device: str
) -> Phase:
    """The cells that the budget allows; an encoding that cells share is part of their mean cost."""
    cpu, posed = (searching.pose(experiment, experiment.suites, costs=costs) for costs in (CPU, CostModel(device)))
    cells = len(experiment.arms) * len(experiment.tasks)
    budget = searching.budget(experiment.config.search)
    allowed = min(budget.within(posed.exhaustive_cost) / posed.exhaustive_cost * cells, budget.cells or cells)
    scored = sum(record.kind == "score" and record.ok for record in past)
    units = max(0, round(allowed) - scored)
    assumed, otherwise = cpu.exhaustive_cost / cells, posed.exhaustive_cost / cells
    seconds = calibrated("search", "cells", assumed, known, device, otherwise)
    return Phase("search", units, seconds, chains=window)


def _put_right(phase: Phase, known: Sequence[Calibration]) -> Phase:
    """With what runs take beyond their units, and what does not become shorter by workers, as last benched.

    A suite is trained step by step anyway: what a bench of that calls serial is the chain, which is known.
    """
    kind = phase.name.partition(" ")[0]
    benches = [each for each in known if each.workers > 1 and any(sample.kind == kind for sample in each.samples)]
    if not benches or kind == "train":
        return phase
    latest = max(benches, key=lambda calibration: calibration.at)
    seconds = phase.seconds.times(1.0 + latest.overhead)
    return dataclasses.replace(phase, seconds=seconds, serial=Interval(*latest.serial))


def _start(known: Sequence[Calibration]) -> Estimate:
    timed = [calibration for calibration in known if calibration.start]
    if not timed:
        return Workload(()).start
    latest = max(timed, key=lambda calibration: calibration.at)
    return Estimate(Interval.around(latest.start, 2.0), f"measured on {latest.host}", True, latest.at)


def samples(experiment: Experiment, entries: Sequence[Event]) -> tuple[Sample, ...]:
    """What the journal of a run of the experiment says of the seconds of its units, beside what is assumed."""
    found = [record for record in records(entries) if record.ok]
    made = []
    for kind in ("train", "measure"):
        for suite in experiment.suites:
            own = [record for record in found if record.kind == kind and _model(record.name) == suite.model]
            if own:
                assumed = _mean(unit_seconds(experiment, kind, record.name, CPU) for record in own)
                made.append(Sample(kind, suite.model, tuple(record.seconds for record in own), assumed))
    return (*made, *_searched(experiment, found, entries))


def of_run(experiment: Experiment, folder: RunFolder) -> Calibration | None:
    """What the run in a folder says of its own units, on the workers that it had last; None before it has any."""
    if not folder.journal.is_file():
        return None
    entries = tuple(read(folder.journal))
    start = latest(entries, RunStarted)
    found = samples(experiment, entries)
    if not (start and found):
        return None
    profile = Cluster.model_validate(yaml.safe_load(folder.config.read_text(encoding="utf-8"))["cluster"])
    return Calibration(profile.device, f"the workers of {folder.path}", start.at, samples=found)


def _searched(experiment: Experiment, found: Sequence[Record], entries: Sequence[Event]) -> Iterator[Sample]:
    picks = {entry.key: entry.pick for entry in entries if isinstance(entry, UnitAsked) and entry.pick}
    scores = [record for record in found if record.kind == "score" and record.key in picks]
    spent = fsum(picks[record.key]["cost"] for record in scores)
    if spent > 0:
        cells = {record.key: picks[record.key]["cell"] for record in scores}
        shared = {(_checkpoint(cells[r.key]), cells[r.key]["task"]): r.value["encode_seconds"] for r in scores}
        took = fsum(record.seconds for record in scores) + fsum(shared.values())
        cpu, own = (searching.pose(experiment, experiment.suites, costs=costs).exhaustive_cost for costs in (CPU, None))
        yield Sample("search", "cells", (took / len(scores),), spent / len(scores) * cpu / own)


def _checkpoint(cell: Mapping[str, Any]) -> tuple[str, str]:
    return cell["arm"]["model"], cell["arm"]["revision"]


def weights_gib(experiment: Experiment, size: int) -> float:
    """Assumed memory of the largest model's blocks."""
    depth = {suite.model: suite.depth for suite in experiment.suites}
    return max(12.0 * width**2 * depth[model] * size for model, width in experiment.widths.items()) / 2**30


def gpu_gib(experiment: Experiment) -> float:
    """Assumed GPU memory of a worker: weights, states of one batch, and CUDA itself."""
    protocol = experiment.config.protocol
    width = max(experiment.widths.values())
    depth = max(suite.depth for suite in experiment.suites)
    size = BYTES[protocol.dtype]
    # states of all layers, and the widest intermediate ones (four widths, in and out) of one block
    states = protocol.batch_tokens * width * size * (depth + 1 + 8) / 2**30
    return CUDA_GIB + weights_gib(experiment, size) + states


def _missing(experiment: Experiment) -> Iterator[str]:
    for model, revisions in experiment.missing.items():
        yield f"{len(revisions):,} checkpoints of {model}"
    lacking = [task.name for task in experiment.tasks if not task.is_local]
    if lacking:
        yield f"the data of {len(lacking):,} tasks"


def _model(name: str) -> str:
    return name.partition("@")[0]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return fsum(found) / len(found) if found else 0.0
