"""What a run is asked: its candidates, tasks and metrics, and the keys of the units that answer it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.text import score_text
from daskmetrics.domain.names import Arm, Cell, Checkpoint, LayerNames, Suite, grid
from daskmetrics.domain.record import Record

VERSION = 1  #: of the computation: increase it when equal inputs no longer give equal numbers


@dataclass(frozen=True)
class Floor:
    """The score of a guess, and what is guessed.

    >>> Floor(0.693, "largest class alone").text
    'largest class alone 0.693'
    """

    value: float
    guess: str = "chance"

    @property
    def text(self) -> str:
        """Both in words."""
        return f"{self.guess} {score_text(self.value)}"


@dataclass(frozen=True)
class TaskInfo:
    """A task without its data.

    Attributes
    ----------
    name, kind, main_score, description : str
    key : Key
        Of its items, and of how they are scored.
    weight : float
        In the objective of the search, as configured; 0 for a task outside of it.
    floor : Floor or None
        What guessing scores, where that is known.
    """

    name: str
    kind: str
    main_score: str
    description: str
    key: Key
    weight: float = 0.0
    floor: Floor | None = None


@dataclass(frozen=True)
class MetricInfo:
    """A metric without its formula; its key names both."""

    name: str
    units: str
    description: str
    key: Key


@dataclass(frozen=True)
class Plan:
    """What a run is asked; equal keys give equal numbers.

    Attributes
    ----------
    suites : tuple of Suite
    tasks, fresh : tuple of TaskInfo
        The tasks; and those of the objective with the items that are kept back from the search.
    metrics : tuple of MetricInfo
    encodings : mapping of str to Key
        By checkpoint: its weights, and how its vectors are read.
    prompts : Key
        Of the texts that are measured.
    search : Key
        Of the section ``search``, and of the code of the policy.
    seed, window : int
        ``window`` is how many decisions of the search may be open at once.
    widths : mapping of str to int
        Of the hidden states of each model.
    config : mapping
        The whole configuration, as asked.
    protocols : mapping
        How each model is read; by revision where its revisions differ.
    aliases : mapping of str to sequence of str
        Revisions of equal content, which are measured as one, by the name of that checkpoint.
    deleted : mapping of str to Key
        As ``encodings``, of checkpoints of earlier plans that this one no longer has.
    warnings : sequence of str
        What is doubtful about weights or data.
    """

    suites: tuple[Suite, ...]
    tasks: tuple[TaskInfo, ...]
    metrics: tuple[MetricInfo, ...]
    encodings: Mapping[str, Key]
    prompts: Key
    search: Key
    seed: int
    window: int
    widths: Mapping[str, int]
    config: Mapping[str, Any]
    fresh: tuple[TaskInfo, ...] = ()
    protocols: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    deleted: Mapping[str, Key] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        return grid(self.suites)

    @property
    def cells(self) -> int:
        """Number of scores of all arms on all tasks."""
        return len(self.arms) * len(self.tasks)

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(chain.from_iterable(suite.checkpoints() for suite in self.suites))

    @cached_property
    def by_model(self) -> Mapping[str, Suite]:
        return {suite.model: suite for suite in self.suites}

    @property
    def layer_names(self) -> LayerNames:
        """Names of the layers of models that do not number them."""
        return {suite.model: suite.layer_names for suite in self.suites if suite.layer_names}

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """Kind of each task, by name."""
        return {task.name: task.kind for task in self.tasks}

    @cached_property
    def weights(self) -> Mapping[str, float]:
        """Weights of the tasks of the objective, by name."""
        return {task.name: task.weight for task in self.tasks if task.weight}

    @cached_property
    def measured_as(self) -> Mapping[str, str]:
        """The name under which each checkpoint is measured.

        It is that of a revision of equal content.
        """
        return {
            str(Checkpoint(Checkpoint.parse(name).model, revision)): name
            for name, revisions in self.aliases.items()
            for revision in revisions
        }

    # the keys

    @cached_property
    def store_key(self) -> Key:
        """Names the shape and meaning of the store.

        Those of another key have other numbers.
        """
        rows = [(suite.model, suite.revisions, suite.rows) for suite in self.suites]
        metrics = [(metric.name, metric.key) for metric in self.metrics]
        tasks = [(task.name, task.key) for task in self.tasks]
        numbers = [dict(self.encodings), self.prompts, self.seed]
        return content_key("store", VERSION, rows, metrics, tasks, *numbers)

    @cached_property
    def key(self) -> Key:
        """Names everything that decides the recommendation.

        The cluster is not part of it.
        """
        weights = [task.weight for task in self.tasks]
        fresh = [task.key for task in self.fresh]
        return content_key("run", self.store_key, self.search, weights, fresh)

    def states_key(self, checkpoint: Checkpoint) -> Key:
        """Of the states that a checkpoint's metrics are computed from."""
        layers = self.by_model[checkpoint.model].layers
        return content_key(
            "states", VERSION, self._encodings[str(checkpoint)], layers, self.prompts
        )

    def measure_key(self, checkpoint: Checkpoint) -> Key:
        """Of the unit that measures a checkpoint."""
        metrics = [metric.key for metric in self.metrics]
        return content_key("measure", str(checkpoint), self.states_key(checkpoint), metrics)

    @cached_property
    def measure_keys(self) -> Mapping[Checkpoint, Key]:
        return {checkpoint: self.measure_key(checkpoint) for checkpoint in self.checkpoints}

    def encode_key(self, checkpoint: Checkpoint, task: TaskInfo) -> Key:
        """Of the vectors of a task's texts by a checkpoint.

        They are for all layers and readouts.
        """
        return content_key("encode", VERSION, self._encodings[str(checkpoint)], task.key)

    def score_key(self, arm: Arm, task: TaskInfo) -> Key:
        """Of the unit that scores an arm on a task."""
        encode = self.encode_key(arm.checkpoint, task)
        return content_key("score", encode, str(arm), self.seed)

    # what counts for it

    def measured(self, records: Iterable[Record]) -> set[Checkpoint]:
        """The checkpoints that were measured by these records."""
        keys = {record.key for record in records if record.kind == "measure" and record.ok}
        return {checkpoint for checkpoint, key in self.measure_keys.items() if key in keys}

    def after(self, earlier: Sequence[Plan]) -> Plan:
        """This plan as the successor of others in one folder.

        What was recorded of checkpoints that were deleted since still counts, as far as their
        models are read as before. A plan that comes back keeps its window, which changes decisions.
        """
        own = {*self.encodings, *self.measured_as}
        deleted: dict[str, Key] = {}
        for plan in earlier:  # not only the last, which may lack a model for a while
            for suite in plan.suites:
                reading = _reading(self, suite.model)
                if reading and reading == _reading(plan, suite.model):
                    names = {str(name) for name in suite.checkpoints()} - own
                    deleted |= {name: plan.encodings[name] for name in sorted(names)}
        windows = [plan.window for plan in earlier if plan.key == self.key]
        return replace(self, deleted=deleted, window=next(iter(windows), self.window))

    def records(self, records: Iterable[Record]) -> list[Record]:
        """The records that units of this plan would give, too.

        A score has the present name of its task, which is no part of its key.
        """
        return [record for record in map(self._named, records) if self.wants(record)]

    def _named(self, record: Record) -> Record:
        tasks = self.tasks_of.get(record.kind)
        if tasks is None:
            return record
        cell = Cell.parse(record.name)
        if cell.task in tasks or not self._has(cell.arm.checkpoint):
            return record
        for name, task in tasks.items():
            if self.score_key(cell.arm, task) == record.key:
                return replace(record, name=str(replace(cell, task=name)))
        return record

    def wants(self, record: Record) -> bool:
        """Whether a unit of this plan would give the same record."""
        match record.kind:
            case "measure":
                checkpoint = Checkpoint.parse(record.name)
                return self._has(checkpoint) and self.measure_key(checkpoint) == record.key
            case "score" | "fresh":
                cell = Cell.parse(record.name)
                task = self.tasks_of[record.kind].get(cell.task)
                if task is None or not self._has(cell.arm.checkpoint):
                    return False
                if (cell.arm.layer, cell.arm.readout) not in self.by_model[cell.arm.model].rows:
                    return False
                return self.score_key(cell.arm, task) == record.key
        # a training, also of a checkpoint that is not compared
        trained = Checkpoint.parse(record.name)
        return trained.model in self.by_model and record.name not in self.measured_as

    @cached_property
    def _encodings(self) -> Mapping[str, Key]:
        return {**self.deleted, **self.encodings}

    @cached_property
    def tasks_of(self) -> Mapping[str, Mapping[str, TaskInfo]]:
        """The tasks by name, by kind of unit: score, fresh."""
        kinds = {"score": self.tasks, "fresh": self.fresh}
        return {kind: {task.name: task for task in tasks} for kind, tasks in kinds.items()}

    def _has(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.model in self.by_model and str(checkpoint) in self._encodings


def _reading(plan: Plan, model: str) -> tuple[object, ...] | None:
    for section in plan.config["models"]:
        if section["name"] == model:
            own = {key: value for key, value in section.items() if key != "revisions"}
            # its code may have changed under the same name
            encoder = plan.protocols.get(model) if own.get("encoder") else None
            return plan.config["protocol"], own, encoder
    return None
