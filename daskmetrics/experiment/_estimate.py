"""What a run takes by assumed costs, before anything is submitted, and what tasks cost in earlier runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from daskmetrics.core._costs import CostModel, TextSize
from daskmetrics.core._files import RunFolder
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

    Examples
    --------
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
