"""What is left of a run by its journal: units of training and measuring, and scores of the
search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from daskmetrics.bandit import Problem
from daskmetrics.core.events import (
    Event,
    Record,
    SearchEnded,
    UnitAsked,
    is_finished,
    records,
    standing,
)
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Cell, Key
from daskmetrics.execution import WorkUnit
from daskmetrics.experiment import _fresh as fresh
from daskmetrics.experiment import measure, search
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.tasks import Task


def units(experiment: Experiment, folder: RunFolder, recorded: Iterable[Record]) -> list[WorkUnit]:
    """The units of training, and those of measuring if there is a metric, whether done or not."""
    planned = measure.units(experiment, folder, recorded)
    if experiment.metrics:
        return planned
    return [unit for unit in planned if unit.kind == "train"]


def units_left(
    experiment: Experiment, folder: RunFolder, entries: Sequence[Event]
) -> list[WorkUnit]:
    """The units of training and measuring that are to do; a recorded failure counts as done until
    `retry`.
    """
    if is_finished(entries, experiment.key):
        return []
    recorded = tuple(records(entries))
    done = {record.key for record in recorded}
    return [unit for unit in units(experiment, folder, recorded) if unit.key not in done]


def cells_left(experiment: Experiment, entries: Sequence[Event], problem: Problem) -> int:
    """The scores that the search will still pay for: what its budget allows, less those that this
    run has.

    The budget for the finalists on fresh items is counted as so many scores of the search.
    """
    if not experiment.tasks or is_finished(entries, experiment.key):
        return 0
    scores = {task.name: task for task in experiment.tasks}
    arms = set(experiment.arms)

    def is_of_grid(name: str, key: Key, tasks: Mapping[str, Task]) -> bool:
        cell = Cell.parse(name)
        task = tasks.get(cell.task)
        return cell.arm in arms and task is not None and experiment.score_key(cell.arm, task) == key

    if any(isinstance(entry, SearchEnded) and entry.key == experiment.key for entry in entries):
        # `retry` took results back: the search makes its decisions again
        done = {record.key for record in records(entries) if record.kind == "score"}
        asked = {
            entry.key: entry.name
            for entry in standing(entries)
            if isinstance(entry, UnitAsked) and entry.pick and entry.key not in done
        }
        return sum(is_of_grid(name, key, scores) for key, name in asked.items())
    exhaustive = problem.exhaustive_cost
    budget = search.budget(experiment.config.search, problem)
    total = budget.within(exhaustive)
    if experiment.fresh:
        total = fresh.allotment_of(experiment, exhaustive).total
    share_of_cells = total / exhaustive * len(experiment.arms) * len(experiment.tasks)
    allowed = min(share_of_cells, budget.cells or math.inf)
    kinds = {"score": scores, "fresh": {task.name: task for task in experiment.fresh}}
    scored = sum(
        is_of_grid(record.name, record.key, kinds[record.kind])
        for record in records(entries)
        if record.kind in kinds
    )
    return max(0, round(allowed) - scored)
