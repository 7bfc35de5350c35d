from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.config import Recipe
from daskmetrics.training.batches import batch, learning_rate

TOKENS = np.arange(100, dtype=np.int32)


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    recipe = Recipe(batch=8, context=16)
    again = Recipe(batch=8, context=16, learning_rate=1.0)
    assert (batch(TOKENS, recipe, 3) == batch(TOKENS, again, 3)).all()
    assert (batch(TOKENS, recipe, 3) != batch(TOKENS, recipe, 4)).any()
    assert (batch(TOKENS, recipe, 3) != batch(TOKENS, Recipe(batch=8, context=16, seed=1), 3)).any()


def test_windows_are_consecutive_tokens() -> None:
    windows = batch(TOKENS, Recipe(batch=64, context=16), 1)
    assert windows.shape == (64, 17)
    assert (np.diff(windows) == 1).all()


def test_a_corpus_just_longer_than_the_context_will_do() -> None:
    assert (batch(TOKENS[:17], Recipe(batch=2, context=16), 1) == np.arange(17)).all()


@pytest.mark.parametrize("steps", [1, 2, 15, 512])
def test_the_rate_rises_to_the_peak_and_falls_to_a_tenth(steps: int) -> None:
    recipe = Recipe(steps=steps, learning_rate=2.0)
    rates = [learning_rate(recipe, step) for step in range(1, steps + 1)]
    peak = rates.index(max(rates))
    assert max(rates) == 2.0
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert steps == 1 or rates[-1] == pytest.approx(0.2)
