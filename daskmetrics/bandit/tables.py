"""Known scores as arrays over arms x tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from daskmetrics.bandit.features import arm_features
from daskmetrics.bandit.problem import Bools, Floats
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Cell, Suite, grid, training_order
from daskmetrics.core.readouts import Readout

Metrics = Mapping[Arm, Mapping[str, float]]
ARRAYS = ("scores", "stderr", "seconds", "encode")  #: of a table, each (A, T)
FEWER = "Choose tasks or models for which the table is complete."


@dataclass(frozen=True)
class ScoreRow:
    """One known score. ``encode`` is the part of the seconds that all layers of a checkpoint
    share.
    """

    arm: Arm
    task: str
    score: float
    stderr: float = 0.0
    seconds: float | None = None
    encode: float = 0.0
    kind: str = ""


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of a grid of arms on tasks.

    Attributes
    ----------
    suites : tuple of Suite
        Their arms, in the order of `daskmetrics.core.names.grid`, are the rows, unless ``chosen``
        is given.
    kinds : mapping of str to str
        Kind of each task, in the order of the columns; an empty string if unknown.
    scores, stderr : ndarray (A, T)
        NaN without a score.
    seconds, encode : ndarray (A, T)
        Seconds of a cell, and the part of them for encoding; NaN if unknown.
    metrics : ndarray (A, M) or None
        Label-free metrics of the arms, NaN where missing.
    metric_names : tuple of str
    chosen : tuple of Arm or None
        The rows, if they are not the whole grid.
    """

    suites: tuple[Suite, ...]
    kinds: Mapping[str, str]
    scores: Floats
    stderr: Floats
    seconds: Floats
    encode: Floats
    metrics: Floats | None = None
    metric_names: tuple[str, ...] = ()
    chosen: tuple[Arm, ...] | None = None

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        if self.chosen is None:
            return grid(self.suites)
        return self.chosen

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @property
    def known(self) -> int:
        """Number of cells with a score."""
        return int(np.isfinite(self.scores).sum())

    def cells(self) -> dict[Cell, float]:
        """Scores by cell; cells without a score are left out."""
        tasks = self.tasks
        return {
            Cell(self.arms[arm], tasks[task]): float(self.scores[arm, task])
            for arm, task in np.argwhere(np.isfinite(self.scores))
        }

    def is_complete(self, tasks: Iterable[str] | None = None) -> Bools:
        """Arms with a score on each of these tasks, by default on all (A,)."""
        scores = self.scores
        if tasks is not None:
            needed = set(tasks)
            scores = scores[:, [task in needed for task in self.tasks]]
        return np.asarray(np.isfinite(scores).all(axis=1))

    def complete(self, tasks: Iterable[str] | None = None) -> ScoreTable:
        """The table without the arms that lack a score on one of these tasks, by default on any.

        Raises
        ------
        DataError
            If no arm is left.
        """
        kept = self.is_complete(tasks)
        if not kept.any():
            raise DataError(
                f"None of the {len(kept)} arms has a score on each task, so none is left. {FEWER}"
            )
        arms = tuple(arm for arm, is_kept in zip(self.arms, kept, strict=True) if is_kept)
        models = {arm.model for arm in arms}
        suites = tuple(suite for suite in self.suites if suite.model in models)
        arrays = {name: getattr(self, name)[kept] for name in ARRAYS}
        metrics = self.metrics
        if metrics is not None:
            metrics = metrics[kept]
        return replace(self, suites=suites, metrics=metrics, chosen=arms, **arrays)

    def features(self, metrics: bool = False) -> Floats:
        """Features of the arms (A, F), as `daskmetrics.bandit.arm_features` gives them."""
        row = {arm: i for i, arm in enumerate(grid(self.suites))}
        rows = [row[arm] for arm in self.arms]
        if self.metrics is None or not metrics:
            return arm_features(self.suites)[rows]
        values = np.full((len(row), self.metrics.shape[1]), np.nan)
        values[rows] = self.metrics
        return arm_features(self.suites, values)[rows]

    def of_tasks(self, chosen: Iterable[str]) -> ScoreTable:
        """The same arms on fewer tasks, in the table's order."""
        chosen = set(chosen)
        columns = [i for i, task in enumerate(self.tasks) if task in chosen]
        kinds = {task: kind for task, kind in self.kinds.items() if task in chosen}
        return replace(
            self, kinds=kinds, **{name: getattr(self, name)[:, columns] for name in ARRAYS}
        )


def score_table(rows: Iterable[ScoreRow], metrics: Metrics | None = None) -> ScoreTable:
    """Arrange rows as a table; of several rows for one cell the last one counts.

    Parameters
    ----------
    rows : iterable of ScoreRow
        In any order. A model's layers and readouts are those of all its checkpoints; its depth is
        the greatest layer.
    metrics : mapping of Arm to (mapping of str to float), optional
        Label-free metrics; a metric that fewer than half of the arms have is left out.

    Raises
    ------
    DataError
        If there are no rows.

    Examples
    --------
    >>> rows = [ScoreRow(Arm("m", f"step{s}", 1), task, 0.1 * s) for s in (8, 1) for task in ("a", "b")]
    >>> table = score_table(rows)
    >>> [str(arm) for arm in table.arms], table.scores.tolist()
    (['m@step1/1', 'm@step8/1'], [[0.1, 0.1], [0.8, 0.8]])
    """
    rows = list(rows)
    if not rows:
        raise DataError("The table contains no scores.")
    suites = _suites(row.arm for row in rows)
    row_of = {arm: i for i, arm in enumerate(grid(suites))}
    # one of several joined tables may not say of which kind a task is
    kinds = {row.task: row.kind for row in sorted(rows, key=lambda row: bool(row.kind))}
    kinds = dict(sorted(kinds.items()))
    column_of = {task: i for i, task in enumerate(kinds)}
    scores, stderr, seconds, encode = np.full((4, len(row_of), len(column_of)), np.nan)
    for row in rows:
        cell = row_of[row.arm], column_of[row.task]
        scores[cell], stderr[cell], encode[cell] = row.score, row.stderr, row.encode
        seconds[cell] = np.nan if row.seconds is None else row.seconds
    names, values = _columns(metrics or {}, row_of)
    return ScoreTable(suites, kinds, scores, stderr, seconds, encode, values, names)


def _suites(arms: Iterable[Arm]) -> tuple[Suite, ...]:
    revisions: dict[str, set[str]] = {}
    layers: dict[str, set[int]] = {}
    readouts: dict[str, set[str]] = {}
    for arm in arms:
        revisions.setdefault(arm.model, set()).add(arm.revision)
        layers.setdefault(arm.model, set()).update(Readout.parse(arm.readout).layers_of(arm.layer))
        readouts.setdefault(arm.model, set()).add(arm.readout)
    return tuple(
        Suite(
            model,
            training_order(revisions[model]),
            tuple(sorted(numbers)),
            max(1, *numbers),
            tuple(sorted(readouts[model])),
        )
        for model, numbers in layers.items()
    )


def _columns(metrics: Metrics, row_of: Mapping[Arm, int]) -> tuple[tuple[str, ...], Floats | None]:
    of_arms = {arm: values for arm, values in metrics.items() if arm in row_of}
    names = sorted(set().union(*of_arms.values()))
    columns = np.full((len(row_of), len(names)), np.nan)
    for arm, values in of_arms.items():
        columns[row_of[arm]] = [values.get(name, np.nan) for name in names]
    kept = np.flatnonzero(2 * np.isfinite(columns).sum(axis=0) >= len(row_of))
    if not len(kept):
        return (), None
    return tuple(names[i] for i in kept), columns[:, kept]
