"""Which examples make up a step, and which rank takes which: functions of the seed and the step alone.

Training can therefore stop anywhere, and go on with fewer or more ranks on the very same examples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daskmetrics.config import Recipe
from daskmetrics.core.names import seed_of


def effective(recipe: Recipe) -> int:
    """Sequences that a step learns from.

    Examples
    --------
    >>> effective(Recipe(batch=8, accumulate=2, ranks=4))
    64
    """
    return recipe.batch * recipe.accumulate * recipe.ranks


def examples(recipe: Recipe, count: int, step: int) -> NDArray[np.int64]:
    """The examples of a step, shape (effective batch,), each from 0 to ``count - 1``.

    Windows of packed tokens are drawn at random; labelled texts are shuffled anew for every pass over them.

    Parameters
    ----------
    recipe : Recipe
    count : int
        How many there are.
    step : int
        From 1 to ``recipe.steps``; 0 gives the examples by which all revisions are compared.

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
    """The part of a step's examples that a rank takes: neighbours, and as many as any other rank to within one.

    Examples
    --------
    >>> [share(8, rank, 3) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
    """
    least, more = divmod(size, world)
    start = rank * least + min(rank, more)
    return slice(start, start + least + (rank < more))


def passes(count: int, batch: int) -> list[slice]:
    """A rank's examples cut into passes of at most ``batch``.

    Examples
    --------
    >>> passes(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + batch, count)) for start in range(0, count, batch)]
