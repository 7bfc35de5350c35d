"""The scores of candidates on tasks: one table, as a mapping and as arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np

from daskmetrics.domain.events import scored
from daskmetrics.domain.names import Arm, Cell
from daskmetrics.domain.outcomes import (
    Difference,
    Estimate,
    Floats,
    difference,
    mean_difference,
    mean_score,
)
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Scored


class Scores(Mapping[Arm, Mapping[str, Scored]]):
    """Scores by arm and task. A failure is none of them.

    Parameters
    ----------
    by_arm : mapping
        The scores of each arm, by task.
    tasks : iterable of str
        The tasks of the table, also those without a score.

    Attributes
    ----------
    arms : tuple of Arm, length A
        Sorted, so that no result depends on the order in which scores arrived.
    tasks : tuple of str, length T
    value, stderr : ndarray (A, T)
        Raw scores and their standard errors; NaN where there is none.

    Examples
    --------
    >>> arms = [Arm("m", "main", layer) for layer in (0, 1)]
    >>> scores = Scores({arm: {"t": Scored(0.5 + arm.layer / 4, 0.1)} for arm in arms}, ["t"])
    >>> scores.value.tolist(), scores[arms[1]]["t"].score
    ([[0.5], [0.75]], 0.75)
    """

    def __init__(self, by_arm: Mapping[Arm, Mapping[str, Scored]], tasks: Iterable[str]) -> None:
        self._by_arm = by_arm
        self.tasks = tuple(tasks)

    @classmethod
    def of(cls, records: Iterable[Record], tasks: Iterable[str], kind: str = "score") -> Scores:
        """The scores among records.

        Of the ``kind`` ``fresh`` are those on items that were kept back from the search.
        """
        by_arm: dict[Arm, dict[str, Scored]] = {}
        for record, score in scored(records, kind):
            cell = Cell.parse(record.name)
            by_arm.setdefault(cell.arm, {})[cell.task] = score
        return cls(by_arm, tasks)

    def __getitem__(self, arm: Arm) -> Mapping[str, Scored]:
        return self._by_arm[arm]

    def __iter__(self) -> Iterator[Arm]:
        return iter(self._by_arm)

    def __len__(self) -> int:
        return len(self._by_arm)

    @property
    def size(self) -> int:
        """The number of scores."""
        return sum(map(len, self.values()))

    def where(self, counts: Callable[[Cell], bool]) -> Scores:
        """The scores of the cells that count."""
        kept = {}
        for arm, by_task in self.items():
            row = {task: score for task, score in by_task.items() if counts(Cell(arm, task))}
            if row:
                kept[arm] = row
        return Scores(kept, self.tasks)

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        return tuple(sorted(self))

    @cached_property
    def value(self) -> Floats:
        return self._array("score")

    @cached_property
    def stderr(self) -> Floats:
        return self._array("stderr")

    def _array(self, field: str) -> Floats:
        array = np.full((len(self.arms), len(self.tasks)), math.nan)
        for row, arm in enumerate(self.arms):
            for column, task in enumerate(self.tasks):
                if task in self[arm]:
                    array[row, column] = getattr(self[arm][task], field)
        return array

    def complete(self, tasks: Iterable[str]) -> list[Arm]:
        """The arms that were scored on all of these tasks, sorted."""
        wanted = set(tasks)
        return [arm for arm in self.arms if wanted <= self[arm].keys()]

    def mean(self, arm: Arm, weights: Mapping[str, float]) -> Estimate | None:
        """Weighted mean of an arm's raw scores, and its error.

        None if it lacks a task.
        """
        return mean_score(self.get(arm, {}), weights)

    def means(self, weights: Mapping[str, float]) -> dict[Arm, Estimate]:
        """The `mean` of each arm that was scored on every task.

        Means over other tasks are not comparable.
        """
        means = {arm: self.mean(arm, weights) for arm in self}
        return {arm: mean for arm, mean in means.items() if mean}

    def differences(
        self, arm: Arm, other: Arm, others: Scores | None = None
    ) -> dict[str, Difference]:
        """By how much an arm's score exceeds another's, by common task.

        The other one's scores are of the table ``others``, if it is given.
        """
        mine = self.get(arm, {})
        theirs = (self if others is None else others).get(other, {})
        return {
            task: difference(mine[task], theirs[task])
            for task in self.tasks
            if task in mine and task in theirs
        }

    def gain(self, arm: Arm, other: Arm, shares: Mapping[str, float]) -> Difference | None:
        """By how much an arm's mean raw score exceeds another's.

        It is over the tasks on which both were scored, with these shares; None without such a task.
        """
        gaps = self.differences(arm, other)
        shared = [task for task in shares if task in gaps]
        if not shared:
            return None
        return mean_difference(gaps, shares_of(shared, shares))


def shares_of(tasks: Iterable[str], weights: Mapping[str, float]) -> dict[str, float]:
    """Weights of tasks in means over them, with the sum 1.

    Tasks outside of the objective count equally.

    >>> shares_of(["s", "t"], {"s": 3.0, "t": 1.0, "u": 4.0}), shares_of(["v", "w"], {"s": 1.0})
    ({'s': 0.75, 't': 0.25}, {'v': 0.5, 'w': 0.5})
    """
    counted = {task: weights.get(task, 0.0) for task in tasks}
    total = sum(counted.values())
    if not total:
        return dict.fromkeys(counted, 1 / len(counted))
    return {task: weight / total for task, weight in counted.items()}
