"""What a search need not work out again: each posterior grows from the one before it.

While scores are few, each may change what the others mean: the model is learnt anew from all of them. Later that is
dear beside one more row, and is done now and then, as old rows are pooled now and then. The new basis is then built a
step with every score, while decisions rest on the old one. Which basis a posterior rests on is thus a function of the
outcomes alone, and no decision waits long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._kernel import Model, learn, learning
from daskmetrics.bandit._observations import Answers, Book
from daskmetrics.bandit._posterior import LIMIT, Factor, Posterior, Rows, pooled
from daskmetrics.bandit._problem import Floats, Ints, Observations, Outcome, Problem

SOON = 64  #: scores up to which the model is learnt anew for every posterior ...
LEARN = 128  #: ... and those that it is learnt from last
TRIES = 8  #: likenesses tried with one score
ROWS = 32  #: rows of a new basis that are factored with one score
BATCH = 64  #: scores that are factored before a posterior is asked for
NONE = np.zeros((0, 2), dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Basis:
    """A model, and a factor that begins with the rows of the first ``pooled`` scores and their values."""

    model: Model
    factor: Factor
    rows: Rows
    values: Floats
    pooled: int


class Memory:
    """Posteriors of one search; ``is_used`` says whether one was asked for.

    Up to `SOON` scores a posterior rests on a model learnt from all of them. A basis with a model learnt from more is
    begun at `LEARN`; from `LIMIT` scores on one is begun whenever there are half as many more, which are then pooled.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._book = Book()
        self.is_used = False
        self._basis: Basis
        self._next: Iterator[Basis | None] | None
        self._last: Observations
        self._scores: int  # that were taken in
        self._since: int  # scores from which on the basis is in use
        self._forget()

    def answers(self, cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> Answers:
        """Of the first cells, as many as there are outcomes."""
        return self._book.answers(cells, outcomes)

    def take_in(self, cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> Observations:
        """Go on with what is built with every score, for these; to do so early leaves less to the next posterior."""
        seen = self.answers(cells, outcomes).scores
        if not self._follows(seen):
            self._forget()
        while self._scores < len(seen):
            self._scores += 1
            if self._scores >= SOON:
                self._step(_part(seen, 0, self._scores))
        self._last = seen if len(seen) >= len(self._last) else self._last
        if len(seen) - self._basis.pooled + len(self._basis.rows) - len(self._basis.factor) >= BATCH:
            self._lay_down(self._fresh(seen))
        return seen

    def posterior(self, cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> Posterior:
        """Of the cells asked for, in order; those beyond the outcomes are pending, and failed ones do not count."""
        self.is_used = True
        seen = self.take_in(cells, outcomes)
        if self._since < len(seen) <= SOON:
            self._begin(seen)
        fresh = self._fresh(seen)
        late = np.array(cells[len(outcomes) :], dtype=np.intp).reshape(-1, 2)
        self._lay_down(fresh, late)
        basis = self._basis
        return basis.factor.posterior(np.append(basis.values, basis.model.values(fresh)))

    def _fresh(self, seen: Observations) -> Observations:
        """The scores that are not pooled."""
        return _part(seen, self._basis.pooled, len(seen))

    def _lay_down(self, fresh: Observations, late: Ints = NONE) -> None:
        """Make the factor's rows those of the basis, of these scores and of the pending cells (n, 2)."""
        model, factor = self._basis.model, self._basis.factor
        apart = Rows.of(model, np.append(fresh.arm, late[:, 0]), np.append(fresh.task, late[:, 1]))
        rows = self._basis.rows.with_more(apart)
        same = factor.agrees(rows)
        factor.cut(same)
        factor.extend(rows.part(same, len(rows)))

    def _follows(self, seen: Observations) -> bool:
        """Whether these scores are the known ones and more, or those that the basis rests on."""
        last, n = self._last, min(len(self._last), len(seen))
        return len(seen) >= self._since and all(
            np.array_equal(mine[:n], theirs[:n])
            for mine, theirs in ((last.arm, seen.arm), (last.task, seen.task), (last.score, seen.score))
        )

    def _forget(self) -> None:
        self._begin(Observations.of([]))
        self._next, self._last = None, Observations.of([])
        self._scores = 0

    def _begin(self, seen: Observations) -> None:
        """Rest on these few scores from here on."""
        model = learn(self._problem, seen)
        nothing = _part(seen, 0, 0)
        self._basis = Basis(model, Factor(model), *pooled(model, nothing, LIMIT), pooled=0)
        self._since = len(seen)

    def _step(self, seen: Observations) -> None:
        """Take in one score more: begin a basis if it is time, or go on with one that was begun."""
        if len(seen) == SOON:
            self._begin(seen)
        elif is_due(len(seen)):
            known = self._basis.model if len(seen) > LEARN else None
            self._next = _built(self._problem, seen, known)
        done = next(self._next) if self._next else None
        if done is not None:
            self._basis, self._next, self._since = done, None, self._scores


def is_due(scores: int) -> bool:
    """Whether a basis is begun, to be built by and by, at so many scores.

    Examples
    --------
    >>> [n for n in range(2000) if is_due(n)]
    [128, 1000, 1500]
    """
    return scores == LEARN or (scores >= LIMIT and scores % (LIMIT // 2) == 0)


def _built(problem: Problem, seen: Observations, model: Model | None) -> Iterator[Basis | None]:
    """A new basis after some steps; None after each one before."""
    if model is None:
        for tried, model in enumerate(learning(problem, seen), 1):  # noqa: B007
            if tried % TRIES == 0:
                yield None
    assert model is not None
    old = _part(seen, 0, len(seen) if len(seen) >= LIMIT else 0)
    rows, values = pooled(model, old, LIMIT // 2)
    every = rows.with_more(Rows.of(model, seen.arm[len(old) :], seen.task[len(old) :]))
    factor = Factor(model)
    for first in range(0, len(every), ROWS):
        if first:
            yield None
        factor.extend(every.part(first, first + ROWS))
    yield Basis(model, factor, rows, values, len(old))


def _part(seen: Observations, first: int, last: int) -> Observations:
    some = slice(first, last)
    return Observations(seen.arm[some], seen.task[some], seen.score[some], seen.stderr[some])
