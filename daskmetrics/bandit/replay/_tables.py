"""Known scores as arrays over arms x tasks, whatever they were read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Cell, Suite, grid, training_order

Floats = NDArray[np.float64]
Metrics = Mapping[Arm, Mapping[str, float]]


@dataclass(frozen=True)
class Row:
    """One known score. ``encode`` is the part of the seconds that a checkpoint's other layers would share."""

    arm: Arm
    task: str
    score: float
    stderr: float = 0.0
    seconds: float | None = None
    encode: float = 0.0
    kind: str = ""


@dataclass(frozen=True, eq=False)
class Table:
    """Scores of a grid of arms on tasks.

    Attributes
    ----------
    suites : tuple of Suite
        Their arms are the rows, in the order of `daskmetrics.core.names.grid`.
    kinds : mapping of str to str
        Kind of each task, in the order of the columns; empty where it is not known.
    scores, stderr : ndarray (A, T)
        NaN where there is no score.
    seconds, encode : ndarray (A, T)
        What a cell takes, and the part of it that is encoding; NaN where not known.
    metrics : ndarray (A, M) or None
        Label-free metrics of the arms, NaN where missing.
    metric_names : tuple of str
    """

    suites: tuple[Suite, ...]
    kinds: Mapping[str, str]
    scores: Floats
    stderr: Floats
    seconds: Floats
    encode: Floats
    metrics: Floats | None = None
    metric_names: tuple[str, ...] = ()

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        return grid(self.suites)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @property
    def known(self) -> int:
        """How many cells have a score."""
        return int(np.isfinite(self.scores).sum())

    def cells(self) -> dict[Cell, float]:
        """Score by cell; a cell without one is absent."""
        tasks = self.tasks
        return {
            Cell(self.arms[arm], tasks[task]): float(self.scores[arm, task])
            for arm, task in np.argwhere(np.isfinite(self.scores))
        }

    def of_tasks(self, chosen: Iterable[str]) -> Table:
        """The same arms on fewer tasks, in the table's order."""
        wanted = set(chosen)
        columns = [i for i, task in enumerate(self.tasks) if task in wanted]
        names = ("scores", "stderr", "seconds", "encode")
        kinds = {task: kind for task, kind in self.kinds.items() if task in wanted}
        return replace(self, kinds=kinds, **{name: getattr(self, name)[:, columns] for name in names})


def table(rows: Iterable[Row], metrics: Metrics | None = None) -> Table:
    """Arrange rows as a table; of two rows for one cell the last counts.

    Parameters
    ----------
    rows : iterable of Row
        In any order. A model's layers are those that any of its checkpoints has; its depth is the greatest of them.
    metrics : mapping of Arm to (mapping of str to float), optional
        Label-free metrics; one that fewer than half of the arms have is left out.

    Raises
    ------
    DataError
        If there is no row.

    Examples
    --------
    >>> rows = [Row(Arm("m", f"step{s}", 1), task, 0.1 * s) for s in (8, 1) for task in ("a", "b")]
    >>> found = table(rows)
    >>> [str(arm) for arm in found.arms], found.scores.tolist()
    (['m@step1/1', 'm@step8/1'], [[0.1, 0.1], [0.8, 0.8]])
    """
    every = list(rows)
    if not every:
        raise DataError("The table holds no score.")
    suites = _suites(row.arm for row in every)
    place = {arm: i for i, arm in enumerate(grid(suites))}
    kinds = dict(sorted({row.task: row.kind for row in every}.items()))
    column = {task: i for i, task in enumerate(kinds)}
    scores, stderr, seconds, encode = np.full((4, len(place), len(column)), np.nan)
    for row in every:
        at = place[row.arm], column[row.task]
        scores[at], stderr[at], encode[at] = row.score, row.stderr, row.encode
        seconds[at] = np.nan if row.seconds is None else row.seconds
    names, values = _columns(metrics or {}, place)
    return Table(suites, kinds, scores, stderr, seconds, encode, values, names)


def _suites(arms: Iterable[Arm]) -> tuple[Suite, ...]:
    revisions: dict[str, set[str]] = {}
    layers: dict[str, set[int]] = {}
    for arm in arms:
        revisions.setdefault(arm.model, set()).add(arm.revision)
        layers.setdefault(arm.model, set()).add(arm.layer)
    return tuple(
        Suite(model, training_order(revisions[model]), tuple(sorted(own)), max(1, *own))
        for model, own in layers.items()
    )


def _columns(metrics: Metrics, place: Mapping[Arm, int]) -> tuple[tuple[str, ...], Floats | None]:
    names = sorted({name for arm, own in metrics.items() if arm in place for name in own})
    values = np.full((len(place), len(names)), np.nan)
    for arm, own in metrics.items():
        if arm in place:
            values[place[arm]] = [own.get(name, np.nan) for name in names]
    kept = np.flatnonzero(2 * np.isfinite(values).sum(axis=0) >= len(place))
    return tuple(names[i] for i in kept), values[:, kept] if len(kept) else None
