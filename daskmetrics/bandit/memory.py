"""What a search need not work out again: each posterior grows from the one before it.

It changes how long a posterior takes and nothing else: which model it rests on is a function of the outcomes alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskmetrics.bandit.kernel import learn
from daskmetrics.bandit.posterior import LIMIT, Factor, Posterior, Rows, pooled
from daskmetrics.bandit.problem import Floats, Observations, Outcome, Problem

LEARN = 128  #: scores after which the model is settled


class Memory:
    """Posteriors of one search.

    The model is learnt anew whenever the number of scores has doubled, up to `LEARN`; from `LIMIT` scores on, the older
    ones are pooled into half as many rows, again and again.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._epoch = -1
        self._factor: Factor
        self._base: tuple[Rows, Floats]
        self._apart = 0

    def posterior(self, cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> Posterior:
        """Of the cells asked for, in order; those beyond the outcomes are pending, and failed ones do not count."""
        seen = _scores(cells, outcomes)
        self._begin(seen)
        model = self._factor.model
        base, values = self._base
        fresh = _tail(seen, self._apart)
        late = np.array(cells[len(outcomes) :], dtype=np.intp).reshape(-1, 2)
        apart = Rows.of(model, np.append(fresh.arm, late[:, 0]), np.append(fresh.task, late[:, 1]))
        rows = _joined(base, apart)
        same = self._factor.agrees(rows)
        self._factor.cut(same)
        self._factor.extend(Rows(rows.arm[same:], rows.mix[same:], rows.noise[same:]))
        return self._factor.posterior(np.append(values, model.values(fresh)))

    def _begin(self, seen: Observations) -> None:
        """Learn the model and pool the rows that belong to so many scores, if that was not done already."""
        learnt, pool = epochs(len(seen))
        if self._epoch == learnt + pool:
            return
        model = learn(self._problem, _head(seen, learnt))
        self._factor, self._epoch, self._apart = Factor(model), learnt + pool, pool
        self._base = pooled(model, _head(seen, pool), LIMIT // 2)


def epochs(known: int) -> tuple[int, int]:
    """How many of the known scores the model is learnt from, and how many are pooled.

    Examples
    --------
    >>> [epochs(n) for n in (0, 5, 300, 999, 1000, 1600)]
    [(0, 0), (4, 0), (128, 0), (128, 0), (128, 1000), (128, 1500)]
    """
    learnt = min(1 << (known.bit_length() - 1), LEARN) if known else 0
    return learnt, known // (LIMIT // 2) * (LIMIT // 2) if known >= LIMIT else 0


def _scores(cells: Sequence[tuple[int, int]], outcomes: Sequence[Outcome]) -> Observations:
    """In the order of the decisions."""
    pairs = zip(cells, outcomes, strict=False)
    rows = [(arm, task, one.score, one.stderr) for (arm, task), one in pairs if one.score is not None]
    arm, task, score, stderr = np.array(rows, dtype=float).reshape(-1, 4).T
    return Observations(arm.astype(np.intp), task.astype(np.intp), score.copy(), stderr.copy())


def _head(seen: Observations, n: int) -> Observations:
    return Observations(seen.arm[:n], seen.task[:n], seen.score[:n], seen.stderr[:n])


def _tail(seen: Observations, n: int) -> Observations:
    return Observations(seen.arm[n:], seen.task[n:], seen.score[n:], seen.stderr[n:])


def _joined(one: Rows, other: Rows) -> Rows:
    return Rows(np.append(one.arm, other.arm), np.vstack([one.mix, other.mix]), np.append(one.noise, other.noise))
