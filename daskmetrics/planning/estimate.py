"""What is left of an experiment or of training programs.

It is counted by the plan of the run, in seconds that are assumed, or corrected by what was measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean

import numpy as np

from daskmetrics.bandit.costs import useful_workers
from daskmetrics.config import Cluster, Model, Protocol, Recipe
from daskmetrics.config.schema import name_of
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.text import duration, plural, size_text
from daskmetrics.domain.costs import (
    CHARACTERS_PER_TOKEN,
    DOWNLOAD_RATE,
    UNKNOWN_TASK,
    CostModel,
    TextSize,
    block_weights,
)
from daskmetrics.domain.events import (
    Event,
    RunStarted,
    UnitAsked,
    is_finished,
    latest,
    measures_nothing,
    records,
)
from daskmetrics.domain.names import Checkpoint, Suite
from daskmetrics.domain.outcomes import MOST_BYTES
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.record import Record
from daskmetrics.experiment import Experiment, measure, search
from daskmetrics.experiment.problem import build_problem, task_size
from daskmetrics.experiment.train import TrainedSuite
from daskmetrics.planning.calibration import (
    ASSUMED,
    Calibration,
    Sample,
    best_sample,
    calibrated,
    kept,
    unit_seconds,
)
from daskmetrics.planning.work import USUAL_START, Estimate, Phase, Work, around, exactly
from daskmetrics.tasks import Task
from daskmetrics.training.data import effective
from daskmetrics.training.suite import parameters, steps_to

WORKER_GIB = 1.5  # assumed host memory of a worker with its libraries
CUDA_GIB = 0.6  # assumed GPU memory of a process that uses CUDA at all
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
BLOCK = 4096  # bytes of a disk that a small file or folder takes
MODEL_BLOCKS = 36  # that the store of a model takes without numbers
CHUNK_BLOCKS = 9  # of a checkpoint's metrics or scores: three chunks, each a file in two folders
VALUE_BYTES = 60  # of a metric's value and error in the journal
SCORE_BYTES = 1500  # of a score there without its outcomes, and of the decision
ASSUMED_LINK = 1e9  # bytes of gradients that ranks are assumed to exchange in a second


def checkpoints_left(plan: Plan, entries: Sequence[Event]) -> dict[str, list[Checkpoint]]:
    """The checkpoints that are to be measured, by model.

    A recorded failure counts as done until `retry`.
    """
    left = defaultdict[str, list[Checkpoint]](list)
    done = {record.key for record in records(entries)}
    for checkpoint, key in plan.measure_keys.items():
        if plan.metrics and key not in done:
            left[checkpoint.model].append(checkpoint)
    return left


def workload(
    experiment: Experiment,
    entries: Sequence[Event],
    calibrations: Sequence[Calibration],
    device: str,
) -> Work:
    """What is left of an experiment, in seconds on a device."""
    plan = experiment.plan
    protocol = experiment.config.protocol
    sizes = [task_size(task, protocol, read=False) for task in experiment.tasks]
    nothing = Work(
        (),
        Estimate(exactly(0.0), "nothing to do"),
        *memory_gib(plan.suites, plan.widths, protocol),
        texts=texts_of(experiment.tasks, sizes),
    )
    if is_finished(entries, plan.key):
        return nothing
    known = [measured for measured in calibrations if measured.device == device]
    costs = CostModel(device)
    trainings = [
        training_phase(model, suite, missing, known, costs)
        for model, suite in experiment.trainings.items()
        if (missing := suite.missing)
    ]
    checkpoints = checkpoints_left(plan, entries)
    measuring = []
    for model, names in checkpoints.items():
        assumed = fmean(measure.assumed_seconds(experiment, name, costs) for name in names)
        unit = calibrated("measure", model, assumed, known)
        phase = Phase(f"measure {model}", len(names), unit, device)
        measuring.append(_as_benched(phase, "measure", known))
    searching = []
    scores = search.cells_left(experiment, entries)
    if scores:
        begun = (
            entry.window for entry in entries if isinstance(entry, Plan) and entry.key == plan.key
        )
        at_once = experiment.config.search.window or next(begun, None)
        useful = useful_workers(experiment.config.search.policy)
        if not at_once and useful < math.inf:
            at_once = int(useful)
        assumed = build_problem(experiment, costs=costs).mean_cost
        unit = calibrated("score", "", assumed, known)
        phase = Phase("search", scores, unit, device, at_once)
        searching.append(_as_benched(phase, "score", known))
    # a process group has all workers for itself
    stages = [[phase] for phase in trainings if phase.together]
    stages += [[phase for phase in trainings if not phase.together], measuring, searching]
    if not any(stages):
        return nothing
    missing, download = downloads(experiment, sizes)
    counts = {model: len(names) for model, names in checkpoints.items()}
    return replace(
        nothing,
        stages=tuple(tuple(stage) for stage in stages if stage),
        start=_start_of([measured for measured in known if measured.is_of_experiment]),
        disk_bytes=store_bytes(plan, counts, scores, sizes),
        missing=missing,
        download=download,
    )


def _as_benched(phase: Phase, kind: str, calibrations: Sequence[Calibration]) -> Phase:
    """A phase with the overhead and serial share of its bench."""
    for bench in reversed(calibrations):
        if bench.workers > 1 and kind in {sample.kind for sample in bench.samples}:
            unit = replace(phase.unit, seconds=phase.unit.seconds * (1 + bench.overhead))
            return replace(phase, unit=unit, serial=np.array(bench.serial))
    return phase


def training_phase(
    model: str,
    suite: TrainedSuite,
    revisions: Sequence[str],
    calibrations: Sequence[Calibration],
    costs: CostModel,
) -> Phase:
    """A training to the missing checkpoints of a suite, one after the other."""
    recipe = suite.recipe
    assumed = fmean(_train_seconds(recipe, revision, costs) for revision in revisions)
    steps = fmean(steps_to(recipe, revision) for revision in revisions)
    steps = max(1 / len(revisions), steps)
    phase = Phase(
        f"train {model}",
        len(revisions),
        calibrated("train", model, assumed, calibrations),
        costs.device,
        at_once=recipe.ranks,
        steps={1: steps, recipe.ranks: steps},
        samples=steps * effective(recipe),
        epochs=suite.epochs * steps / recipe.steps,
    )
    if recipe.ranks == 1:
        return phase
    ranks = 1
    if best := best_sample("train", model, calibrations):
        ranks = best[1].ranks
    phase = replace(phase, together=True, timed_workers=ranks)
    benched = _as_benched(phase, "train", calibrations)
    if benched is not phase:
        return benched
    # more ranks do not shorten the exchange of gradients; its share of the longest steps is least
    exchange = around(4.0 * parameters(recipe) / ASSUMED_LINK, ASSUMED)
    serial = np.minimum(1.0, exchange / (ranks * phase.unit.seconds / steps)[::-1])
    source = f"{phase.unit.source}; exchange of gradients estimated"
    return replace(phase, unit=replace(phase.unit, source=source), serial=serial)


def _train_seconds(recipe: Recipe, revision: str, costs: CostModel) -> float:
    steps = max(1, steps_to(recipe, revision))
    tokens = float(steps * effective(recipe) * recipe.context)
    return costs.train_seconds(recipe.width, recipe.depth, tokens, recipe.context)


def _start_of(calibrations: Sequence[Calibration]) -> Estimate:
    for bench in reversed(calibrations):
        if bench.start:
            return Estimate(around(bench.start, 2.0), f"measured on {bench.host}", bench.at)
    return USUAL_START


def downloads(
    experiment: Experiment, sizes: Sequence[TextSize]
) -> tuple[tuple[str, ...], Estimate | None]:
    """What a run would download, and its assumed seconds."""
    weights = experiment.missing
    texts = [size for task, size in zip(experiment.tasks, sizes, strict=True) if not task.is_local]
    if not weights and not texts:
        return (), None
    missing = []
    if weights:
        missing.append(plural(len(weights), "checkpoint"))
    if texts:
        missing.append(f"the data of {plural(len(texts), 'task')}")
    size = sum(measure.bytes_of(experiment, checkpoint) for checkpoint in weights)
    size += sum(CHARACTERS_PER_TOKEN * text.tokens for text in texts)
    basis = "estimated: weights from their shapes, in half precision"
    if not texts and all(location.rolling for location in weights.values()):
        basis = "listed by the hub"
    seconds = size / DOWNLOAD_RATE
    rate = f"{duration(seconds)} at an estimated {DOWNLOAD_RATE / 1e6:.0f} MB/s"
    source = f"{size_text(size)} ({basis}), {rate}"
    return tuple(missing), Estimate(around(seconds, ASSUMED), source)


def store_bytes(
    plan: Plan, measured: Mapping[str, int], scores: int, sizes: Sequence[TextSize]
) -> int:
    """Assumed size of the arrays and the journal.

    Of so many measured checkpoints of each model and so many scores; weights and the report are not
    counted.
    """
    chunks = sum(measured.values()) + min(scores, len(plan.checkpoints))
    layers = sum(count * len(plan.by_model[model].layers) for model, count in measured.items())
    blocks = MODEL_BLOCKS * len(plan.suites) + CHUNK_BLOCKS * chunks
    size = float(BLOCK * blocks + VALUE_BYTES * layers * len(plan.metrics))
    if scores:
        outcomes = fmean(min(MOST_BYTES, 2 * task.texts) for task in sizes)
        size += scores * (SCORE_BYTES + outcomes * 4 / 3)  # in base64
    return round(size)


def texts_of(tasks: Sequence[Task], sizes: Sequence[TextSize]) -> str:
    """How many texts the tasks have, and how that is known."""
    if not tasks:
        return ""
    assumed = sum(size is UNKNOWN_TASK for size in sizes)
    listed = sum(task.statistics is not None for task in tasks)
    counts = {
        "counted": len(tasks) - assumed - listed,
        "as the benchmark lists them": listed,
        f"with an estimated {UNKNOWN_TASK.texts:,} texts each": assumed,
    }
    texts = plural(sum(size.texts for size in sizes), "text")
    known = ", ".join(f"{count:,} {basis}" for basis, count in counts.items() if count)
    return f"{texts} in {plural(len(tasks), 'task')}: {known}"


def memory_gib(
    suites: Sequence[Suite], widths: Mapping[str, int], protocol: Protocol
) -> tuple[float, float]:
    """Assumed GPU memory and host memory of a worker."""
    weights = max(block_weights(widths[suite.model], suite.depth) for suite in suites)
    depth = max(suite.depth for suite in suites)
    # states of all layers, and the widest intermediate ones (four widths, in and out) of one block
    states = protocol.batch_tokens * max(widths.values()) * (depth + 1 + 8)
    vram = CUDA_GIB + BYTES[protocol.dtype] * (weights + states) / 2**30
    return vram, WORKER_GIB + 4 * weights / 2**30


def measurements(
    experiment: Experiment, folder: RunFolder, entries: Sequence[Event]
) -> list[Calibration]:
    """All kept calibrations, and what the run has recorded, latest last."""
    calibrations = list(kept())
    plan = latest(entries, Plan)
    start = latest(entries, RunStarted)
    if plan and start:
        profile = Cluster(**plan.config["cluster"])
        host = f"the workers of {folder.path}"
        if of_run := samples(experiment, entries, profile):
            calibrations.append(Calibration(profile.device, host, start.at, {}, of_run))
    return sorted(calibrations, key=attrgetter("at"))


def samples(
    experiment: Experiment, entries: Sequence[Event], profile: Cluster
) -> tuple[Sample, ...]:
    """Measured seconds of the units in a run's journal.

    Beside them those that are assumed of the workers of its profile.
    """
    costs = CostModel(profile.device)
    paid = {
        entry.key: entry.pick["cost"]
        for entry in entries
        if isinstance(entry, UnitAsked) and entry.pick
    }
    # a search pays in assumed seconds of the device that its configuration names
    paid_on = CostModel(experiment.config.search.device)
    rate = 1.0
    if experiment.tasks and paid_on.device != costs.device:
        rate = (
            build_problem(experiment, costs=costs).mean_cost
            / build_problem(experiment, costs=paid_on).mean_cost
        )

    def assumed(record: Record) -> tuple[str, float]:
        """The model of a unit, which a score has not, and its seconds; 0 if nothing is assumed."""
        if record.kind == "score" and experiment.tasks:
            return "", rate * paid.get(record.key, 0.0)
        if record.kind in ("train", "measure"):
            name = Checkpoint.parse(record.name)
            if record.kind == "train" and name.model in experiment.trainings:
                recipe = experiment.trainings[name.model].recipe
                return name.model, _train_seconds(recipe, name.revision, costs)
            if record.kind == "measure" and name.model in experiment.plan.by_model:
                return name.model, measure.assumed_seconds(experiment, name, costs)
        return "", 0.0

    finished = [record for record in records(entries) if record.ok and not measures_nothing(record)]
    groups = defaultdict[tuple[str, str], list[tuple[float, float]]](list)
    for record, seconds in zip(finished, unit_seconds(finished), strict=True):
        model, expected = assumed(record)
        if expected:
            groups[record.kind, model].append((seconds, expected))
    result = []
    for (kind, model), pairs in groups.items():
        of_units, assumed_seconds = zip(*pairs, strict=True)
        ranks = 1
        if kind == "train":
            ranks = min(profile.workers, experiment.trainings[model].recipe.ranks)
        result.append(Sample(kind, model, of_units, fmean(assumed_seconds), ranks))
    return tuple(result)


def samples_of(calibration: Calibration, model: Model) -> dict[int, Sample]:
    """Those of the training program of a model, by ranks.

    A bench may have timed the program by itself.
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
    times: int,
    all_train: bool,
    calibrations: Sequence[Calibration],
    device: str,
) -> Work:
    """What `bench` has timed of training programs, so many times.

    They follow each other. Raises ConfigError if one was never timed.

    Each takes as long as in the latest bench on the device or, without one, on any. If
    ``all_train``, all workers are ranks of a program; else as many as it names.
    """
    stages = []
    least = 1
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
        ranks = None
        if model.program and not all_train:
            ranks = model.program.ranks
            least = max(least, ranks)
        by_ranks = samples_of(calibration, model)
        fewest = by_ranks[min(by_ranks)]
        phase = Phase(
            f"train {model.name}",
            times,
            calibrated("program", fewest.group, fewest.assumed, [calibration]),
            calibration.device,
            at_once=ranks,
            together=True,
            timed_workers=fewest.ranks,
            serial=np.array(calibration.serial),
            steps={number: sample.steps for number, sample in by_ranks.items() if sample.steps},
            samples=fewest.samples,
            epochs=fewest.epochs,
        )
        stages.append((phase,))
    return Work(tuple(stages), _start_of([calibration]), least=least)
