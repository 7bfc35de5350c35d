"""Embeddings of any size in a bounded memory."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.core.errors import DataError
from daskmetrics.experiment._embeddings import Embeddings, Shelf, remove

LAYERS, TEXTS, WIDTH = (0, 2, 5), 40, 8
SIZE = 4 * len(LAYERS) * TEXTS * WIDTH


def truth(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(LAYERS), TEXTS, WIDTH)).astype(np.float32)


def filled(shelf: Shelf, seed: int = 0) -> Embeddings:
    """In batches of scattered rows, one of which comes twice."""
    made, vectors = Embeddings(LAYERS, TEXTS, WIDTH, shelf, f"key{seed}"), truth(seed)
    order = np.random.default_rng(1).permutation(TEXTS)
    made.put(order[:7], np.zeros((len(LAYERS), 7, WIDTH), np.float32))
    for start in range(0, TEXTS, 7):
        made.put(order[start : start + 7], vectors[:, order[start : start + 7]])
    return made


def holds(made: Embeddings, seed: int = 0) -> bool:
    return all((made.at(layer) == truth(seed)[i]).all() for i, layer in enumerate(LAYERS))


@pytest.mark.parametrize("budget", [SIZE, SIZE - 1, 0])
def test_what_goes_in_comes_out(tmp_path: Path, budget: int) -> None:
    made = filled(Shelf(tmp_path, budget))
    assert holds(made)
    assert made.in_memory == (SIZE if budget == SIZE else 0)
    assert made.nbytes == SIZE


def test_memory_is_bounded_and_the_longest_unused_goes_first(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 2 * SIZE)
    first, second = filled(shelf, 0), filled(shelf, 1)
    first.at(0)
    third = filled(shelf, 2)
    assert [each.in_memory for each in (first, second, third)] == [SIZE, 0, SIZE]
    assert shelf.in_memory == 2 * SIZE
    assert all(holds(each, seed) for seed, each in enumerate((first, second, third)))


def test_what_is_released_makes_room(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, SIZE)
    kept, moved = filled(shelf, 0), filled(shelf, 1)
    assert len(list(tmp_path.iterdir())) == 1
    del kept, moved
    gc.collect()
    assert shelf.in_memory == 0
    assert filled(shelf, 3).in_memory == SIZE


@pytest.mark.parametrize("budget", [SIZE, 0])
def test_a_copy_outlives_what_it_was_made_from(tmp_path: Path, budget: int) -> None:
    """Dask keeps any one of several copies, and need not keep the first."""
    made = filled(Shelf(tmp_path, budget))
    copy = pickle.loads(pickle.dumps(made))
    assert holds(copy)
    del made
    gc.collect()
    assert holds(copy)
    remove(tmp_path, "key0")
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_gone_are_told(tmp_path: Path) -> None:
    made = filled(Shelf(tmp_path, 0))
    for path in tmp_path.glob("*/*.f32"):
        path.unlink()
    with pytest.raises(DataError, match="are gone"):
        made.at(2)
