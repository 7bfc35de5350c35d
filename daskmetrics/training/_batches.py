"""The examples of each step and their division among ranks: functions of the seed and the step alone.

Training can therefore stop at any step and resume with another number of ranks on the same examples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskmetrics.config import Recipe
from daskmetrics.core.names import seed_of


def effective(recipe: Recipe) -> int:
    """The effective batch: the number of sequences in a step.

    Examples
    --------
    >>> effective(Recipe(batch=8, accumulate=2, ranks=4))
    64
    """
    return recipe.batch * recipe.accumulate * recipe.ranks


def examples(recipe: Recipe, count: int, step: int) -> NDArray[np.int64]:
    """The examples of a step, shape (effective batch,), each from 0 to ``count - 1``.

    Windows of packed tokens are drawn at random; labelled texts are shuffled again for every pass over them.

    Parameters
    ----------
    recipe : Recipe
    count : int
        Number of examples in the corpus.
    step : int
        From 1 to ``recipe.steps``; 0 gives the examples on which all revisions are evaluated.

    Examples
    --------
    >>> recipe = Recipe(objective="classification", corpus="reviews.csv", batch=4)
    >>> sorted(np.concatenate([examples(recipe, 8, step) for step in (1, 2)]).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    size = effective(recipe)
    if step == 0 or recipe.objective == "next-token":
        generator = np.random.default_rng(seed_of("batch", recipe.seed, step))
        return generator.integers(0, count, size=size)
    places = np.arange((step - 1) * size, step * size)
    orders = {turn: _order(recipe, count, turn) for turn in np.unique(places // count).tolist()}
    return np.array([orders[place // count][place % count] for place in places.tolist()], dtype=np.int64)


def _order(recipe: Recipe, count: int, turn: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed_of("pass", recipe.seed, turn)).permutation(count)


def share(size: int, rank: int, world: int) -> slice:
    """The consecutive examples of a step that a rank takes; shares differ by one example at most.

    Examples
    --------
    >>> [share(8, rank, 3) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
    """
    base, extra = divmod(size, world)
    start = rank * base + min(rank, extra)
    return slice(start, start + base + (rank < extra))


def passes(count: int, batch: int) -> list[slice]:
    """A rank's examples, divided into passes of at most ``batch`` examples.

    Examples
    --------
    >>> passes(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + batch, count)) for start in range(0, count, batch)]
