"""What a run takes by assumed costs, before anything is submitted, and what tasks cost in earlier runs."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from daskmetrics import config
from daskmetrics.core._costs import UNKNOWN_TASK, CostModel, TextSize
from daskmetrics.core._files import RunFolder
from daskmetrics.core._table import Table
from daskmetrics.core._text import duration, equal_names
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.names import Cell, Checkpoint
from daskmetrics.execution import Record
from daskmetrics.execution._journal import read, records
from daskmetrics.experiment import _measure as measure
from daskmetrics.experiment import _search as search
from daskmetrics.experiment._prepare import Experiment


@dataclass(frozen=True)
class RunEstimate:
    """Counts and assumed seconds of a run.

    >>> run = RunEstimate(2, 10, 6, 4, 2, exhaustive_seconds=40.0, search_seconds=10.0, measure_seconds=3.0, workers=2)
    >>> run.cells, run.wall_seconds
    (40, 6.5)
    """

    checkpoints: int
    arms: int
    metrics: int
    tasks: int
    units: int  # of the measuring phase, training included
    exhaustive_seconds: float  # of work to score every cell, encodings shared
    search_seconds: float  # of work that the budget allows
    measure_seconds: float  # of work to measure (and train) everything
    workers: int

    @property
    def cells(self) -> int:
        """Arms times tasks: the scores of an exhaustive sweep."""
        return self.arms * self.tasks

    @property
    def wall_seconds(self) -> float:
        """Assumed time from start to report, with all workers busy."""
        return (self.measure_seconds + self.search_seconds) / self.workers

    @property
    def disk_bytes(self) -> int:
        """Of the store and the journal; models are not counted."""
        # two doubles and a byte in the store, about 80 bytes of text in the journal; small files fill a disk block
        return (self.arms * self.metrics + self.cells) * 97 + self.checkpoints * 6 * 4096


def estimate(experiment: Experiment, folder: RunFolder, records: Sequence[Record]) -> RunEstimate:
    """The estimate of a run on the device that the configuration assumes."""
    costs = CostModel(experiment.config.search.device)
    units = measure.units(experiment, folder, records)
    exhaustive = search.build_problem(experiment, experiment.suites).exhaustive_cost if experiment.tasks else 0.0
    return RunEstimate(
        checkpoints=len(experiment.checkpoints),
        arms=len(experiment.arms),
        metrics=len(experiment.metrics),
        tasks=len(experiment.tasks),
        units=len(units),
        exhaustive_seconds=exhaustive,
        search_seconds=experiment.config.search.budget * exhaustive,
        measure_seconds=sum(unit_seconds(experiment, unit.kind, unit.name, costs) for unit in units),
        workers=experiment.config.cluster.workers,
    )


def unit_seconds(experiment: Experiment, kind: str, name: str, costs: CostModel) -> float:
    """Assumed seconds of a ``train`` or ``measure`` unit with a checkpoint's name."""
    checkpoint = Checkpoint.parse(name)
    model = checkpoint.model
    width, depth = experiment.widths[model], next(suite.depth for suite in experiment.suites if suite.model == model)
    if kind == "train":
        recipe = experiment.trainings[model].recipe
        # checkpoints are log-spaced: half of the steps are already done
        steps = max(1, (int(checkpoint.revision.removeprefix("step")) + 1) // 2)
        return costs.train_seconds(width, depth, float(steps * recipe.batch * recipe.context), recipe.context)
    prompts = TextSize.of(map(len, experiment.prompts), experiment.config.protocol.max_length)
    return costs.measure_seconds(width, depth, prompts, experiment.views)


@dataclass(frozen=True)
class TaskCost:
    """Median seconds of a task in earlier runs."""

    encode: float  # of one checkpoint, all layers
    score: float  # of one layer
    cells: int  # number of scores


def task_costs(runs: Path) -> Mapping[str, TaskCost]:
    """The cost of each task in the runs of a folder; a journal that cannot be read is skipped."""
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for journal in sorted(runs.glob("*/journal.jsonl")):
        try:
            finished = [record for record in records(read(journal)) if record.ok]
        except DaskmetricsError:
            continue
        for record in finished:
            if record.kind == "score" and record.worker != "imported":
                seconds[Cell.parse(record.name).task].append((record.value["encode_seconds"], record.seconds))
    return {
        task: TaskCost(median(encode for encode, _ in pairs), median(score for _, score in pairs), len(pairs))
        for task, pairs in seconds.items()
    }


def preview(experiment: Experiment, folder: RunFolder) -> Table:
    """Counts, disk, units and assumed time of the remaining work."""
    past = tuple(records(read(folder.journal))) if folder.journal.is_file() else ()
    return Table((), tuple(_rows(experiment, folder, past)), f"{experiment.config.name} (nothing is submitted)")


def _rows(experiment: Experiment, folder: RunFolder, past: tuple[Record, ...]) -> Iterator[tuple[str, str]]:
    plan = estimate(experiment, folder, past)
    done = {record.key for record in past}
    remaining = sum(unit.key not in done for unit in measure.units(experiment, folder, past))
    exhaustive = (plan.measure_seconds + plan.exhaustive_seconds) / plan.workers
    path = folder.path.resolve()
    free = shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).free
    suites = (f"{s.model} ({len(s.revisions)} checkpoints x {len(s.layers)} layers)" for s in experiment.suites)
    yield "models", ", ".join(suites)
    yield "arms", f"{plan.arms:,} in {plan.checkpoints:,} checkpoints"
    yield "vectors", _vectors(experiment)
    yield "metrics", f"{plan.metrics}: {', '.join(metric.name for metric in experiment.metrics)}"
    yield "tasks", f"{plan.tasks:,}, so {plan.cells:,} cells"
    yield "measuring", f"{plan.units:,} units, {remaining:,} to do"
    yield "search", _limits(experiment.config.search)
    yield "workers", f"{plan.workers} ({experiment.config.cluster.kind})"
    time = f"about {duration(plan.wall_seconds)} (assumed, not measured); every cell would take {duration(exhaustive)}"
    yield "time", time
    yield "disk", f"{plan.disk_bytes / 1e6:,.1f} MB in '{folder.path}', {free / 1e9:,.0f} GB free"
    if unknown := sum(not task.is_local for task in experiment.tasks):
        yield "assumed", f"{UNKNOWN_TASK.texts:,} texts for each of {unknown} tasks whose data is not on this machine"
    for checkpoint, names in experiment.aliases.items():
        yield "identical", f"{equal_names(str(checkpoint), names)}: equal weights, measured and scored once"
    for warning in experiment.warnings:
        yield "warning", warning
    if missing := sum(map(len, experiment.missing.values())):
        yield "missing", f"{missing:,} checkpoints are not on this machine and would be downloaded from the hub"


def _vectors(experiment: Experiment) -> str:
    """How texts become vectors, and for which models if they differ."""
    models: dict[str, dict[str, None]] = defaultdict(dict)
    for checkpoint, protocol in experiment.protocols.items():
        models[protocol.summary][checkpoint.model] = None
    if len(models) == 1:
        return next(iter(models))
    return "; ".join(f"{', '.join(names)}: {summary}" for summary, names in models.items())


def _limits(search: config.Search) -> str:
    """The policy, and what ends the search."""
    limits = [
        f"{search.budget:.1%} of the exhaustive cost",
        f"{search.cells:,} cells" if search.cells else "",
        f"{search.gpu_hours:g} hours of workers" if search.gpu_hours else "",
        f"{search.wall_hours:g} h of wall time" if search.wall_hours else "",
        f"{search.confidence:.0%} confidence to be within {search.within:.1%}" if search.confidence else "",
    ]
    return f"{search.policy}, up to " + " or ".join(filter(None, limits))
