from __future__ import annotations

import pytest

from daskmetrics.config import Recipe
from daskmetrics.training._learning import learning_rate


@pytest.mark.parametrize("steps", [1, 2, 15, 512])
def test_the_rate_rises_to_the_peak_and_falls_to_a_tenth(steps: int) -> None:
    recipe = Recipe(steps=steps, learning_rate=2.0)
    rates = [learning_rate(recipe, step) for step in range(1, steps + 1)]
    peak = rates.index(max(rates))
    assert max(rates) == 2.0
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert steps == 1 or rates[-1] == pytest.approx(0.2)
