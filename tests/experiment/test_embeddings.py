"""Embeddings of any size in limited memory."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.core.errors import DataError
from daskmetrics.experiment._embeddings import LayerEmbeddings, MemoryBudget, remove

LAYERS, TEXTS, WIDTH = (0, 2, 5), 40, 8
SIZE = 4 * len(LAYERS) * TEXTS * WIDTH


def truth(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(LAYERS), TEXTS, WIDTH)).astype(np.float32)


def filled(budget: MemoryBudget, seed: int = 0) -> LayerEmbeddings:
    """Filled in batches of scattered texts, one of which is added twice."""
    made, vectors = LayerEmbeddings(LAYERS, TEXTS, WIDTH, budget, f"key{seed}"), truth(seed)
    order = np.random.default_rng(1).permutation(TEXTS)
    made.put(order[:7], [np.zeros((len(LAYERS), 7, WIDTH), np.float32)])
    for start in range(0, TEXTS, 7):
        made.put(order[start : start + 7], [vectors[:, order[start : start + 7]]])
    return made


def holds(made: LayerEmbeddings, seed: int = 0) -> bool:
    return all((made.at(layer) == truth(seed)[i]).all() for i, layer in enumerate(LAYERS))


@pytest.mark.parametrize("limit", [SIZE, SIZE - 1, 0])
def test_vectors_are_stored_unchanged(tmp_path: Path, limit: int) -> None:
    made = filled(MemoryBudget(tmp_path, limit))
    assert holds(made)
    assert made.in_memory == (SIZE if limit == SIZE else 0)
    assert made.nbytes == SIZE


def test_memory_is_limited_and_the_longest_unused_leaves_first(tmp_path: Path) -> None:
    budget = MemoryBudget(tmp_path, 2 * SIZE)
    first, second = filled(budget, 0), filled(budget, 1)
    first.at(0)
    third = filled(budget, 2)
    assert [each.in_memory for each in (first, second, third)] == [SIZE, 0, SIZE]
    assert budget.in_memory == 2 * SIZE
    assert all(holds(each, seed) for seed, each in enumerate((first, second, third)))


def test_deleted_embeddings_free_their_memory(tmp_path: Path) -> None:
    budget = MemoryBudget(tmp_path, SIZE)
    kept, moved = filled(budget, 0), filled(budget, 1)
    assert len(list(tmp_path.iterdir())) == 1
    del kept, moved
    gc.collect()
    assert budget.in_memory == 0
    assert filled(budget, 3).in_memory == SIZE


@pytest.mark.parametrize("limit", [SIZE, 0])
def test_a_copy_outlives_its_original(tmp_path: Path, limit: int) -> None:
    """Dask keeps one of several copies, not always the first."""
    made = filled(MemoryBudget(tmp_path, limit))
    copy = pickle.loads(pickle.dumps(made))
    assert holds(copy)
    del made
    gc.collect()
    assert holds(copy)
    remove(tmp_path, "key0")
    assert list(tmp_path.iterdir()) == []


def test_missing_files_are_an_error(tmp_path: Path) -> None:
    made = filled(MemoryBudget(tmp_path, 0))
    for path in tmp_path.glob("*/*.f32"):
        path.unlink()
    with pytest.raises(DataError, match="Cannot read the embeddings"):
        made.at(2)
