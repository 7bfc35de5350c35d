from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.config import Recipe
from daskmetrics.training.data import examples, passes, share

LABELLED = {"objective": "classification", "corpus": "a.csv"}


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
    taken = [
        place
        for rank in range(world)
        for share_ in [np.arange(7)[share(7, rank, world)]]
        for part in passes(len(share_), 2)
        for place in share_[part].tolist()
    ]
    assert taken == list(range(7))


def test_every_pass_over_labelled_texts_is_complete_and_shuffled_again() -> None:
    recipe = Recipe(**LABELLED, batch=3)
    drawn = np.concatenate([examples(recipe, 7, step) for step in range(1, 15)])
    turns = drawn[: 7 * 6].reshape(6, 7)
    assert (np.sort(turns) == np.arange(7)).all()
    assert len({tuple(turn) for turn in turns.tolist()}) > 1


def test_a_step_may_be_larger_than_the_corpus() -> None:
    recipe = Recipe(**LABELLED, batch=8)
    assert sorted(examples(recipe, 2, 1).tolist()) == [0, 0, 0, 0, 1, 1, 1, 1]
