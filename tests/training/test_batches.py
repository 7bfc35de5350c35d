from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.config import Recipe
from daskmetrics.training.data import examples, passes

TOKENS = np.arange(500, dtype=np.int32)


def test_the_examples_depend_on_seed_and_step_alone() -> None:
    recipe = Recipe(batch=8, context=16)
    again = Recipe(batch=8, context=16, learning_rate=1.0)
    assert (examples(recipe, 100, 3) == examples(again, 100, 3)).all()
    assert (examples(recipe, 100, 3) != examples(recipe, 100, 4)).any()
    assert (examples(recipe, 100, 3) != examples(Recipe(batch=8, context=16, seed=1), 100, 3)).any()


def test_ranks_and_passes_divide_the_same_step() -> None:
    """Two ranks of two passes of four learn from what one rank learns from in one pass of sixteen."""
    divided, whole = Recipe(batch=4, accumulate=2, ranks=2), Recipe(batch=16)
    assert (examples(divided, 100, 7) == examples(whole, 100, 7)).all()


@pytest.mark.parametrize("world", [1, 2, 3, 5, 7])
def test_each_example_has_one_rank_and_one_pass(world: int) -> None:
    recipe = Recipe(batch=2, accumulate=7, context=8)
    batches = [batch for rank in range(world) for batch in passes(recipe, TOKENS, 1, rank, world)]
    assert max(map(len, batches)) <= recipe.batch
    starts = examples(recipe, 500 - 8, 1)
    expected = starts[:, None] + np.arange(9)  # the tokens are their own places
    np.testing.assert_array_equal(np.concatenate(batches), expected)
