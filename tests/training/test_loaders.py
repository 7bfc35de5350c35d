from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.config import Recipe
from daskmetrics.training._distributed import SINGLE, World
from daskmetrics.training._loaders import RankSteps, read_steps
from daskmetrics.training.data import Windows

SOURCE = Windows(np.arange(500, dtype=np.int32), 8)
RECIPE = Recipe(batch=2, accumulate=2, context=8, steps=20)


@pytest.mark.parametrize("count", [1, 2])
def test_loaders_give_the_same_steps(count):
    steps = RankSteps(RECIPE, SOURCE, SINGLE)
    for (step, direct), (step_ahead, ahead) in zip(
        read_steps(steps, 1, 20, 0), read_steps(steps, 1, 20, count), strict=True
    ):
        assert step == step_ahead and len(direct) == len(ahead) == 2
        for batch, batch_ahead in zip(direct, ahead, strict=True):
            assert (batch["ids"] == np.asarray(batch_ahead["ids"])).all()


def test_ranks_read_their_own_parts():
    ranks = [RankSteps(RECIPE, SOURCE, World(rank, 3))[5] for rank in range(3)]
    ids = [batch["ids"] for batches in ranks for batch in batches]
    whole = [batch["ids"] for batch in RankSteps(RECIPE, SOURCE, SINGLE)[5]]
    assert (np.concatenate(ids) == np.concatenate(whole)).all()
