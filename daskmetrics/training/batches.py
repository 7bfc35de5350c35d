"""Which tokens make up step n: a function of the seed and the step alone, so that training can stop anywhere."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from daskmetrics.arms import seed_of
from daskmetrics.config import Recipe


def batch(tokens: NDArray[np.int32], recipe: Recipe, step: int) -> NDArray[np.int64]:
    """The windows of packed tokens that step `step` learns from.

    Parameters
    ----------
    tokens : ndarray, shape (tokens,)
    recipe : Recipe
    step : int
        From 1 to ``recipe.steps``; 0 gives the batch by which all revisions are compared.

    Returns
    -------
    ndarray, shape (batch, context + 1)
        Inputs are all columns but the last, targets all but the first.

    Examples
    --------
    >>> recipe = Recipe(batch=2, context=8)
    >>> batch(np.arange(100, dtype=np.int32), recipe, 1).shape
    (2, 9)
    """
    generator = np.random.default_rng(seed_of("batch", recipe.seed, step))
    starts = generator.integers(0, len(tokens) - recipe.context, size=recipe.batch)
    windows: NDArray[np.int32] = tokens[starts[:, None] + np.arange(recipe.context + 1)]
    return windows.astype(np.int64)


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up over the first sixteenth of the steps, then a cosine down to a tenth of the peak.

    Examples
    --------
    >>> recipe = Recipe(steps=512, learning_rate=1.0)
    >>> [round(learning_rate(recipe, step), 3) for step in (1, 32, 272, 512)]
    [0.031, 1.0, 0.55, 0.1]
    """
    warm = max(1, recipe.steps // 16)
    if step <= warm:
        return recipe.learning_rate * step / warm
    done = (step - warm) / (recipe.steps - warm)
    return recipe.learning_rate * (0.55 + 0.45 * math.cos(math.pi * done))
