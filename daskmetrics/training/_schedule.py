"""The learning rate of every step."""

from __future__ import annotations

import math

from daskmetrics.config import Recipe

FLOOR = 0.1  # of the learning rate at the end, as a share of its peak


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step: a linear warm-up, then a cosine, linear or constant schedule
    down to the floor.

    >>> recipe = Recipe(steps=512, learning_rate=1.0)
    >>> [round(learning_rate(recipe, step), 3) for step in (1, 32, 272, 512)]
    [0.031, 1.0, 0.55, 0.1]
    >>> linear = recipe.model_copy(update={"schedule": "linear"})
    >>> [round(learning_rate(linear, step), 3) for step in (272, 512)]
    [0.55, 0.1]
    """
    warm = max(1, int(recipe.steps * recipe.warmup))
    if step <= warm:
        return recipe.learning_rate * step / warm
    done = (step - warm) / (recipe.steps - warm)
    if recipe.schedule == "constant":
        return recipe.learning_rate
    remaining = 1 - done
    if recipe.schedule == "cosine":
        remaining = (1 + math.cos(math.pi * done)) / 2
    return recipe.learning_rate * (FLOOR + (1 - FLOOR) * remaining)
