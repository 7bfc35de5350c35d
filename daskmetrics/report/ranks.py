"""Rank correlation, without a library that takes a second to import."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rho: Pearson's correlation of the ranks, ties sharing their mean rank; NaN if a side is constant.

    Examples
    --------
    >>> round(rank_correlation([1, 2, 3, 4], [10, 20, 40, 30]), 3)
    0.8
    """
    ranks = np.array([_ranks(np.asarray(values, dtype=float)) for values in (a, b)])
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    norm = float(np.sqrt((centred**2).sum(axis=1).prod()))
    return float((centred[0] * centred[1]).sum()) / norm if norm else float("nan")


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[inverse])
