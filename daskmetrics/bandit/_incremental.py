"""The posterior of a growing search: each state reuses the factored covariance of the one before.

With few scores the hyperparameters are estimated again after each score. Later that costs too much: they are estimated
once more at `REFIT` scores, and old rows are pooled from `LIMIT` scores on. The new basis is then built in small steps,
one per score, while decisions use the old basis. So which basis a posterior uses depends on the outcomes alone, and no
decision takes long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit._kernel import CovarianceModel, fit_model, fit_model_steps
from daskmetrics.bandit._posterior import LIMIT, CholeskyFactor, ObservationRows, Posterior, pooled
from daskmetrics.bandit._problem import Floats, Ints, Observations, Outcome, OutcomeHistory, Problem

FEW = 64  #: up to this number of scores the model is estimated again for every posterior ...
REFIT = 128  #: ... and for the last time with this number
ROWS = 32  #: rows of a new basis that are factored per score
BATCH = 64  #: rows that may wait to be factored before a posterior is requested
NO_CELLS = np.zeros((0, 2), dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Basis:
    """A model, and a factor whose first rows are those of the first ``pooled`` scores, with their values."""

    model: CovarianceModel
    factor: CholeskyFactor
    rows: ObservationRows
    values: Floats
    pooled: int


class IncrementalPosterior:
    """Posteriors of one search; ``is_used`` is True once one was requested.

    Up to `FEW` scores a posterior uses a model estimated from all of them. Building a basis with a model estimated from
    more scores begins at `REFIT`. From `LIMIT` scores on a new basis, with the scores so far pooled, begins at every
    `LIMIT` / 2 further scores.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.read = OutcomeHistory().read  # the outcomes of the first cells, as arrays
        self.is_used = False
        self._reset()

    def _reset(self) -> None:
        self._last: Observations = Observations.of([])
        self._begin(self._last)
        self._next: Iterator[Basis | None] | None = None  # the basis that is being built
        self._scores: int = 0  # number of scores processed

    def update(self, cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> Observations:
        """Process new outcomes; doing so early leaves less work to the next posterior."""
        seen = self.read(cells, outcomes).scores
        # these scores extend the last ones, or are a part of them that the basis covers; otherwise start again
        last, n = self._last, min(len(self._last), len(seen))
        pairs = (last.arm, seen.arm), (last.task, seen.task), (last.score, seen.score)
        if len(seen) < self._since or not all(np.array_equal(old[:n], new[:n]) for old, new in pairs):
            self._reset()
        while self._scores < len(seen):
            self._scores += 1
            if self._scores >= FEW:
                self._step(seen.take(slice(self._scores)))
        self._last = seen if len(seen) >= len(self._last) else self._last
        if len(seen) - self._basis.pooled + len(self._basis.rows) - len(self._basis.factor) >= BATCH:
            self._factor_rows(seen.take(slice(self._basis.pooled, None)))
        return seen

    def posterior(self, cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> Posterior:
        """The posterior given the chosen cells, in order: failed cells are ignored, those without outcome pending."""
        self.is_used = True
        seen = self.update(cells, outcomes)
        if self._since < len(seen) <= FEW:
            self._begin(seen)
        basis = self._basis
        new = seen.take(slice(basis.pooled, None))  # scores that are not pooled
        self._factor_rows(new, np.array(cells[len(outcomes) :], dtype=np.intp).reshape(-1, 2))
        return basis.factor.posterior(np.append(basis.values, basis.model.values(new)))

    def _factor_rows(self, new: Observations, pending: Ints = NO_CELLS) -> None:
        """Extend the factor from the rows of the basis by these scores and the pending cells (n, 2)."""
        model, factor = self._basis.model, self._basis.factor
        cells = np.append(new.arm, pending[:, 0]), np.append(new.task, pending[:, 1])
        rows = self._basis.rows.append(ObservationRows.of(model, *cells))
        same = factor.common_rows(rows)
        factor.truncate(same)
        factor.extend(rows.take(slice(same, None)))

    def _begin(self, seen: Observations) -> None:
        """Use a basis with a model estimated from these few scores."""
        model = fit_model(self._problem, seen)
        self._basis = Basis(model, CholeskyFactor(model), *pooled(model, seen.take(slice(0)), LIMIT), pooled=0)
        self._since = len(seen)  # number of scores from which on the basis is in use

    def _step(self, seen: Observations) -> None:
        """Process one more score: start to build a basis if one is due, or continue with the one being built."""
        if len(seen) == FEW:
            self._begin(seen)
        elif is_due(len(seen)):
            known = self._basis.model if len(seen) > REFIT else None
            self._next = _build_basis(self._problem, seen, known)
        finished = next(self._next) if self._next else None
        if finished is not None:
            self._basis, self._next, self._since = finished, None, self._scores


def is_due(scores: int) -> bool:
    """Whether building a new basis starts at this number of scores.

    >>> [n for n in range(2000) if is_due(n)]
    [128, 750, 1125, 1500, 1875]
    """
    return scores == REFIT or (scores >= LIMIT and scores % (LIMIT // 2) == 0)


def _build_basis(problem: Problem, seen: Observations, model: CovarianceModel | None) -> Iterator[Basis | None]:
    """Build a basis in steps: None after each step, then the basis."""
    if model is None:
        for model in fit_model_steps(problem, seen):  # noqa: B007
            yield None
    assert model is not None
    old = seen.take(slice(len(seen) if len(seen) >= LIMIT else 0))
    rows, values = pooled(model, old, LIMIT // 2)
    every = rows.append(ObservationRows.of(model, seen.arm[len(old) :], seen.task[len(old) :]))
    factor = CholeskyFactor(model)
    for first in range(0, len(every), ROWS):
        if first:
            yield None
        factor.extend(every.take(slice(first, first + ROWS)))
    yield Basis(model, factor, rows, values, len(old))
