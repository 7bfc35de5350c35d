"""A run, read from its files: finished or not, without a scheduler."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskmetrics.answer.evidence import Evidence
from daskmetrics.answer.sizes import ArmCost, ModelSize, sizes_of
from daskmetrics.bandit import Pick
from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.serialization import build
from daskmetrics.domain.events import (
    RunStarted,
    SearchEnded,
    UnitAsked,
    ended_search,
    is_finished,
    latest,
    require_experiment,
    standing,
)
from daskmetrics.domain.names import Arm, step_of, training_order
from daskmetrics.domain.outcomes import Difference, Estimate
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.recommendation import Recommendation
from daskmetrics.domain.record import Record
from daskmetrics.domain.scores import Scores
from daskmetrics.domain.training import TrainingStatus
from daskmetrics.execution.journal import holder, read

if TYPE_CHECKING:
    import xarray


class RecordedRun:
    """What the files of a run hold: plan, records, scores, choice.

    `Run` adds what is concluded from them, and overrides nothing.
    """

    plan: Plan  #: what the latest configuration asks
    start: RunStarted  #: when it began or went on, and with which versions

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder(Path(path)).must_exist()
        self.entries = list(read(self.folder.journal))
        require_experiment(self.entries, self.folder.path)
        plan = latest(self.entries, Plan)
        start = latest(self.entries, RunStarted)
        if plan is None or start is None:
            if self.driver is not None:
                about = "".join(f" {notice}" for notice in self.notices)
                raise DataError(
                    f"The run in '{path}' is being prepared by {self.driver}.{about} Try again in"
                    " a moment."
                )
            raise DataError(
                f"The run in '{path}' ended before its first checkpoint was measured. Run it again."
            )
        self.plan = plan
        self.start = start

    @property
    def notices(self) -> list[str]:
        """What is said of the programs that train and have no step yet."""
        notices = []
        for folder in self.folder.training.glob("*"):
            with suppress(DataError):  # the file of another program
                if status := TrainingStatus.read(folder):
                    notices.append(status.notice)
        return list(filter(None, notices))

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration in force, as plain values."""
        return self.plan.config

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """The records that count (`Plan.records`), of each unit the latest."""
        recorded = (entry for entry in standing(self.entries) if isinstance(entry, Record))
        latest_of = {(record.kind, record.name): record for record in self.plan.records(recorded)}
        return tuple(latest_of.values())

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, in the order of the configuration."""
        return tuple(self.plan.by_model)

    @property
    def kinds(self) -> Mapping[str, str]:
        """Kind of each task, by name."""
        return self.plan.kinds

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights of the tasks of the objective, by name."""
        return self.plan.weights

    @cached_property
    def recorded(self) -> Scores:
        """Every score: its value, standard error, outcomes and others."""
        return Scores.of(self.records, self.kinds)

    @cached_property
    def compared(self) -> Scores:
        """The scores of the arms that the latest configuration asks about.

        Those of a checkpoint that was deleted since are left out. Of a finished search they are
        those that it decided on, perhaps fewer than an earlier one with a larger budget paid for.
        """
        arms = set(self.plan.arms)
        decided = {pick.cell for pick in self.picks}
        return self.recorded.where(
            lambda cell: cell.arm in arms and (self.result is None or cell in decided)
        )

    @cached_property
    def fresh(self) -> Scores:
        """The finalists' scores on items kept back, the best arm first."""
        scores = Scores.of(self.records, self.kinds, "fresh")
        finalists = self.result.fresh if self.result else ()
        return Scores({arm: scores.get(arm, {}) for arm in finalists}, scores.tasks)

    @property
    def means(self) -> dict[Arm, Estimate]:
        """Mean raw score and error of each completely scored arm.

        They are over the tasks of the objective; means over fewer tasks are not comparable.
        """
        return self.compared.means(self.weights)

    def differences(
        self, arm: Arm, other: Arm, run: RecordedRun | None = None
    ) -> dict[str, Difference]:
        """By how much an arm's score exceeds another's, by common task.

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
        return self.recorded.differences(arm, other, (run or self).recorded)

    @cached_property
    def picks(self) -> tuple[Pick, ...]:
        """The decisions of the latest search, in order."""
        asked = [entry for entry in self.entries if isinstance(entry, UnitAsked) and entry.pick]
        search = asked[-1].note["search"] if asked else None
        is_current = False
        for entry in self.entries:
            if isinstance(entry, Plan):
                is_current = entry.key == self.plan.key
            elif is_current and isinstance(entry, UnitAsked) and entry.pick:
                # a configuration that comes back asks for nothing again
                search = entry.note["search"]
        by_key = {entry.key: entry.pick for entry in asked if entry.note["search"] == search}
        return tuple(build(Pick, pick) for pick in by_key.values() if pick)

    @cached_property
    def result(self) -> SearchEnded | None:
        """The recommendation of the search, or None while the search continues."""
        return ended_search(self.entries, self.plan.key)

    @property
    def recommendation(self) -> Recommendation | None:
        """What the search recommends, or None while it continues."""
        return self.result.recommendation if self.result else None

    @cached_property
    def watched(self) -> str:
        """What the latest round of a watch says, in sentences.

        It is empty if the run is no watch, or went on without it.
        """
        latest_round: dict[str, Any] = {}
        if self.folder.events.exists():
            for line in self.folder.events.read_text(encoding="utf-8").splitlines():
                if '"event":"updated"' in line:
                    latest_round = json.loads(line)
        if latest_round.get("key") != self.plan.key:
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
        """Records by (kind, status), without measurements of deleted checkpoints."""
        return Counter(
            (record.kind, record.status)
            for record in self.records
            if record.kind != "measure" or record.name in self.plan.encodings
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
        """One variable per metric, dimensions (model, checkpoint, layer).

        Its attributes are units and description.
        """
        return _dataset(self.tree, self.models, "metrics", "metric")

    @property
    def scores(self) -> xarray.Dataset:
        """One variable per task, dimensions (model, checkpoint, layer).

        It is NaN for cells without a score. Where there are several readouts, they are a fourth
        dimension.
        """
        return _dataset(self.tree, self.models, "scores", "task")

    @cached_property
    def sizes(self) -> Mapping[str, ModelSize]:
        """What is known of the size and speed of every model, by name."""
        return sizes_of(self.plan, self.recorded, self.entries)

    def cost_of(self, arm: Arm) -> ArmCost:
        """What a text costs with an arm; see `ArmCost`.

        Examples
        --------
        >>> run.cost_of(run.best().arm).parameters  # doctest: +SKIP
        """
        return self.sizes[arm.model].cost(arm)

    @property
    def evidence(self) -> Evidence:
        """What an answer rests on, of a `finished_search`."""
        return Evidence(
            plan=self.plan,
            folder=self.folder.path,
            ended=self.finished_search(),
            records=self.records,
            recorded=self.recorded,
            compared=self.compared,
            fresh=self.fresh,
            means=self.means,
            cost=self.cost_of,
        )

    def finished_search(self) -> SearchEnded:
        """What the search recommends.

        Raises
        ------
        DataError
            If the run has no tasks, or its search is not finished.

        Examples
        --------
        >>> run.finished_search().recommendation.arm  # doctest: +SKIP
        """
        if self.result is None:
            raise DataError(f"The run in '{self.folder.path}' has no answer yet. {self.remedy}")
        return self.result

    @property
    def remedy(self) -> str:
        """What to do for an answer, or for more of it."""
        if not self.plan.tasks:
            return "It has no tasks. Add some under 'tasks:' and run it again."
        if self.driver:
            return "Its search continues."
        if self.result:
            return "Run it again with a larger search.budget."
        return "Its search is not finished; run it again to resume."


def _dataset(
    tree: xarray.DataTree,
    models: Sequence[str],
    quantity: str,
    dimension: str,
) -> xarray.Dataset:
    """Metrics or scores of all models, (model, checkpoint, layer).

    The models are in the given order. Scores of several readouts have a fourth dimension, readout.

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
    if "arm" not in node.dims:
        return node.expand_dims(readout=[""], axis=2)
    unstacked = node.set_index(arm=["arm_layer", "readout"]).unstack("arm", fill_value=missing)
    order = dict.fromkeys(node["readout"].values.tolist())
    ordered = unstacked.rename(arm_layer="layer").sel(readout=list(order))
    return ordered.transpose("checkpoint", "layer", "readout", ...)
