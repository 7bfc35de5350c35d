"""A run, read from its files: finished or not, without a scheduler."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from daskmetrics.bandit import task_weights
from daskmetrics.bandit.problem import Floats
from daskmetrics.core.errors import DataError
from daskmetrics.core.events import (
    Record,
    RunStarted,
    SearchEnded,
    StorePlan,
    UnitAsked,
    is_finished,
    latest,
    require_experiment,
    scored,
    standing,
)
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm, Cell, Checkpoint, Key, grid, step_of, training_order
from daskmetrics.core.outcomes import Difference, difference, mean_difference, means_of
from daskmetrics.core.results import Scored
from daskmetrics.execution.journal import holder, read
from daskmetrics.store import key_of

if TYPE_CHECKING:
    import xarray


class RecordedRun:
    """What the files of a run hold: its configuration, records, scores, and the choice of its
    search.

    `Run` adds what is concluded from them, and overrides nothing.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder(Path(path)).must_exist()
        self.entries = list(read(self.folder.journal))
        require_experiment(self.entries, self.folder.path)
        if not latest(self.entries, RunStarted):
            if self.driver is not None:
                raise DataError(
                    f"The run in '{path}' is being prepared by {self.driver}. Try again in a"
                    " moment."
                )
            raise DataError(
                f"The run in '{path}' ended before its first checkpoint was measured. Run it again."
            )

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration in force, as plain values."""
        config = self.start.config
        if not config:
            config = yaml.safe_load(self.folder.config.read_text(encoding="utf-8"))
        return dict(config)

    @cached_property
    def start(self) -> RunStarted:
        """The entry of the latest start: counts, tasks and environment."""
        started = latest(self.entries, RunStarted)
        assert started is not None  # see `__init__`
        return started

    @cached_property
    def plan(self) -> StorePlan | None:
        """What the store of the latest configuration is to hold; None before it is laid out."""
        return latest(self.entries, StorePlan)

    @cached_property
    def _arms(self) -> frozenset[Arm]:
        """The arms of the latest configuration; empty before its store is laid out."""
        return frozenset(grid(self.plan.template.suites if self.plan else ()))

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """The record of every work unit of the latest configuration, with records of earlier ones
        that are still valid.

        A record of an earlier configuration is valid if the same unit would give it, or if the
        latest configuration has no such checkpoint: it was deleted during a watch.
        """
        latest_of: dict[tuple[str, str], tuple[bool, StorePlan | None, Record]] = {}
        is_current = False  # whether a record belongs to the latest configuration
        before: StorePlan | None = None
        for entry in standing(self.entries):
            if isinstance(entry, RunStarted):
                is_current = entry.key == self.start.key
            elif isinstance(entry, StorePlan):
                before = entry
            elif isinstance(entry, Record):
                unit = entry.kind, entry.name
                is_new = is_current or self._is_planned(entry)
                if is_new or unit not in latest_of or not latest_of[unit][0]:
                    latest_of[unit] = is_new, before, entry
        measured = {
            name for (kind, name), unit in latest_of.items() if kind == "measure" and unit[0]
        }
        return tuple(
            record
            for is_new, before, record in latest_of.values()
            if is_new or self._is_valid(record, measured, before)
        )

    def _is_planned(self, record: Record) -> bool:
        """Whether the latest configuration asks for the unit of a record: its layers may be those
        of a configuration before the last one.
        """
        if self.plan is None:
            return False
        if record.kind == "measure":
            return self.plan.measure.get(record.name) == record.key
        cell = self.cells.get(record.key)
        if cell is None or cell.arm not in self._arms:
            return False
        return key_of(self.plan, cell) == record.key

    def _is_valid(self, record: Record, measured: Container[str], before: StorePlan | None) -> bool:
        """Whether a record of an earlier configuration counts; ``before`` was its plan."""
        cell = self.cells.get(record.key)
        if record.kind == "look":  # of use to the latest search alone
            return record.key in self._asked
        if record.kind == "fresh":
            cell = Cell.parse(record.name)
        checkpoint = cell.arm.checkpoint if cell else Checkpoint.parse(record.name)
        if checkpoint.model not in self.models or str(checkpoint) in self.measured_as:
            return False
        if cell is None:
            return True
        if cell.task not in self.tasks:
            return False
        if str(checkpoint) not in measured:
            return True
        if before is None or self.plan is None or cell.arm not in self._arms:
            return False
        key = key_of(self.plan, cell)
        return key is not None and key_of(before, cell) == key

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, in the order of the configuration."""
        return tuple(model["name"] for model in self.config["models"])

    @property
    def tasks(self) -> Mapping[str, Mapping[str, str]]:
        """Kind and main score of each task, by name."""
        return self.start.tasks

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each task, by name."""
        return {name: task["kind"] for name, task in self.tasks.items()}

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the tasks of the objective, by name; tasks without weight are left out."""
        kinds = self.kinds
        search = self.config["search"]
        if not kinds:
            return {}
        weights = task_weights(kinds, search["objective"], search["weights"])
        return {task: weight for task, weight in zip(kinds, weights, strict=True) if weight}

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """The cell of each score unit, by the key of the unit."""
        return {
            entry.key: cell_of(entry.pick)
            for entry in self.entries
            if isinstance(entry, UnitAsked) and entry.pick
        }

    @cached_property
    def recorded(self) -> dict[Arm, dict[str, Scored]]:
        """What the journal holds of every score, by arm and task: score, standard error, outcomes
        and others.
        """
        return self._scores("score")

    @cached_property
    def looked(self) -> dict[Arm, dict[str, Scored]]:
        """The same for looks, by arm and name of the look: scores of a share of a task's items, which
        only the search uses.
        """
        return self._scores("look")

    @cached_property
    def compared(self) -> dict[Arm, dict[str, Scored]]:
        """The recorded scores of the arms that the latest configuration asks about, not those of
        a checkpoint that was deleted since; of a finished search those that it decided on, which
        may be fewer than an earlier one with a larger budget paid for.
        """
        decided = set(map(cell_of, self.picks))
        compared: dict[Arm, dict[str, Scored]] = {}
        for arm, by_task in self.recorded.items():
            if self.plan and arm not in self._arms:
                continue
            for task, score in by_task.items():
                if self.result is None or Cell(arm, task) in decided:
                    compared.setdefault(arm, {})[task] = score
        return compared

    @cached_property
    def fresh(self) -> dict[Arm, dict[str, Scored]]:
        """The same for items that were kept back from the search: of its finalists, the best arm
        first.
        """
        by_arm = self._scores("fresh")
        finalists = []
        if self.result:
            finalists = [Arm.parse(name) for name in self.result.fresh]
        return {arm: by_arm.get(arm, {}) for arm in finalists}

    def _scores(self, kind: str) -> dict[Arm, dict[str, Scored]]:
        by_arm: dict[Arm, dict[str, Scored]] = {}
        for record, score in scored(self.records, kind):
            cell = Cell.parse(record.name)
            by_arm.setdefault(cell.arm, {})[cell.task] = score
        return by_arm

    @property
    def means(self) -> dict[Arm, tuple[float, float]]:
        """Mean raw score over the tasks of the objective, and its error, of each arm that was
        scored on all of them; means over fewer tasks are not comparable.
        """
        return means_of(self.compared, self.weights)

    def differences(
        self, arm: Arm, other: Arm, run: RecordedRun | None = None
    ) -> dict[str, Difference]:
        """By how much an arm's score exceeds another's, on every task on which both were scored.

        Parameters
        ----------
        arm, other : Arm
        run : Run, optional
            Where the other arm was scored; by default in this run.

        Returns
        -------
        dict of str to Difference
            By task: ``value``, its standard error ``stderr``, whether it is ``paired``, and
            ``probability``, that the difference is positive. A paired error comes from the
            differences item by item; where outcomes are missing or of other items, it is that of
            independent scores.

        Examples
        --------
        >>> run.differences(run.best().arm, Arm.parse("tiny@step8/2"))  # doctest: +SKIP
        """
        mine = self.recorded.get(arm, {})
        theirs = (run or self).recorded.get(other, {})
        return {
            task: difference(mine[task], theirs[task])
            for task in self.tasks
            if task in mine and task in theirs
        }

    @cached_property
    def picks(self) -> tuple[Mapping[str, Any], ...]:
        """The decisions of the latest search, in order: index, cell, stage, cost and reason."""
        return tuple(self._asked.values())

    @cached_property
    def _asked(self) -> dict[Key, Mapping[str, Any]]:
        """The decisions of the latest search, by the key of the unit."""
        asked = [entry for entry in self.entries if isinstance(entry, UnitAsked) and entry.pick]
        search = asked[-1].note["search"] if asked else None
        is_current = False
        for entry in self.entries:
            if isinstance(entry, RunStarted):
                is_current = entry.key == self.start.key
            elif is_current and isinstance(entry, UnitAsked) and entry.pick:
                # a configuration that comes back asks for nothing again
                search = entry.note["search"]
        return {entry.key: entry.note["pick"] for entry in asked if entry.note["search"] == search}

    @cached_property
    def result(self) -> SearchEnded | None:
        """The recommendation of the search, or None while the search continues."""
        for entry in reversed(self.entries):
            if isinstance(entry, SearchEnded) and entry.key == self.start.key:
                return entry
        return None

    @cached_property
    def watched(self) -> str:
        """What the latest round of a watch says, in sentences; empty if the run is no watch, or
        went on without it.
        """
        latest_round: dict[str, Any] = {}
        if self.folder.events.exists():
            for line in self.folder.events.read_text(encoding="utf-8").splitlines():
                if '"event":"updated"' in line:
                    latest_round = json.loads(line)
        if latest_round.get("key") != self.start.key:
            return ""
        return str(latest_round.get("text", ""))

    @cached_property
    def finished(self) -> bool:
        """Whether the latest configuration is complete."""
        return is_finished(self.entries)

    @property
    def driver(self) -> str | None:
        """The process that drives the run now, or None."""
        return holder(self.folder.lock)

    @cached_property
    def counts(self) -> Counter[tuple[str, str]]:
        """Records by (kind, status), without measurements of checkpoints that were deleted since."""
        asked = {str(arm.checkpoint) for arm in self._arms}
        return Counter(
            (record.kind, record.status)
            for record in self.records
            if record.kind != "measure" or not asked or record.name in asked
        )

    @property
    def failed(self) -> tuple[Record, ...]:
        """The records of failed units."""
        return tuple(record for record in self.records if not record.ok)

    @cached_property
    def tree(self) -> xarray.DataTree:
        """The store as an `xarray.DataTree`, with one node per model."""
        from daskmetrics.store import open_tree

        tree: xarray.DataTree = open_tree(self.folder.store)
        return tree

    @property
    def metrics(self) -> xarray.Dataset:
        """One variable per metric, dimensions (model, checkpoint, layer), with units and
        descriptions.
        """
        return _dataset(self.tree, self.models, "metrics", "metric")

    @property
    def scores(self) -> xarray.Dataset:
        """One variable per task, dimensions (model, checkpoint, layer); NaN for cells without a
        score.

        Where there are several readouts, they are a fourth dimension.
        """
        return _dataset(self.tree, self.models, "scores", "task")

    @cached_property
    def measured_as(self) -> Mapping[str, str]:
        """The name of the checkpoint that was measured, by that of a revision of equal weights."""
        return {
            str(Checkpoint(Checkpoint.parse(measured_name).model, revision)): measured_name
            for measured_name, revisions in self.start.aliases.items()
            for revision in revisions
        }

    @property
    def cells_planned(self) -> int:
        """Cells that an exhaustive sweep would score."""
        return int(self.start.arms) * len(self.tasks)

    @property
    def cells_scored(self) -> int:
        """Cells with a score that the answer counts."""
        return sum(map(len, self.compared.values()))

    @property
    def cells_open(self) -> int:
        """Cells that the latest search decided on and that have no result yet."""
        kinds = ("score", "look")
        answered = {self.cells[record.key] for record in self.records if record.kind in kinds}
        return sum(cell_of(pick) not in answered for pick in self.picks)

    def finished_search(self) -> SearchEnded:
        """What the search recommends.

        Raises
        ------
        DataError
            If the run has no tasks, or its search is not finished.

        Examples
        --------
        >>> run.finished_search().best["arm"]  # doctest: +SKIP
        """
        if self.result is None:
            raise DataError(f"The run in '{self.folder.path}' has no answer yet. {self.remedy}")
        return self.result

    @property
    def remedy(self) -> str:
        """What to do for an answer, or for more of it."""
        if not self.tasks:
            return "It has no tasks. Add some under 'tasks:' and run it again."
        if self.driver:
            return "Its search continues."
        if self.result:
            return "Run it again with a larger search.budget."
        return "Its search is not finished; run it again to resume."


def shares_of(run: RecordedRun, tasks: Sequence[str]) -> Floats:
    """Weights of tasks in the objective, with the sum 1; tasks outside of it count equally."""
    objective = run.weights
    weights = np.array([objective.get(task, 0.0) for task in tasks])
    if not weights.any():
        return np.full(len(tasks), 1 / len(tasks))
    return np.asarray(weights / weights.sum())


def gain_over(run: RecordedRun, arm: Arm, other: Arm, tasks: Iterable[str]) -> Difference | None:
    """By how much an arm's mean raw score exceeds another's, on the tasks on which both were scored;
    None without such a task.
    """
    gaps = run.differences(arm, other)
    shared = [task for task in tasks if task in gaps]
    if not shared:
        return None
    shares = shares_of(run, shared).tolist()
    return mean_difference([gaps[task] for task in shared], shares)


def cell_of(pick: Mapping[str, Any]) -> Cell:
    """The cell of a decision in the journal."""
    return Cell(Arm(**pick["cell"]["arm"]), pick["cell"]["task"])


def _dataset(
    tree: xarray.DataTree,
    models: Sequence[str],
    quantity: str,
    dimension: str,
) -> xarray.Dataset:
    """Metrics or scores of all models, (model, checkpoint, layer), with the models in the given
    order.

    Scores of several readouts have a fourth dimension, readout.

    Per metric or task: the variables NAME with units and description, ``NAME_stderr`` and
    ``NAME_status``. A layer or checkpoint that a model lacks is NaN with status 0 (missing).
    """
    import xarray

    missing = {quantity: np.nan, f"{quantity}_stderr": np.nan, f"{quantity}_status": 0}
    stored = [tree.children[model] for model in models if model in tree.children]
    nodes = {
        node.name: node.to_dataset()[list(missing)].drop_vars("step")
        for node in stored
        if quantity in node
    }
    if any("arm" in node.dims for node in nodes.values()):
        nodes = {model: _by_readout(node, missing) for model, node in nodes.items()}
    if not nodes:
        return xarray.Dataset(attrs=dict(tree.attrs))
    joined = xarray.concat(
        list(nodes.values()),
        dim=xarray.Variable("model", np.array(list(nodes), object)),
        join="outer",
        fill_value=missing,
        combine_attrs="drop_conflicts",
    )
    order = training_order(joined["checkpoint"].values.tolist())
    steps = [-1 if step is None else step for step in map(step_of, order)]
    joined = joined.sel(checkpoint=list(order)).assign_coords(
        checkpoint=np.array(order, object), step=("checkpoint", steps)
    )
    attributes = joined[quantity].attrs
    variables = {}
    for name in joined[dimension].values.tolist():
        for kind in missing:
            array = joined[kind].sel({dimension: name}, drop=True)
            if not kind.endswith("_status"):
                array.attrs = {
                    "units": attributes["units"][name],
                    "description": attributes["descriptions"][name],
                }
            variables[name + kind.removeprefix(quantity)] = array
    return xarray.Dataset(variables, attrs=tree.attrs)


def _by_readout(node: xarray.Dataset, missing: Mapping[str, float]) -> xarray.Dataset:
    """The scores of a model with the dimensions layer and readout, in place of that of its arms."""
    if "arm" not in node.dims:
        return node.expand_dims(readout=[""], axis=2)
    unstacked = node.set_index(arm=["arm_layer", "readout"]).unstack("arm", fill_value=missing)
    order = dict.fromkeys(node["readout"].values.tolist())
    ordered = unstacked.rename(arm_layer="layer").sel(readout=list(order))
    return ordered.transpose("checkpoint", "layer", "readout", ...)
