"""The learning rate of every step."""

from __future__ import annotations

import math

from daskmetrics.config import Recipe

FLOOR = 0.1  # of the learning rate at the end, as a share of its peak
WARMUP = 1 / 16  # share of the steps during which it rises


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step: a linear warm-up, then a cosine down to the floor.

    >>> recipe = Recipe(steps=512, learning_rate=1.0)
    >>> [round(learning_rate(recipe, step), 3) for step in (1, 32, 272, 512)]
    [0.031, 1.0, 0.55, 0.1]
    """
    warm = max(1, int(recipe.steps * WARMUP))
    if step <= warm:
        return recipe.learning_rate * step / warm
    done = (step - warm) / (recipe.steps - warm)
    remaining = (1 + math.cos(math.pi * done)) / 2
    return recipe.learning_rate * (FLOOR + (1 - FLOOR) * remaining)
