"""Outcomes as columns, which grow as outcomes come in: late in a long search no decision reads all of them anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from daskmetrics.bandit._problem import Bools, Floats, Ints, Observations, Outcome


@dataclass(frozen=True, eq=False)
class Answers:
    """Cells that were answered, in the order of their outcomes (n,): score NaN where failed, seconds where not told.

    Examples
    --------
    >>> answers = Answers.of([((3, 0), Outcome(0.5, 0.1)), ((1, 0), Outcome(None)), ((1, 1), Outcome(0.4))])
    >>> answers.scores.arm.tolist(), answers.failed.tolist()
    ([3, 1], [False, True, False])
    """

    arm: Ints
    task: Ints
    score: Floats
    stderr: Floats
    seconds: Floats

    @classmethod
    def of(cls, answered: Iterable[tuple[tuple[int, int], Outcome]]) -> Answers:
        """From cells (arm, task) with what became of them."""
        rows = [(*cell, one.score, one.stderr, one.seconds) for cell, one in answered]
        arm, task, score, stderr, seconds = np.array(rows, dtype=float).reshape(-1, 5).T
        return cls(arm.astype(np.intp), task.astype(np.intp), score.copy(), stderr.copy(), seconds.copy())

    @property
    def failed(self) -> Bools:
        """Which gave no score (n,)."""
        return np.isnan(self.score)

    @property
    def scores(self) -> Observations:
        """Those that gave a score, in the same order."""
        some = ~self.failed
        return Observations(self.arm[some], self.task[some], self.score[some], self.stderr[some])

    def __len__(self) -> int:
        return len(self.arm)

    def part(self, n: int) -> Answers:
        """The first n."""
        return Answers(*(getattr(self, one.name)[:n] for one in fields(self)))

    def with_more(self, more: Answers) -> Answers:
        return Answers(*(np.append(getattr(self, one.name), getattr(more, one.name)) for one in fields(self)))


class Book:
    """The answers that were read last; further ones are added to them."""

    def __init__(self) -> None:
        self._cells: list[tuple[int, int]] = []
        self._outcomes: list[Outcome] = []
        self._answers = Answers.of([])

    def answers(self, cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> Answers:
        """Of the first cells, as many as there are outcomes."""
        cells, outcomes = list(cells[: len(outcomes)]), list(outcomes)
        same = min(len(cells), len(self._cells))
        if cells[:same] != self._cells[:same] or outcomes[:same] != self._outcomes[:same]:
            same, self._answers = 0, Answers.of([])
        if same == len(cells) < len(self._cells):
            return self._answers.part(same)
        self._answers = self._answers.with_more(Answers.of(zip(cells[same:], outcomes[same:], strict=True)))
        self._cells, self._outcomes = cells, outcomes
        return self._answers
