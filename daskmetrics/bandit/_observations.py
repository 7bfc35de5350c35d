"""Outcomes as arrays that grow with each outcome, so that a late decision does not convert all of them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from daskmetrics.bandit._problem import Bools, Floats, Ints, Observations, Outcome


@dataclass(frozen=True, eq=False)
class OutcomeArrays:
    """Finished cells with their outcomes, in order (n,): score NaN where the cell failed, seconds NaN where unknown.

    Examples
    --------
    >>> outcomes = OutcomeArrays.of([((3, 0), Outcome(0.5, 0.1)), ((1, 0), Outcome(None)), ((1, 1), Outcome(0.4))])
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
        rows = [(*cell, outcome.score, outcome.stderr, outcome.seconds) for cell, outcome in finished]
        arm, task, score, stderr, seconds = np.array(rows, dtype=float).reshape(-1, 5).T
        return cls(arm.astype(np.intp), task.astype(np.intp), score.copy(), stderr.copy(), seconds.copy())

    @property
    def failed(self) -> Bools:
        """Cells without a score (n,)."""
        return np.isnan(self.score)

    @property
    def scores(self) -> Observations:
        """The cells with a score, in the same order."""
        ok = ~self.failed
        return Observations(self.arm[ok], self.task[ok], self.score[ok], self.stderr[ok])

    def __len__(self) -> int:
        return len(self.arm)

    def first(self, n: int) -> OutcomeArrays:
        return OutcomeArrays(*(getattr(self, column.name)[:n] for column in fields(self)))

    def append(self, more: OutcomeArrays) -> OutcomeArrays:
        names = [column.name for column in fields(self)]
        return OutcomeArrays(*(np.append(getattr(self, name), getattr(more, name)) for name in names))


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
            same, self._arrays = 0, OutcomeArrays.of([])
        if same == len(cells) < len(self._cells):
            return self._arrays.first(same)
        self._arrays = self._arrays.append(OutcomeArrays.of(zip(cells[same:], outcomes[same:], strict=True)))
        self._cells, self._outcomes = cells, outcomes
        return self._arrays
