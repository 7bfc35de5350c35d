"""The search problem: arms, tasks, features of the arms, the assumed cost of every cell, and what
was observed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Arm, Cell, Checkpoint

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
ROUNDING = 1e-9  #: relative difference below which sums of costs count as equal

Reward = Literal["mean", "rank", "harmonic", "robust"]
ALL = "all"  #: the objective that contains every task


@dataclass(frozen=True, eq=False)
class Problem:
    """Arms x tasks with features and costs: everything that a search knows before it pays for a
    cell.

    Attributes
    ----------
    arms : tuple of Arm, length A
    tasks : tuple of str, length T
    features : ndarray (A, F)
        As `arm_features` gives them: step, depth, one column per model, then any number of metrics;
        all finite.
    encode_cost : ndarray (A, T)
        Cost of encoding a task's texts with the arm's checkpoint: equal for its layers, which share
        the encoding.
    score_cost : ndarray (A, T)
        Cost of scoring one layer's embeddings. Costs may have any unit. They are assumed and not
        measured, so that two runs make the same decisions however fast the machine is.
    reward : {"mean", "rank", "harmonic", "robust"}
        How the scores of different tasks become comparable; see `daskmetrics.bandit.model`.
    weights : tuple of float, length T, or None
        Weights of the tasks in the objective, not negative; None for ones. A task of weight 0 may
        be scored for what it tells about the others.
    load_cost : ndarray (A,) or None
        Cost of loading the arm's checkpoint if no worker holds it: equal for its layers; None for
        zero.
    kinds : tuple of str, length T, or None
        Kind of every task: scores of one kind are more alike than those of different kinds. A task
        with an empty kind is a kind of its own; None for all.
    default : Checkpoint or None
        Every arm is compared with its last layer; None for the last checkpoint of the arm's own
        model, which is what one would use without a search.

    Raises
    ------
    DataError
        If shapes do not match, a number is not finite, or the default checkpoint has no arm.
    """

    arms: tuple[Arm, ...]
    tasks: tuple[str, ...]
    features: Floats
    encode_cost: Floats
    score_cost: Floats
    reward: Reward = "mean"
    weights: tuple[float, ...] | None = None
    load_cost: Floats | None = None
    kinds: tuple[str, ...] | None = None
    default: Checkpoint | None = None

    def __post_init__(self) -> None:
        shape = (len(self.arms), len(self.tasks))
        if len(set(self.arms)) < shape[0] or len(set(self.tasks)) < shape[1] or 0 in shape:
            raise DataError(
                f"A search needs distinct arms and tasks, got {shape[0]} arms and {shape[1]} tasks."
            )
        self._check_features()
        self._check_costs(shape)
        self._check_tasks()
        if self.default and not len(self._layers_of(self.default)):
            raise DataError(
                f"The baseline {self.default} has no arm among the {shape[0]} arms of the search."
            )

    def _check_features(self) -> None:
        arms, fewest = len(self.arms), 2 + len(self.models)
        shape = self.features.shape
        if len(shape) != 2 or shape[0] != arms or shape[1] < fewest:
            raise DataError(
                f"features must be ({arms}, {fewest} or more): step, depth, one column per model, "
                f"metrics; got {shape}."
            )
        if not np.isfinite(self.features).all():
            raise DataError(
                "features must be finite. arm_features() replaces missing metrics by their mean."
            )

    def _check_costs(self, shape: tuple[int, int]) -> None:
        for name, cost in (("encode_cost", self.encode_cost), ("score_cost", self.score_cost)):
            check_shape(name, cost, shape)
            if not np.isfinite(cost).all():
                raise DataError(f"{name} must be finite.")
            if cost.min() < 0:
                raise DataError(f"Costs must not be negative: {name} has {cost.min():g}.")
        load = self.load_costs
        if load.shape != shape[:1] or not np.isfinite(load).all() or load.min() < 0:
            raise DataError(
                f"load_cost must be {shape[0]} numbers, none negative; got shape {load.shape}."
            )
        for name, cost in (("encode_cost", self.encode_cost), ("load_cost", load)):
            if (cost != cost[self.first_of_checkpoint]).any():
                raise DataError(
                    f"{name} must be equal for all layers of a checkpoint, which share one load "
                    "and one encoding."
                )

    def _check_tasks(self) -> None:
        tasks = len(self.tasks)
        if self.weights is not None:
            are_valid = all(0 <= weight < math.inf for weight in self.weights)
            if len(self.weights) != tasks or not are_valid or not sum(self.weights) > 0:
                raise DataError(
                    f"weights must be {tasks} numbers, none negative and at least one positive; "
                    f"got {self.weights}."
                )
        if self.kinds is not None and len(self.kinds) != tasks:
            raise DataError(
                f"kinds must name the kind of each of the {tasks} tasks; got {len(self.kinds)}."
            )

    @cached_property
    def objective_weights(self) -> Floats:
        """Weights of the tasks in the objective, summing to one (T,)."""
        weights = np.ones(len(self.tasks))
        if self.weights is not None:
            weights = np.array(self.weights, dtype=float)
        return np.asarray(weights / weights.sum())

    @cached_property
    def kind_names(self) -> tuple[str, ...]:
        """The kind of every task; the task's own name if it has none."""
        return tuple(
            kind or task for task, kind in zip(self.tasks, self.kinds or self.tasks, strict=True)
        )

    @cached_property
    def kind_index(self) -> Ints:
        """Index of every task's kind, in order of first appearance (T,)."""
        return numbered(self.kind_names)

    @cached_property
    def kind_membership(self) -> Floats:
        """Membership of the tasks in the kinds (T, K)."""
        return np.eye(self.kind_index.max() + 1)[self.kind_index]

    @cached_property
    def task_groups(self) -> tuple[Floats, Floats, Floats]:
        """Membership of the tasks in all tasks (T, 1), in the kinds (T, K), and in the single tasks
        (T, T).
        """
        tasks = len(self.tasks)
        return np.ones((tasks, 1)), self.kind_membership, np.eye(tasks)

    @property
    def in_objective(self) -> Bools:
        """Tasks with a positive weight (T,): a recommended arm is measured on these."""
        return np.asarray(self.objective_weights > 0)

    @cached_property
    def load_costs(self) -> Floats:
        """Cost of loading every arm's checkpoint (A,)."""
        if self.load_cost is None:
            return np.zeros(len(self.arms))
        return np.asarray(self.load_cost, dtype=float)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Names of the models, in order of their first arm."""
        return tuple(dict.fromkeys(arm.model for arm in self.arms))

    @cached_property
    def model_index(self) -> Ints:
        """Index of every arm's model (A,)."""
        return numbered([arm.model for arm in self.arms])

    @cached_property
    def axes(self) -> tuple[tuple[Floats, Ints], ...]:
        """For training and for depth: the distinct values, ascending, and every arm's index among
        them (A,).
        """
        return tuple(np.unique(self.features[:, i], return_inverse=True) for i in (0, 1))

    @cached_property
    def readouts(self) -> tuple[str, ...]:
        """Names of the readouts, in order of their first arm."""
        return tuple(dict.fromkeys(arm.readout for arm in self.arms))

    @cached_property
    def readout_index(self) -> Ints:
        """Index of every arm's readout (A,)."""
        return numbered([arm.readout for arm in self.arms])

    @cached_property
    def checkpoint_index(self) -> Ints:
        """Index of every arm's checkpoint, in order of first appearance (A,)."""
        return numbered([arm.checkpoint for arm in self.arms])

    @cached_property
    def first_of_checkpoint(self) -> Ints:
        """Index of the first arm of every arm's checkpoint (A,)."""
        _, arms = np.unique(self.checkpoint_index, return_index=True)
        return arms[self.checkpoint_index]

    @cached_property
    def arm_index(self) -> dict[Arm, int]:
        return {arm: i for i, arm in enumerate(self.arms)}

    @cached_property
    def default_arms(self) -> Ints:
        """Index of the arm that each arm is compared with: what one would use of its model without
        a search (A,).
        """
        last_checkpoint = {arm.model: self.default or arm.checkpoint for arm in self.arms}
        default = {
            model: int(self._layers_of(checkpoint)[-1])
            for model, checkpoint in last_checkpoint.items()
        }
        return np.array([default[arm.model] for arm in self.arms], dtype=np.intp)

    def _layers_of(self, checkpoint: Checkpoint) -> Ints:
        """Indices of a checkpoint's arms, by layer; of the readouts of a layer the first."""
        arm_of_layer: dict[int, int] = {}
        for i, arm in enumerate(self.arms):
            if arm.checkpoint == checkpoint:
                arm_of_layer.setdefault(arm.layer, i)
        return np.array([arm_of_layer[layer] for layer in sorted(arm_of_layer)], dtype=np.intp)

    @cached_property
    def arm_cost(self) -> Floats:
        """Cost of each arm alone on all tasks, its checkpoint loaded once (A,)."""
        return np.asarray((self.encode_cost + self.score_cost).sum(axis=1) + self.load_costs)

    @cached_property
    def exhaustive_cost(self) -> float:
        """Cost of all cells together; each encoding and each load counts once."""
        arms = np.unique(self.first_of_checkpoint)
        return float(
            self.score_cost.sum() + self.encode_cost[arms].sum() + self.load_costs[arms].sum()
        )

    def cell(self, arm: int, task: int) -> Cell:
        return Cell(self.arms[arm], self.tasks[task])

    def observe(self, outcomes: Iterable[tuple[Cell, Outcome]]) -> Observations:
        """Scores of cells as observations; failed cells and those of other arms are left out."""
        return Observations.of(
            (*self.locate(cell), outcome.score, outcome.stderr)
            for cell, outcome in outcomes
            if cell.arm in self.arm_index and outcome.score is not None
        )

    def locate(self, cell: Cell) -> tuple[int, int]:
        """Indices (arm, task) of a cell; the inverse of `cell`."""
        if cell.arm not in self.arm_index or cell.task not in self.tasks:
            raise DataError(
                f"Cell {cell} is not part of this search. Were its models, revisions or tasks "
                "changed?"
            )
        return self.arm_index[cell.arm], self.tasks.index(cell.task)


@dataclass(frozen=True)
class Outcome:
    """Result of a cell: a score with its standard error, or None if it failed.

    ``seconds`` is the measured time of scoring. If given, it corrects the assumed costs of later
    decisions. Two runs measure different seconds, so their decisions may then differ; a resumed run
    still repeats its own.
    """

    score: float | None
    stderr: float = 0.0
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.score is None:
            return
        if not (math.isfinite(self.score) and math.isfinite(self.stderr) and self.stderr >= 0):
            raise DataError(
                f"A score must be finite, got {self.score} +- {self.stderr}. Report a failure as "
                "Outcome(None)."
            )


@dataclass(frozen=True, eq=False)
class Rows:
    """Base of tables: each field of a subclass is an array with one entry per row (n, ...)."""

    def __len__(self) -> int:
        return len(self._columns[0])

    def take(self, rows: slice | Ints | Bools) -> Self:
        """Some of the rows, in the order given."""
        return type(self)(*(column[rows] for column in self._columns))

    def append(self, more: Self) -> Self:
        """These rows, then the others."""
        return type(self)(*map(np.concatenate, zip(self._columns, more._columns, strict=True)))

    @property
    def _columns(self) -> list[NDArray[Any]]:
        return [getattr(self, column.name) for column in fields(self)]


@dataclass(frozen=True, eq=False)
class Observations(Rows):
    """Known scores, one row per cell: indices of arm and task, raw score and its standard error
    (n,).
    """

    arm: Ints
    task: Ints
    score: Floats
    stderr: Floats

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, float, float]]) -> Observations:
        """From (arm, task, score, stderr) rows, sorted by cell, so that sums do not depend on the
        order of arrival.
        """
        arm, task, score, stderr = np.array(list(rows), dtype=float).reshape(-1, 4).T
        return cls(arm.astype(np.intp), task.astype(np.intp), score, stderr).by_cell()

    def by_cell(self) -> Observations:
        """The same observations, sorted by cell."""
        return self.take(np.lexsort((self.stderr, self.score, self.task, self.arm)))


def numbered(labels: Sequence[Hashable]) -> Ints:
    """Index of every label among the distinct ones, in order of first appearance (n,).

    >>> numbered(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    number = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return np.array([number[label] for label in labels], dtype=np.intp)


def check_shape(name: str, array: Floats, shape: tuple[int, int]) -> None:
    """Raise a DataError if an array has not one row per arm and this shape."""
    if array.shape != shape:
        raise DataError(f"{name} must have one row per arm and shape {shape}, got {array.shape}.")


@dataclass(frozen=True, eq=False)
class OutcomeArrays(Rows):
    """Finished cells with their outcomes, in order (n,): score NaN where the cell failed, seconds
    NaN where unknown.

    >>> cells = [((3, 0), Outcome(0.5, 0.1)), ((1, 0), Outcome(None)), ((1, 1), Outcome(0.4))]
    >>> outcomes = OutcomeArrays.of(cells)
    >>> outcomes.scores.arm.tolist(), outcomes.failed.tolist()
    ([3, 1], [False, True, False])
    """

    arm: Ints
    task: Ints
    score: Floats
    stderr: Floats
    seconds: Floats

    @classmethod
    def of(cls, finished: Iterable[tuple[tuple[int, int], Outcome]]) -> OutcomeArrays:
        """From pairs of a cell (arm, task) and its outcome."""
        rows = [
            (*cell, outcome.score, outcome.stderr, outcome.seconds) for cell, outcome in finished
        ]
        arm, task, score, stderr, seconds = np.array(rows, dtype=float).reshape(-1, 5).T
        return cls(
            arm.astype(np.intp), task.astype(np.intp), score.copy(), stderr.copy(), seconds.copy()
        )

    @property
    def failed(self) -> Bools:
        """Cells without a score (n,)."""
        return np.isnan(self.score)

    @property
    def scores(self) -> Observations:
        """The cells with a score, in the same order."""
        scored = ~self.failed
        return Observations(
            self.arm[scored], self.task[scored], self.score[scored], self.stderr[scored]
        )


class OutcomeHistory:
    """Converts outcomes to arrays and keeps the result: the next call converts only what is new."""

    def __init__(self) -> None:
        self._cells: list[tuple[int, int]] = []
        self._outcomes: list[Outcome] = []
        self._arrays = OutcomeArrays.of([])

    def read(self, cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> OutcomeArrays:
        """The outcomes of the first ``len(outcomes)`` cells."""
        cells, outcomes = list(cells[: len(outcomes)]), list(outcomes)
        same = min(len(cells), len(self._cells))
        if cells[:same] != self._cells[:same] or outcomes[:same] != self._outcomes[:same]:
            same = 0
            self._arrays = OutcomeArrays.of([])
        if same == len(cells) < len(self._cells):
            return self._arrays.take(slice(same))
        self._arrays = self._arrays.append(
            OutcomeArrays.of(zip(cells[same:], outcomes[same:], strict=True))
        )
        self._cells, self._outcomes = cells, outcomes
        return self._arrays


def task_weights(
    kinds: Mapping[str, str], objective: str = ALL, weights: Mapping[str, float] | None = None
) -> list[float]:
    """Weight of every task in an objective.

    Parameters
    ----------
    kinds : mapping of str to str
        Kind of each task, by name.
    objective : str
        ``all``, a kind or a task; all other tasks have weight 0.
    weights : mapping of str to float
        Weights of some tasks; the default is 1.

    Raises
    ------
    ConfigError
        If a name is neither a task nor a kind (the message names the nearest valid one), or if no
        task has a positive weight.

    Examples
    --------
    >>> task_weights({"order": "pairs", "package": "classes", "module": "classes"}, "classes", {"module": 2})
    [0.0, 1.0, 2.0]
    """
    weights = weights or {}
    for name in weights:
        if name not in kinds:
            raise unknown("task in 'search.weights':", name, kinds)
    objectives = {ALL, *kinds, *kinds.values()}
    if objective not in objectives:
        raise unknown("objective", objective, objectives)
    result = [
        float(weights.get(name, 1.0)) if objective in (ALL, name, kind) else 0.0
        for name, kind in kinds.items()
    ]
    if not sum(result) > 0:
        raise ConfigError(
            f"No task of the objective '{objective}' has a positive weight: {dict(weights)}. Increase a weight."
        )
    return result
