"""The search problem: arms and what is known of them before any score, tasks, the assumed cost of
every cell, and what was observed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.domain.names import Arm, Cell, Checkpoint, Suite, grid
from daskmetrics.domain.plan import TaskInfo
from daskmetrics.domain.results import Outcomes

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Singles = NDArray[np.float32]
ROUNDING = 1e-9  #: relative difference below which sums of costs count as equal

#: share of an encoding below which the scores of all arms that share it cost next to nothing
CHEAP_SCORES = 0.25
ALL = "all"  #: the objective that contains every task


@dataclass(frozen=True, eq=False)
class Problem:
    """What a search knows before it pays: arms, tasks, features and costs.

    Attributes
    ----------
    arms : tuple of Arm, length A
    tasks : tuple of str, length T
    features : ndarray (A, 2 + number of models)
        As `arm_features` gives them: step, depth, one column per model; all finite.
    encode_cost : ndarray (A, T)
        Cost of encoding a task's texts with the arm's checkpoint: equal for its layers, which share
        the encoding.
    score_cost : ndarray (A, T)
        Cost of scoring one layer's embeddings. Costs may have any unit. They are assumed and not
        measured, so that two runs make the same decisions however fast the machine is.
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
    weights: tuple[float, ...] | None = None
    load_cost: Floats | None = None
    kinds: tuple[str, ...] | None = None
    default: Checkpoint | None = None

    def __post_init__(self) -> None:
        arms = len(self.arms)
        tasks = len(self.tasks)
        distinct = len(set(self.arms)), len(set(self.tasks))
        if distinct != (arms, tasks) or 0 in distinct:
            raise DataError(
                f"A search needs distinct arms and tasks, got {arms} arms and {tasks} tasks."
            )
        _check("features", self.features, (arms, 2 + len(self.models)), -math.inf)
        _check("encode_cost", self.encode_cost, (arms, tasks))
        _check("score_cost", self.score_cost, (arms, tasks))
        _check("load_cost", self.load_costs, (arms,))
        for name, cost in (("encode_cost", self.encode_cost), ("load_cost", self.load_costs)):
            if (cost != cost[self.first_of_checkpoint]).any():
                raise DataError(
                    f"{name} must be equal for all layers of a checkpoint, which share one load "
                    "and one encoding."
                )
        if self.weights is not None:
            _check("weights", np.array(self.weights, dtype=float), (tasks,))
            if not any(self.weights):
                raise DataError(f"weights must not all be 0; got {self.weights}.")
        if self.kinds is not None and len(self.kinds) != tasks:
            raise DataError(
                f"kinds must name the kind of each of the {tasks} tasks; got {len(self.kinds)}."
            )
        if self.default and self._last_arm(self.default) is None:
            raise DataError(
                f"The baseline {self.default} has no arm among the {arms} arms of the search."
            )

    @cached_property
    def objective_weights(self) -> Floats:
        """Weights of the tasks in the objective, summing to one (T,)."""
        equal = [1.0] * len(self.tasks)
        weights = np.array(self.weights or equal, dtype=float)
        return np.asarray(weights / weights.sum())

    @cached_property
    def kind_names(self) -> tuple[str, ...]:
        """The kind of every task; its own name if it has none."""
        kinds = self.kinds or self.tasks
        return tuple(kind or task for task, kind in zip(self.tasks, kinds, strict=True))

    @cached_property
    def kind_index(self) -> Ints:
        """Index of every task's kind, in order of first appearance (T,)."""
        return numbered(self.kind_names)

    @cached_property
    def kind_membership(self) -> Floats:
        """Membership of the tasks in the kinds (T, K)."""
        return np.eye(self.kind_index.max() + 1)[self.kind_index]

    @cached_property
    def cost_trend(self) -> Floats:
        """Logarithm of every task's cost less the mean of the objective; its sd is at most 1 (T,)."""
        cost = (self.encode_cost + self.score_cost).sum(axis=0)
        if not cost.all():
            return np.zeros(len(cost))
        weights = self.objective_weights
        trend = np.log(cost) - weights @ np.log(cost)
        return np.asarray(trend / max(1.0, math.sqrt(weights @ trend**2)))

    @cached_property
    def task_groups(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Membership in all tasks (T, 1), cheap or expensive ones (T, 1), kinds (T, K), single
        tasks (T, T).
        """
        tasks = len(self.tasks)
        return np.ones((tasks, 1)), self.cost_trend[:, None], self.kind_membership, np.eye(tasks)

    @property
    def in_objective(self) -> Bools:
        """Tasks with a positive weight (T,), on which a recommended arm is measured."""
        return self.objective_weights > 0

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
        """Distinct values of training and of depth, and every arm's index (A,).

        The values are ascending.
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
        """Index of the baseline of each arm (A,).

        It is what one would use of the arm's model without a search.
        """
        last_checkpoint = {arm.model: arm.checkpoint for arm in self.arms}
        checkpoints = [self.default or last_checkpoint[model] for model in self.models]
        default_of_model = np.array([*map(self._last_arm, checkpoints)], dtype=np.intp)
        return default_of_model[self.model_index]

    def _last_arm(self, checkpoint: Checkpoint) -> int | None:
        """Index of a checkpoint's first arm of the last layer; None without arms."""
        arms = [i for i, arm in enumerate(self.arms) if arm.checkpoint == checkpoint]
        return max(arms, key=lambda i: self.arms[i].layer, default=None)

    def same_encoding(self, arms: Ints, tasks: Ints) -> Bools:
        """Cells that share their encoding with one of these cells (A, T)."""
        cells = np.zeros(self.score_cost.shape, dtype=bool)
        cells[self.first_of_checkpoint[arms], tasks] = True
        return cells[self.first_of_checkpoint]

    @cached_property
    def shares_encoding(self) -> Bools:
        """Cells whose encoding costs much more than its scores (A, T).

        These are the scores of all arms that share it; see `CHEAP_SCORES`.
        """
        scoring = np.zeros_like(self.score_cost)
        np.add.at(scoring, self.first_of_checkpoint, self.score_cost)
        total_scoring = scoring[self.first_of_checkpoint]
        return total_scoring < CHEAP_SCORES * self.encode_cost

    @cached_property
    def arm_cost(self) -> Floats:
        """Cost of each arm alone on all tasks, its checkpoint loaded once (A,)."""
        cost = self.encode_cost + self.score_cost
        return np.asarray(cost.sum(axis=1) + self.load_costs)

    @property
    def mean_cost(self) -> float:
        """Of a cell, encodings included."""
        return self.exhaustive_cost / self.score_cost.size

    @cached_property
    def exhaustive_cost(self) -> float:
        """Cost of all cells together; each encoding and each load counts once."""
        arms = np.unique(self.first_of_checkpoint)
        encoding = self.encode_cost[arms]
        loading = self.load_costs[arms]
        return float(self.score_cost.sum() + encoding.sum() + loading.sum())

    def cell(self, arm: int, task: int) -> Cell:
        return Cell(self.arms[arm], self.tasks[task])

    def __contains__(self, cell: Cell) -> bool:
        return cell.arm in self.arm_index and cell.task in self.tasks

    def observe(self, outcomes: Iterable[tuple[Cell, Outcome]]) -> Observations:
        """Cells with their outcomes as observations, in this order.

        Those of other arms and tasks are left out.
        """
        return Observations.of(
            (*self.locate(cell), outcome.score, outcome.stderr)
            for cell, outcome in outcomes
            if cell in self
        )

    def cells_per_task(self, cells: Observations) -> Ints:
        """Number of the cells of every task (T,)."""
        return np.bincount(cells.task, minlength=len(self.tasks))

    def locate(self, cell: Cell) -> tuple[int, int]:
        """Indices (arm, task) of a cell; the inverse of `cell`."""
        if cell not in self:
            raise DataError(
                f"Cell {cell} is not part of this search. Were its models, revisions or tasks "
                "changed?"
            )
        return self.arm_index[cell.arm], self.tasks.index(cell.task)


@dataclass(frozen=True)
class Outcome:
    """Score of a cell with its standard error, or None if it failed.

    With what it says of every item, if that is known.
    """

    score: float | None
    stderr: float = 0.0
    of_items: Outcomes | None = None

    def __post_init__(self) -> None:
        if self.score is None:
            return
        is_finite = math.isfinite(self.score) and math.isfinite(self.stderr)
        if not is_finite or self.stderr < 0:
            raise DataError(
                f"A score must be finite, got {self.score} +- {self.stderr}. Report a failure as "
                "Outcome(None)."
            )


@dataclass(frozen=True, eq=False)
class Rows:
    """Base of tables: each field is an array with one entry per row (n, ...)."""

    def __len__(self) -> int:
        return len(self._columns[0])

    def take(self, rows: slice | Ints | Bools) -> Self:
        """Some of the rows, in the order given."""
        return type(self)(*(column[rows] for column in self._columns))

    def append(self, more: Self) -> Self:
        """These rows, then the others."""
        columns = zip(self._columns, more._columns, strict=True)
        return type(self)(*map(np.concatenate, columns))

    def equals(self, other: Self) -> bool:
        """Whether all rows of both tables are equal."""
        return all(map(np.array_equal, self._columns, other._columns))

    @property
    def _columns(self) -> list[NDArray[Any]]:
        return [getattr(self, column.name) for column in fields(self)]


@dataclass(frozen=True, eq=False)
class Observations(Rows):
    """Cells with their outcomes, one row per cell (n,).

    Indices of arm and task, raw score and its standard error; the score is NaN where the cell
    failed.

    >>> observations = Observations.of([(3, 0, 0.5, 0.1), (1, 0, None, 0.0), (1, 1, 0.4, 0.0)])
    >>> observations.scores.arm.tolist(), observations.failed.tolist()
    ([3, 1], [False, True, False])
    """

    arm: Ints
    task: Ints
    score: Floats
    stderr: Floats

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, float | None, float]]) -> Observations:
        """From rows (arm, task, score or None, stderr), in this order."""
        table = np.array([*rows], dtype=float).reshape(-1, 4)
        arm, task, score, stderr = table.T.copy()
        return cls(arm.astype(np.intp), task.astype(np.intp), score, stderr)

    def by_cell(self) -> Observations:
        """The same, sorted by cell.

        So sums do not depend on the order of arrival.
        """
        order = np.lexsort((self.stderr, self.score, self.task, self.arm))
        return self.take(order)

    @property
    def failed(self) -> Bools:
        """Cells without a score (n,)."""
        return np.isnan(self.score)

    @property
    def scores(self) -> Observations:
        """The cells with a score, in the same order."""
        return self.take(~self.failed)


def numbered(labels: Sequence[Hashable]) -> Ints:
    """Index of every label, in order of first appearance (n,).

    >>> numbered(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    number = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return np.array([number[label] for label in labels], dtype=np.intp)


def _check(name: str, array: Floats, shape: tuple[int, ...], least: float = 0.0) -> None:
    if array.shape != shape:
        raise DataError(f"{name} must have the shape {shape}, got {array.shape}.")
    is_valid = np.isfinite(array) & (array >= least)
    if not is_valid.all():
        must = "finite and not negative"
        if least < 0:
            must = "finite"
        raise DataError(f"{name} must be {must}, got values from {array.min():g} on.")


def arm_features(suites: Sequence[Suite]) -> Floats:
    """Features of every arm before any score: position and model.

    Parameters
    ----------
    suites : sequence of Suite
        The rows of the result are in the order of `daskmetrics.domain.names.grid`.

    Returns
    -------
    ndarray (A, 2 + number of suites)
        Training step, log2(step + 1) scaled to [0, 1] within the suite; relative depth in [0, 1];
        one-hot model.

    Examples
    --------
    >>> arm_features([Suite("m", ("step0", "step1", "step3", "main"), (2,), 4)])
    array([[0. , 0.5, 1. ],
           [0.5, 0.5, 1. ],
           [1. , 0.5, 1. ],
           [1. , 0.5, 1. ]])
    """
    rows: list[list[float]] = []
    for suite in suites:
        models = [float(suite is other) for other in suites]
        depths = [layer / max(1, suite.depth) for layer, _ in suite.rows]
        steps = [checkpoint.step for checkpoint in suite.checkpoints()]
        last_step = max(filter(None, steps), default=1)
        for step in steps:
            if step is None:
                step = last_step
            time = float(np.log2(step + 1) / np.log2(last_step + 1))
            rows += [[time, depth, *models] for depth in depths]
    return np.array(rows, dtype=float)


def problem_of(
    suites: Sequence[Suite],
    tasks: Sequence[TaskInfo],
    encode_cost: Floats | None = None,
    score_cost: Floats | None = None,
    default: Checkpoint | None = None,
) -> Problem:
    """The problem of these suites and tasks; costs are ones by default."""
    arms = grid(suites)
    ones = np.ones((len(arms), len(tasks)))
    return Problem(
        arms=arms,
        tasks=tuple(task.name for task in tasks),
        features=arm_features(suites),
        encode_cost=ones if encode_cost is None else encode_cost,
        score_cost=ones if score_cost is None else score_cost,
        weights=tuple(task.weight for task in tasks),
        kinds=tuple(task.kind for task in tasks),
        default=default,
    )


def with_checkpoints(suites: Sequence[Suite], wanted: Collection[Checkpoint]) -> list[Suite]:
    """The suites with their wanted checkpoints, without empty suites."""
    kept = []
    for suite in suites:
        revisions = tuple(c.revision for c in suite.checkpoints() if c in wanted)
        if revisions:
            kept.append(replace(suite, revisions=revisions))
    return kept


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
    >>> task_weights({"order": "pairs", "pairs": "classes"}, "pairs")
    [0.0, 1.0]
    """
    weights = weights or {}
    for name in weights:
        if name not in kinds:
            raise unknown("task in 'search.weights':", name, kinds)
    objectives = {ALL, *kinds, *kinds.values()}
    if objective not in objectives:
        raise unknown("objective", objective, objectives)
    result = []
    for name, kind in kinds.items():
        weight = 0.0
        # a task may have the name of a kind
        group = name if objective in kinds else kind
        if objective in (ALL, group):
            weight = float(weights.get(name, 1.0))
        result.append(weight)
    if not sum(result) > 0:
        raise ConfigError(
            f"No task of the objective '{objective}' has a positive weight: {dict(weights)}."
            " Increase a weight."
        )
    return result
