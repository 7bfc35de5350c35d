"""What is searched: arms, tasks, what is known of the arms beforehand, and what every cell would cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Cell, Checkpoint, Suite

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Reward = Literal["zscore", "mean", "running", "rank", "harmonic", "robust"]


@dataclass(frozen=True, eq=False)
class Problem:
    """Arms x tasks with their costs; everything a search knows before it has paid for anything.

    Attributes
    ----------
    arms : tuple of Arm, length A
    tasks : tuple of str, length T
    features : ndarray (A, F)
        As `arm_features` gives them: step, depth, one column per model, then any number of metrics; all finite.
    encode_cost : ndarray (A, T)
        Cost of encoding a task's texts with the arm's checkpoint: equal for its layers, since it is paid once for all.
    score_cost : ndarray (A, T)
        Cost of scoring one layer's embeddings. The unit is free but known beforehand, so that two runs decide alike
        however fast the machine was.
    baseline : Checkpoint
        Its last layer is the default arm: what one would use without searching.
    reward : {"zscore", "mean", "running", "rank", "harmonic", "robust"}
        How the scores of different tasks become comparable; see `daskmetrics.bandit._rewards`.
    load_cost : ndarray (A,) or None
        Cost of loading the arm's checkpoint where no worker holds it: equal for its layers; None for nothing.
    weights : tuple of float, length T, or None
        Of the tasks in the objective, not negative; None for ones. A task of weight 0 may be asked for what it says of
        the others.

    Raises
    ------
    DataError
        If shapes do not match, a number is not finite, or the baseline has no arm.
    """

    arms: tuple[Arm, ...]
    tasks: tuple[str, ...]
    features: Floats
    encode_cost: Floats
    score_cost: Floats
    baseline: Checkpoint
    reward: Reward = "zscore"
    weights: tuple[float, ...] | None = None
    load_cost: Floats | None = None

    def __post_init__(self) -> None:
        cells = (len(self.arms), len(self.tasks))
        _check_shape("encode_cost", self.encode_cost, cells)
        _check_shape("score_cost", self.score_cost, cells)
        if len(set(self.arms)) < cells[0] or len(set(self.tasks)) < cells[1] or 0 in cells:
            raise DataError(f"A search needs distinct arms and tasks, got {cells[0]} arms and {cells[1]} tasks.")
        least = 2 + len(self.models)
        if self.features.shape[:1] != cells[:1] or self.features.ndim != 2 or self.features.shape[1] < least:
            raise DataError(
                f"features must be ({cells[0]}, {least} or more): step, depth, one column per model, metrics; "
                f"got {self.features.shape}."
            )
        if not np.isfinite(self.features).all():
            raise DataError("features must be finite; arm_features() replaces missing metrics by their mean.")
        if min(self.encode_cost.min(), self.score_cost.min(), (self.encode_cost + self.score_cost).min()) < 0:
            raise DataError("Costs must not be negative.")
        if (self.encode_cost != self.encode_cost[self.first_of_checkpoint]).any():
            raise DataError("encode_cost must be equal for all layers of a checkpoint: one encoding gives them all.")
        if self.loads.shape != cells[:1] or not np.isfinite(self.loads).all() or self.loads.min() < 0:
            raise DataError(f"load_cost must be {cells[0]} numbers, none negative, got shape {self.loads.shape}.")
        if (self.loads != self.loads[self.first_of_checkpoint]).any():
            raise DataError("load_cost must be equal for all layers of a checkpoint: they are loaded together.")
        if not len(self.baseline_arms):
            raise DataError(f"The baseline {self.baseline} has no arm among the {cells[0]} that are compared.")
        if self.weights is not None and not _are_weights(self.weights, cells[1]):
            raise DataError(
                f"weights must be {cells[1]} numbers, none negative and at least one positive, got {self.weights}."
            )

    @cached_property
    def shares(self) -> Floats:
        """Weights of the tasks in the objective, summing to one (T,)."""
        weights = np.ones(len(self.tasks)) if self.weights is None else np.array(self.weights, dtype=float)
        return np.asarray(weights / weights.sum())

    @property
    def wanted(self) -> Bools:
        """Tasks that count in the objective: the only ones that a recommended arm must have been tried on (T,)."""
        return np.asarray(self.shares > 0)

    @cached_property
    def loads(self) -> Floats:
        """Cost of loading every arm's checkpoint (A,)."""
        return np.zeros(len(self.arms)) if self.load_cost is None else np.asarray(self.load_cost, dtype=float)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Names of the models, in order of their first arm."""
        return tuple(dict.fromkeys(arm.model for arm in self.arms))

    @cached_property
    def model_index(self) -> Ints:
        """Which model an arm belongs to (A,)."""
        return np.array([self.models.index(arm.model) for arm in self.arms], dtype=np.intp)

    @cached_property
    def axes(self) -> tuple[tuple[Floats, Ints], ...]:
        """For training and depth the distinct values, ascending, and every arm's place among them (A,)."""
        training, depth = (np.unique(self.features[:, i], return_inverse=True) for i in (0, 1))
        return training, depth

    @cached_property
    def checkpoint_index(self) -> Ints:
        """Which checkpoint an arm belongs to, numbered in order of first appearance (A,)."""
        number = {point: i for i, point in enumerate(dict.fromkeys(arm.checkpoint for arm in self.arms))}
        return np.array([number[arm.checkpoint] for arm in self.arms], dtype=np.intp)

    @cached_property
    def first_of_checkpoint(self) -> Ints:
        """For every arm the first arm of its checkpoint (A,)."""
        _, first = np.unique(self.checkpoint_index, return_index=True)
        return first[self.checkpoint_index]

    @cached_property
    def arm_index(self) -> dict[Arm, int]:
        return {arm: i for i, arm in enumerate(self.arms)}

    @cached_property
    def task_index(self) -> dict[str, int]:
        return {task: i for i, task in enumerate(self.tasks)}

    @cached_property
    def baseline_arms(self) -> Ints:
        """The layers of the baseline checkpoint, ascending."""
        own = [i for i, arm in enumerate(self.arms) if arm.checkpoint == self.baseline]
        return np.array(sorted(own, key=lambda i: self.arms[i].layer), dtype=np.intp)

    @property
    def default_arm(self) -> int:
        """Index of the last layer of the baseline checkpoint."""
        return int(self.baseline_arms[-1])

    @cached_property
    def arm_cost(self) -> Floats:
        """Cost of one arm on all tasks with nothing shared, its checkpoint loaded once (A,)."""
        return np.asarray((self.encode_cost + self.score_cost).sum(axis=1) + self.loads)

    @cached_property
    def exhaustive_cost(self) -> float:
        """Cost of every cell, shared encodings and each checkpoint's loading counted once."""
        once = np.unique(self.first_of_checkpoint)
        return float(self.score_cost.sum() + self.encode_cost[once].sum() + self.loads[once].sum())

    def cell(self, arm: int, task: int) -> Cell:
        return Cell(self.arms[arm], self.tasks[task])

    def locate(self, cell: Cell) -> tuple[int, int]:
        """Indices (arm, task) of a cell; the inverse of `cell`."""
        if cell.arm not in self.arm_index or cell.task not in self.task_index:
            raise DataError(f"Cell {cell} is not part of this search: were its models, revisions or tasks changed?")
        return self.arm_index[cell.arm], self.task_index[cell.task]


@dataclass(frozen=True)
class Outcome:
    """What became of a cell that was paid for: a score with its standard error, or None if it failed.

    ``seconds`` is what scoring it took, where that is known: told, it corrects the costs that later decisions assume.
    Two runs measure different seconds, so that runs which tell them need not decide alike; a resumed run does.
    """

    score: float | None
    stderr: float = 0.0
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.score is None:
            return
        if not (math.isfinite(self.score) and math.isfinite(self.stderr) and self.stderr >= 0):
            raise DataError(f"A score must be finite, got {self.score} +- {self.stderr}; a failure is Outcome(None).")


@dataclass(frozen=True, eq=False)
class Observations:
    """Scores that are known, one row per cell: indices of arm and task, raw score and its standard error (n,)."""

    arm: Ints
    task: Ints
    score: Floats
    stderr: Floats

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, float, float]]) -> Observations:
        """From (arm, task, score, stderr) rows in any order; kept sorted by cell.

        Sums over floats depend on their order, so an order of arrival must not reach them.
        """
        arm, task, score, stderr = np.array(list(rows), dtype=float).reshape(-1, 4).T
        return cls(arm.astype(np.intp), task.astype(np.intp), score, stderr).by_cell()

    def by_cell(self) -> Observations:
        """The same, sorted by cell."""
        order = np.lexsort((self.stderr, self.score, self.task, self.arm))
        return Observations(self.arm[order], self.task[order], self.score[order], self.stderr[order])

    def __len__(self) -> int:
        return len(self.arm)


def arm_features(suites: Sequence[Suite], metrics: Floats | None = None) -> Floats:
    """What is known of every arm before any task: where it lies and what its label-free metrics are.

    Parameters
    ----------
    suites : sequence of Suite
        Rows come in the order of `daskmetrics.core.names.grid`.
    metrics : ndarray (A, M) or None
        NaN where a metric is missing.

    Returns
    -------
    ndarray (A, 2 + number of suites + metrics kept)
        Training step, log2(step + 1) scaled to [0, 1] within the suite; relative depth in [0, 1]; one-hot model; the
        metrics with mean 0 and sd 1 over all arms, missing ones 0 (the mean), constant ones dropped.

    Examples
    --------
    >>> arm_features([Suite("m", ("step0", "step1", "step3", "main"), (2,), 4)])
    array([[0. , 0.5, 1. ],
           [0.5, 0.5, 1. ],
           [1. , 0.5, 1. ],
           [1. , 0.5, 1. ]])
    """
    rows = [
        [time, layer / suite.depth, *(float(suite is other) for other in suites)]
        for suite in suites
        for time in _times(suite)
        for layer in suite.layers
    ]
    position = np.array(rows, dtype=float)
    if metrics is None:
        return position
    _check_shape("metrics", metrics, (len(position), metrics.shape[-1]), finite=False)
    return np.hstack([position, _standardised(metrics)])


def _times(suite: Suite) -> list[float]:
    steps = [point.step for point in suite.checkpoints()]
    last = max((step for step in steps if step), default=1)
    return [float(np.log2(step + 1) / np.log2(last + 1)) if step is not None else 1.0 for step in steps]


def _standardised(columns: Floats) -> Floats:
    known = np.isfinite(columns)
    count = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, columns, 0.0)
    centred = np.where(known, columns - centred.sum(axis=0) / count, 0.0)
    sd = np.sqrt((centred**2).sum(axis=0) / count)
    # rounding leaves a trace of spread in a constant column
    varies = sd > 1e-9 * np.abs(np.where(known, columns, 0.0)).max(axis=0, initial=0.0)
    return np.asarray(centred[:, varies] / sd[varies])


def _are_weights(weights: Sequence[float], count: int) -> bool:
    return len(weights) == count and all(math.isfinite(w) and w >= 0 for w in weights) and sum(weights) > 0


def _check_shape(name: str, got: Floats, wanted: tuple[int, int], finite: bool = True) -> None:
    if got.shape != wanted:
        raise DataError(f"{name} must have one row per arm and shape {wanted}, got {got.shape}.")
    if finite and not np.isfinite(got).all():
        raise DataError(f"{name} must be finite.")
