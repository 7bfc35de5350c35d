"""Embeddings of any size in limited memory."""

from __future__ import annotations

import gc
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.core.errors import DataError
from daskmetrics.experiment._worker import LayerEmbeddings, remove

LAYERS, TEXTS, WIDTH = (0, 2, 5), 40, 8
SIZE = 4 * len(LAYERS) * TEXTS * WIDTH


def truth(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(LAYERS), TEXTS, WIDTH)).astype(np.float32)


def filled(folder: Path, memory: int, seed: int = 0) -> LayerEmbeddings:
    """Filled in batches of scattered texts, one of which is added twice."""
    made = LayerEmbeddings(LAYERS, TEXTS, {"": WIDTH}, folder, f"key{seed}", memory)
    vectors = truth(seed)
    order = np.random.default_rng(1).permutation(TEXTS)
    made.put(order[:7], [np.zeros((len(LAYERS), 7, WIDTH), np.float32)])
    for start in range(0, TEXTS, 7):
        made.put(order[start : start + 7], [vectors[:, order[start : start + 7]]])
    return made


def holds(made: LayerEmbeddings, seed: int = 0) -> bool:
    return all((made.at(layer) == truth(seed)[i]).all() for i, layer in enumerate(LAYERS))


@pytest.mark.parametrize("limit", [SIZE, SIZE - 1, 0])
def test_vectors_are_stored_unchanged(tmp_path: Path, limit: int) -> None:
    made = filled(tmp_path, limit)
    assert holds(made)
    assert any(tmp_path.iterdir()) == (limit < SIZE)
    assert (sys.getsizeof(made) >= SIZE) == (limit == SIZE)
    assert made.nbytes == SIZE


@pytest.mark.parametrize("limit", [SIZE, 0])
def test_a_copy_outlives_its_original(tmp_path: Path, limit: int) -> None:
    """Dask keeps one of several copies, not always the first."""
    made = filled(tmp_path, limit)
    copy = pickle.loads(pickle.dumps(made))
    assert holds(copy)
    del made
    gc.collect()
    assert holds(copy)
    remove(tmp_path, "key0")
    assert list(tmp_path.iterdir()) == []


def test_missing_files_are_an_error(tmp_path: Path) -> None:
    made = filled(tmp_path, 0)
    for path in tmp_path.glob("*/*.f32"):
        path.unlink()
    with pytest.raises(DataError, match="Cannot read the embeddings"):
        made.at(2)
