"""What is left of an experiment as a workload: time, memory, disk and downloads, from assumed costs
and from what was measured.

A calibration holds, for each kind of unit and each model, measured seconds beside those that the
cost model assumes of the same device. Their ratio corrects the assumption for other units of the
same kind and model; for another model the interval is wider.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import fsum
from operator import attrgetter
from pathlib import Path
from socket import gethostname
from statistics import fmean
from typing import TypeVar

from pydantic import TypeAdapter

from daskmetrics.bandit.costs import useful_workers
from daskmetrics.config import Cluster, Model, Recipe
from daskmetrics.config.schema import name_of
from daskmetrics.core.costs import (
    CHARACTERS_PER_TOKEN,
    DOWNLOAD_RATE,
    UNKNOWN_TASK,
    CostModel,
    TextSize,
)
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.events import (
    Event,
    Record,
    RunStarted,
    UnitAsked,
    latest,
    measures_nothing,
    records,
    scored,
)
from daskmetrics.core.files import RunFolder, atomic_write, cache_folder, private
from daskmetrics.core.machine import environment
from daskmetrics.core.names import Cell, Checkpoint, step_of
from daskmetrics.core.outcomes import MOST_BYTES
from daskmetrics.core.results import Scored
from daskmetrics.core.text import duration, plural, size_text
from daskmetrics.execution import WorkUnit
from daskmetrics.experiment import Experiment, measure, search
from daskmetrics.experiment.train import TrainedSuite
from daskmetrics.planning.options import (
    USUAL_START,
    Estimate,
    Interval,
    Phase,
    PlanRequest,
    Workload,
)
from daskmetrics.training import is_complete, revisions
from daskmetrics.training.data import effective
from daskmetrics.training.suite import parameters

# factors, up and down
ASSUMED = 4.0  # by which an assumed time may be wrong
OTHER_MODEL = 1.6  # by which the ratio of one model may be wrong for another
WORKER_GIB = 1.5  # assumed host memory of a worker with its libraries
CUDA_GIB = 0.6  # assumed GPU memory of a process that uses CUDA at all
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
BLOCK = 4096  # bytes of a disk that a small file or folder takes
MODEL_BLOCKS = 36  # that the store of a model takes without numbers
CHUNK_BLOCKS = 9  # of a checkpoint's metrics or scores: three chunks, each a file in two folders
VALUE_BYTES = 60  # of a metric's value and error in the journal
SCORE_BYTES = 1500  # of a score there without its outcomes, and of the decision
ASSUMED_LINK = 1e9  # bytes of gradients that ranks are assumed to exchange in a second

Unit = TypeVar("Unit", Record, WorkUnit)


@dataclass(frozen=True)
class Sample:
    """Measured seconds of units of one kind and model, and the assumed seconds of one unit."""

    kind: str  # such as ``measure`` or ``map``
    group: str  # the model's or the function's name
    seconds: tuple[float, ...]  # one for each unit
    assumed: float  # average of such units on the device that measured them
    ranks: int = 1  # workers that shared each unit
    # of a training program in a unit; 0 where it does not report them
    steps: float = 0.0
    samples: float = 0.0
    epochs: float = 0.0

    @property
    def ratio(self) -> Interval:
        """Measured over assumed seconds: the mean, since a plan predicts sums, with the error of
        the mean.

        >>> unlike = (8.0, 0.1)
        >>> Sample("search", "cells", unlike, 1.0).ratio == Interval.around(4.05, ASSUMED)
        True
        >>> 5.0 < Sample("search", "cells", 50 * unlike, 1.0).ratio.high < 8.0
        True
        """
        error = Interval.of([max(seconds, 1e-6) for seconds in self.seconds])
        mean = max(sum(self.seconds) / len(self.seconds), 1e-6)
        # a few very different ones say no less than an assumption
        factor = min(ASSUMED, (error.high / error.low) ** 0.5)
        return Interval.around(mean / self.assumed, max(1.05, factor))


@dataclass(frozen=True)
class Calibration:
    """The result of one bench or probe, with its time and place."""

    device: str
    host: str = field(default_factory=gethostname)
    at: float = field(default_factory=time.time)  # seconds since 1970
    # of what it was measured with
    versions: Mapping[str, str] = field(
        default_factory=partial(environment, "daskmetrics", "distributed", "torch", "transformers")
    )
    samples: tuple[Sample, ...] = ()
    workers: int = 1  # the largest number that was tried
    serial: tuple[float, float, float] = (0.0, 0.0, 0.0)  # the serial share: low, value, high
    start: float = 0.0  # seconds until workers were ready
    # time of a run beyond that of its units on as many workers, as a share of it
    overhead: float = 0.0

    @property
    def is_of_experiment(self) -> bool:
        """Whether its workers started those of an experiment; those of a map import less."""
        return {"map", "program"}.isdisjoint(sample.kind for sample in self.samples)


_JSON = TypeAdapter(Calibration)


def best_sample(
    kind: str, group: str, calibrations: Sequence[Calibration]
) -> tuple[Calibration, Sample] | None:
    """The newest measurement of the same model, or else of the same kind; None without any."""
    same_kind: list[tuple[Calibration, Sample]] = []
    for measured in calibrations:
        same_kind += [(measured, sample) for sample in measured.samples if sample.kind == kind]
    return max(same_kind, key=lambda pair: (pair[1].group == group, pair[0].at), default=None)


def calibrated(
    kind: str,
    group: str,
    assumed: float,
    calibrations: Sequence[Calibration],
) -> Estimate:
    """Seconds of a unit, from those that a device is assumed to take, and its calibrations.

    The newest calibration of the same model is used, or else the newest of the same kind.

    >>> known = [
    ...     Calibration("cpu", "here", at, samples=(Sample("measure", "tiny", (at, at), 1.0),))
    ...     for at in (3.0, 2.0)
    ... ]
    >>> seconds = calibrated("measure", "tiny", 10.0, known)
    >>> round(seconds.value, 6), seconds.measured
    (30.0, True)
    >>> seconds = calibrated("measure", "small", 10.0, known)
    >>> seconds.measured, seconds.interval.high > 40.0
    (False, True)
    >>> calibrated("search", "tiny", 10.0, known).source
    'estimated'
    """
    best = best_sample(kind, group, calibrations)
    if best is None:
        return Estimate(Interval.around(assumed, ASSUMED))
    calibration, sample = best
    same_model = sample.group == group
    seconds = sample.ratio * assumed
    if not same_model:
        seconds *= Interval.around(1.0, OTHER_MODEL)
    source = f"{len(sample.seconds)} x {kind} {sample.group} measured on {calibration.host}"
    return Estimate(seconds, source, same_model, calibration.at)


def workload(
    experiment: Experiment,
    folder: RunFolder,
    entries: Sequence[Event],
    calibrations: Sequence[Calibration],
    device: str,
) -> Workload:
    """The remaining work of an experiment, as phases with seconds on a device: ``cpu``, or a kind
    of GPU.

    What the entries of the journal in the run's folder hold already is not counted.
    """
    of_device = [measured for measured in calibrations if measured.device == device]
    costs = CostModel(device)
    units = _by_suite(experiment, measure.units_left(experiment, folder, entries))
    groups = {group: [unit.name for unit in of_group] for group, of_group in units.items()}
    for model, suite in experiment.trainings.items():
        names = [
            f"{model}@{revision}"
            for revision in revisions(suite.recipe)
            if suite.recipe.ranks > 1 and not is_complete(suite.folder, revision)
        ]
        if names:  # a process group trains it
            groups["train", model] = names
    phases: list[Phase] = []
    kind_before = ""
    for (kind, model), names in groups.items():
        assumed = fmean(assumed_seconds(experiment, kind, name, costs) for name in names)
        seconds = calibrated(kind, model, assumed, of_device)
        phase = Phase(f"{kind} {model}", len(names), seconds, device)
        if kind == "measure":
            phase = _with_bench(phase, kind, of_device)
        else:
            phase = _training(phase, model, experiment.trainings[model], names, of_device)
        if kind == kind_before and not (phase.together or phases[-1].together):
            phase = replace(phase, beside=True)
        kind_before = kind
        phases.append(phase)
    scores = 0
    if search_left := search_phase(experiment, entries, of_device, costs):
        phases.append(search_left)
        scores = search_left.units
    start = Estimate(Interval.exactly(0.0), "nothing to do", True)
    missing: tuple[str, ...] = ()
    download = None
    disk_bytes = 0.0
    if phases:
        measured = {
            model: len(names) for (kind, model), names in groups.items() if kind == "measure"
        }
        disk_bytes = store_bytes(experiment, measured, scores)
        start = _start([measured for measured in of_device if measured.is_of_experiment])
        missing, download = _downloads(experiment)
    return Workload(
        tuple(phases),
        start,
        vram_gib=_gpu_gib(experiment),
        host_gib=WORKER_GIB + _weights_gib(experiment, 4),
        disk_bytes=round(disk_bytes),
        missing=missing,
        texts=text_counts(experiment),
        download=download,
    )


def samples_of(calibration: Calibration, model: Model) -> dict[int, Sample]:
    """Those of the training program of a model, by ranks; a bench may have timed the program by
    itself.
    """
    names = {model.name}
    if model.program:
        names.add(name_of(Path(model.program.script).stem))
    return {
        sample.ranks: sample
        for sample in calibration.samples
        if sample.kind == "program" and sample.group in names
    }


def programs_workload(
    models: Sequence[Model],
    request: PlanRequest,
    calibrations: Sequence[Calibration],
    device: str,
) -> Workload:
    """What `bench` has timed of the training programs of models, as often as is requested, one
    after the other, each by the latest bench on a device or, without one, on any; `ConfigError` if
    one was never timed. All workers train a program that is planned by itself, and the ranks that
    it names that of a configuration.
    """
    ranks = {}
    if not request.is_program:
        ranks = {model.name: model.program.ranks for model in models if model.program}
    phases = []
    for model in models:
        timed = [measured for measured in calibrations if samples_of(measured, model)]
        if not timed:
            raise ConfigError(
                f"The time of '{model.name}' is not known. Measure a part of its work, such as an"
                " epoch, with daskmetrics bench PROGRAM --ranks 1,2, and say by --times how many"
                " such parts it has."
            )
        calibration = max(
            timed,
            # datasheets relate GPUs alone
            key=lambda measured: (
                measured.device == device,
                (measured.device == "cpu") == (device == "cpu"),
                measured.at,
            ),
        )
        by_ranks = samples_of(calibration, model)
        fewest = by_ranks[min(by_ranks)]
        phase = Phase(
            f"train {model.name}",
            request.times,
            calibrated("program", fewest.group, fewest.assumed, [calibration]),
            calibration.device,
            chains=ranks.get(model.name),
            together=True,
            workers=fewest.ranks,
            serial=Interval(*calibration.serial),
            steps={number: sample.steps for number, sample in by_ranks.items() if sample.steps},
            samples=fewest.samples,
            epochs=fewest.epochs,
        )
        phases.append(phase)
    return Workload(tuple(phases), _start([calibration]), least=max(ranks.values(), default=1))


def search_phase(
    experiment: Experiment,
    entries: Sequence[Event],
    calibrations: Sequence[Calibration],
    costs: CostModel,
) -> Phase | None:
    """The scores that are left; each with its share of the encoding that scores share."""
    if not experiment.tasks:
        return None
    problem = search.build_problem(experiment, costs=costs)
    cells = search.cells_left(experiment, entries)
    if not cells:
        return None
    at_once = search.fixed_window(experiment, entries)
    useful = useful_workers(experiment.config.search.policy)
    if not at_once and useful < math.inf:
        at_once = int(useful)
    assumed = problem.exhaustive_cost / (len(experiment.arms) * len(experiment.tasks))
    seconds = calibrated("search", "cells", assumed, calibrations)
    phase = Phase("search", cells, seconds, costs.device, at_once)
    return _with_bench(phase, "search", calibrations)


def _start(calibrations: Sequence[Calibration]) -> Estimate:
    """Seconds until workers are ready, from the latest bench."""
    for measured in reversed(calibrations):
        if measured.start:
            seconds = Interval.around(measured.start, 2.0)
            return Estimate(seconds, f"measured on {measured.host}", True, measured.at)
    return USUAL_START


def _with_bench(phase: Phase, kind: str, calibrations: Sequence[Calibration]) -> Phase:
    """A phase with the overhead and the serial share of the latest bench of its kind of units."""
    for bench in reversed(calibrations):
        if bench.workers > 1 and kind in {sample.kind for sample in bench.samples}:
            interval = phase.seconds.interval * (1.0 + bench.overhead)
            seconds = replace(phase.seconds, interval=interval)
            return replace(phase, seconds=seconds, serial=Interval(*bench.serial))
    return phase


def _training(
    phase: Phase,
    model: str,
    suite: TrainedSuite,
    names: Sequence[str],
    calibrations: Sequence[Calibration],
) -> Phase:
    """A training to these checkpoints, whose ranks share each step, and each step follows the one
    before; the exchange of gradients is its serial share.
    """
    recipe = suite.recipe
    steps = fmean(steps_to(recipe, Checkpoint.parse(name).revision) for name in names)
    steps = max(1 / len(names), steps)
    phase = replace(
        phase,
        chains=recipe.ranks,
        steps={1: steps, recipe.ranks: steps},
        samples=steps * effective(recipe),
        epochs=suite.epochs * steps / recipe.steps,
    )
    if recipe.ranks == 1:
        return phase
    exchange = calibrated("allreduce", model, exchange_seconds(recipe), calibrations)
    best = best_sample("train", model, calibrations)
    ranks = 1
    if best:
        ranks = best[1].ranks
    step = phase.seconds.interval * (1 / steps)
    seconds = replace(
        phase.seconds,
        source=f"{phase.seconds.source}; exchange of gradients {exchange.source}",
        measured=phase.seconds.measured and exchange.measured,
    )
    serial = exchange_share(step, exchange.interval, ranks)
    return replace(phase, seconds=seconds, together=True, workers=ranks, serial=serial)


def exchange_seconds(recipe: Recipe) -> float:
    """Assumed seconds in which very many ranks exchange the gradients of a step; n of them take (1
    - 1/n) as long.
    """
    return 4.0 * parameters(recipe) / ASSUMED_LINK


def exchange_share(step: Interval, exchange: Interval, ranks: int) -> Interval:
    """The serial share of a training: the exchange among very many ranks, beside a step of one rank
    alone.

    Seconds of a step were measured with ``ranks`` ranks: a part of the work, and (1 - 1/n) of the
    exchange.

    >>> exchange_share(Interval.exactly(6.0), Interval.exactly(2.0), ranks=2).value
    0.2
    """

    def share(step: float, exchange: float) -> float:
        alone = ranks * step - (ranks - 1) * exchange
        return min(1.0, exchange / max(step, alone))

    return Interval(
        share(step.high, exchange.low),
        share(step.value, exchange.value),
        share(step.low, exchange.high),
    )


def _by_suite(experiment: Experiment, units: Sequence[Unit]) -> dict[tuple[str, str], list[Unit]]:
    """Units of training and of measuring, by kind and model; training first."""
    groups: dict[tuple[str, str], list[Unit]] = {}
    for kind, suite in product(("train", "measure"), experiment.suites):
        same = [
            unit
            for unit in units
            if unit.kind == kind and Checkpoint.parse(unit.name).model == suite.model
        ]
        if same:
            groups[kind, suite.model] = same
    return groups


def steps_to(recipe: Recipe, revision: str) -> int:
    """The steps from the checkpoint before to this one."""
    step = step_of(revision) or 0
    saved = [step_of(other) or 0 for other in revisions(recipe)]
    return step - max((other for other in saved if other < step), default=0)


def assumed_seconds(experiment: Experiment, kind: str, name: str, costs: CostModel) -> float:
    """Assumed seconds of a ``train`` or ``measure`` unit with a checkpoint's name."""
    checkpoint = Checkpoint.parse(name)
    width = experiment.widths[checkpoint.model]
    suite = experiment.by_model[checkpoint.model]
    if kind == "train":
        recipe = experiment.trainings[checkpoint.model].recipe
        steps = max(1, steps_to(recipe, checkpoint.revision))
        tokens = float(steps * effective(recipe) * recipe.context)
        return costs.train_seconds(width, suite.depth, tokens, recipe.context)
    return measure.assumed_seconds(experiment, checkpoint, costs)


def _downloads(experiment: Experiment) -> tuple[tuple[str, ...], Estimate | None]:
    """What a run would download, and its assumed seconds: weights, and the texts of tasks with a
    byte for a character.
    """
    weights = experiment.missing
    tasks = [task for task in experiment.tasks if not task.is_local]
    missing = []
    if weights:
        missing.append(plural(len(weights), "checkpoint"))
    if tasks:
        missing.append(f"the data of {plural(len(tasks), 'task')}")
    if not missing:
        return (), None
    protocol = experiment.config.protocol
    texts = [search.task_size(task, protocol, read=False) for task in tasks]
    size = sum(measure.bytes_of(experiment, checkpoint) for checkpoint in weights)
    size += sum(CHARACTERS_PER_TOKEN * text.tokens for text in texts)
    basis = "estimated: weights from their shapes, in half precision"
    if not tasks and all(location.rolling for location in weights.values()):
        basis = "listed by the hub"
    seconds = size / DOWNLOAD_RATE
    rate = f"{duration(seconds)} at an estimated {DOWNLOAD_RATE / 1e6:.0f} MB/s"
    source = f"{size_text(size)} ({basis}), {rate}"
    return tuple(missing), Estimate(Interval.around(seconds, ASSUMED), source)


def store_bytes(experiment: Experiment, measured: Mapping[str, int], scores: int) -> float:
    """Assumed size of the arrays and the journal with so many checkpoints of each model that are
    measured, and so many scores; weights and the report are not counted.
    """
    chunks = min(scores, len(experiment.checkpoints))
    values = 0
    if experiment.metrics:
        chunks += sum(measured.values())
        for model, count in measured.items():
            values += count * len(experiment.by_model[model].layers) * len(experiment.metrics)
    blocks = MODEL_BLOCKS * len(experiment.suites) + CHUNK_BLOCKS * chunks
    size = float(BLOCK * blocks + VALUE_BYTES * values)
    if scores:
        outcomes = fmean(min(MOST_BYTES, 2 * task.texts) for task in _task_sizes(experiment))
        size += scores * (SCORE_BYTES + outcomes * 4 / 3)  # in base64
    return size


def text_counts(experiment: Experiment) -> dict[str, int]:
    """How many texts the tasks have by this estimate, and for how many tasks that is counted, listed
    by a benchmark, or assumed; empty without tasks.
    """
    tasks = experiment.tasks
    if not tasks:
        return {}
    sizes = _task_sizes(experiment)
    assumed = sum(size is UNKNOWN_TASK for size in sizes)
    listed = sum(getattr(task, "statistics", None) is not None for task in tasks)
    return {
        "texts": sum(size.texts for size in sizes),
        "tasks": len(tasks),
        "counted": len(tasks) - assumed - listed,
        "listed": listed,
        "assumed": assumed,
        "each": UNKNOWN_TASK.texts,
    }


def _task_sizes(experiment: Experiment) -> list[TextSize]:
    protocol = experiment.config.protocol
    return [search.task_size(task, protocol, read=False) for task in experiment.tasks]


def _weights_gib(experiment: Experiment, size: int) -> float:
    """Assumed memory of the largest model's blocks, at a number of bytes per weight."""
    weights = [
        12.0 * experiment.widths[suite.model] ** 2 * suite.depth for suite in experiment.suites
    ]
    return max(weights) * size / 2**30


def _gpu_gib(experiment: Experiment) -> float:
    """Assumed GPU memory of a worker: weights, states of one batch, and CUDA itself."""
    protocol = experiment.config.protocol
    width = max(experiment.widths.values())
    depth = max(suite.depth for suite in experiment.suites)
    size = BYTES[protocol.dtype]
    # states of all layers, and the widest intermediate ones (four widths, in and out) of one block
    states = protocol.batch_tokens * width * size * (depth + 1 + 8) / 2**30
    return CUDA_GIB + _weights_gib(experiment, size) + states


def measurements(
    experiment: Experiment, folder: RunFolder, entries: Sequence[Event]
) -> list[Calibration]:
    """All kept calibrations, and what the run in a folder has recorded, the latest one last."""
    calibrations = list(known())
    start = latest(entries, RunStarted)
    if start and start.config:
        profile = Cluster(**start.config["cluster"])
        host = f"the workers of {folder.path}"
        if of_run := samples(experiment, entries, profile):
            calibrations.append(Calibration(profile.device, host, start.at, {}, of_run))
    return sorted(calibrations, key=attrgetter("at"))


def samples(
    experiment: Experiment, entries: Sequence[Event], profile: Cluster
) -> tuple[Sample, ...]:
    """The measured seconds of the units in a run's journal, beside the assumed seconds on the
    workers of its profile.
    """
    costs = CostModel(profile.device)
    finished = [record for record in records(entries) if record.ok and not measures_nothing(record)]
    result = []
    for (kind, model), units in _by_suite(experiment, finished).items():
        ranks = 1
        if kind == "train":
            ranks = min(profile.workers, experiment.trainings[model].recipe.ranks)
        assumed = fmean(assumed_seconds(experiment, kind, unit.name, costs) for unit in units)
        seconds = tuple(unit.seconds for unit in units)
        result.append(Sample(kind, model, seconds, assumed, ranks))
    picks = {
        entry.key: entry.pick for entry in entries if isinstance(entry, UnitAsked) and entry.pick
    }
    scores = [record for record, _ in scored(finished) if record.key in picks]
    spent = fsum(picks[record.key]["cost"] for record in scores)
    if spent and experiment.tasks:  # which may all be removed since
        # a search pays in assumed seconds of the device that its configuration names
        on_device = search.build_problem(experiment, costs=costs)
        paid_in = search.build_problem(experiment)
        assumed = spent / len(scores) * on_device.exhaustive_cost / paid_in.exhaustive_cost
        result.append(Sample("search", "cells", tuple(unit_seconds(scores)), assumed))
    return tuple(result)


def unit_seconds(units: Iterable[Record]) -> list[float]:
    """Seconds of each unit on its worker; an encoding counts with the first score that used it."""
    seconds = []
    encodings: set[tuple[Checkpoint, str, float]] = set()
    for record in units:
        of_unit = record.seconds
        if record.kind == "score" and isinstance(record.value, Scored):
            cell = Cell.parse(record.name)
            encoding = cell.arm.checkpoint, cell.task, record.value.encode_seconds
            if encoding not in encodings:
                of_unit += record.value.encode_seconds
            encodings.add(encoding)
        seconds.append(of_unit)
    return seconds


def folder() -> Path:
    """Where calibrations are kept."""
    # those of the first format compared every device with a CPU core
    return cache_folder() / "calibrations-2"


def save(calibration: Calibration) -> Path:
    """Keep a calibration; returns the path of its file."""
    path = folder() / f"{calibration.at:.0f}-{calibration.device}-{os.getpid()}.json"
    with private():
        path.parent.mkdir(parents=True, exist_ok=True)
    return atomic_write(path, _JSON.dump_json(calibration, indent=1).decode())


def known() -> tuple[Calibration, ...]:
    """All kept calibrations, oldest first; DataError for a file that is not a calibration."""
    calibrations = []
    for path in sorted(folder().glob("*.json")):
        try:
            calibrations.append(_JSON.validate_json(path.read_bytes()))
        except ValueError as error:
            raise DataError(
                f"'{path}' is not a calibration ({error}). "
                "Delete it and measure again with: daskmetrics bench"
            ) from None
    return tuple(calibrations)
