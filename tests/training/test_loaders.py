from __future__ import annotations

import time

import numpy as np
import pytest

from daskmetrics.config import Recipe
from daskmetrics.training import _loaders as loaders
from daskmetrics.training._data import Windows
from daskmetrics.training._distributed import SINGLE, World

TOKENS = np.arange(500, dtype=np.int32)
RECIPE = Recipe(batch=2, accumulate=2, context=8, steps=20)


def drawn(loader: loaders.Loader, seconds: float = 0.0) -> list[np.ndarray]:
    steps = []
    for step, batches in loader.steps(1, 20):
        time.sleep(seconds)
        loader.computed()
        assert len(batches) == 2 and step == len(steps) + 1
        steps.append(np.concatenate([np.asarray(batch["ids"]) for batch in batches]))
    return steps


@pytest.mark.parametrize("count", [1, 2])
def test_loaders_give_the_same_steps(count):
    direct = drawn(loaders.Loader(RECIPE, Windows(TOKENS, 8), SINGLE, 0))
    ahead = drawn(loaders.Loader(RECIPE, Windows(TOKENS, 8), SINGLE, count))
    assert all((a == b).all() for a, b in zip(direct, ahead, strict=True))


def test_fast_reading_needs_no_loader():
    loader = loaders.Loader(RECIPE, Windows(TOKENS, 8), SINGLE, "measured")
    drawn(loader, seconds=0.02)
    assert loader.count == 0


class Slow(Windows):
    """Reading takes longer than computing."""

    def take(self, which):
        time.sleep(0.01)
        return super().take(which)


def test_slow_reading_is_measured_and_gets_loaders(monkeypatch):
    monkeypatch.setattr(loaders.os, "sched_getaffinity", lambda _: set(range(8)))
    loader = loaders.Loader(RECIPE, Slow(TOKENS, 8), SINGLE, "measured")
    steps = drawn(loader, seconds=0.01)
    assert 1 <= loader.count <= 7
    assert (steps[-1] == drawn(loaders.Loader(RECIPE, Windows(TOKENS, 8), SINGLE, 0))[-1]).all()


def test_ranks_read_their_own_parts():
    parts = [loaders.Loader(RECIPE, Windows(TOKENS, 8), World(rank, 3), 0).steps_of_rank[5] for rank in range(3)]
    whole = loaders.Loader(RECIPE, Windows(TOKENS, 8), SINGLE, 0).steps_of_rank[5]
    ids = [np.concatenate([batch["ids"] for rank in ranks for batch in rank]) for ranks in (parts, [whole])]
    assert (ids[0] == ids[1]).all()
