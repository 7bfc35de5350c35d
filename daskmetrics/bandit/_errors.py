"""The part of a score's error that decides: what the scores of other arms do not share."""

from __future__ import annotations

import math

import numpy as np

from daskmetrics.bandit.problem import Floats
from daskmetrics.core.keys import Key
from daskmetrics.domain.outcomes import unpack
from daskmetrics.domain.results import Outcomes


class OwnErrors:
    """Own errors of a search's scores, in the order in which they are added.

    All arms are scored on the same n items, so much of the chance in their scores is common to all
    and changes no order. Of independent scores a and b the variance of a - b is twice that of one:
    the own error of a score is sqrt(mean_j var(x - x_j) / (2 n)), with its outcomes x and those x_j
    of the earlier scores on its task. The first score of a task, and one whose outcomes are of
    other items or unknown, keep their error as it is stated.
    """

    def __init__(self) -> None:
        # of the scores of a task on the same items: sum of outcomes, of their variances, number
        self._earlier: dict[tuple[int, Key, int], tuple[Floats, float, int]] = {}

    def add(self, task: int, stderr: float, of_items: Outcomes | None) -> float:
        """The own error of a further score."""
        if of_items is None or of_items.n < 2:
            return stderr
        x = unpack(of_items)
        variance = float(x.var(ddof=1))
        items = task, of_items.items, of_items.n
        total, variances, count = self._earlier.get(items, (np.zeros(len(x)), 0.0, 0))
        self._earlier[items] = total + x, variances + variance, count + 1
        if not count:
            return stderr
        shared = float(np.cov(x, total / count)[0, 1])
        own = (variance + variances / count) / 2 - shared
        # equal outcomes of n items need not be equal on others: Laplace's rule of succession
        least = stderr / math.sqrt(len(x) + 2)
        return max(math.sqrt(max(0.0, own) / len(x)), least)
