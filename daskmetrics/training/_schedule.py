"""The learning rate of every step."""

from __future__ import annotations

import math

from daskmetrics.config import Recipe


def peak(recipe: Recipe) -> float:
    """The greatest learning rate: the recipe's, scaled by its number of ranks.

    Linear scaling follows Goyal et al. (2017), square-root scaling Krizhevsky (2014). The planned number of ranks
    counts: with fewer ranks, a step still uses the same examples.

    >>> [peak(Recipe(learning_rate=0.1, ranks=4, scale_learning_rate=how)) for how in ("none", "linear", "sqrt")]
    [0.1, 0.4, 0.2]
    """
    factor = {"none": 1.0, "linear": float(recipe.ranks), "sqrt": math.sqrt(recipe.ranks)}
    return recipe.learning_rate * factor[recipe.scale_learning_rate]


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step: a linear warm-up, then a cosine, linear or constant schedule down to the floor.

    >>> recipe = Recipe(steps=512, learning_rate=1.0)
    >>> [round(learning_rate(recipe, step), 3) for step in (1, 32, 272, 512)]
    [0.031, 1.0, 0.55, 0.1]
    >>> linear = recipe.model_copy(update={"schedule": "linear", "floor": 0.0})
    >>> [learning_rate(linear, step) for step in (272, 512)]
    [0.5, 0.0]
    """
    top, warm = peak(recipe), max(1, int(recipe.steps * recipe.warmup))
    if step <= warm:
        return top * step / warm
    done = (step - warm) / (recipe.steps - warm)
    left = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}[recipe.schedule]
    floor = recipe.floor if recipe.schedule != "constant" else 1.0
    return top * (floor + (1 - floor) * left)
