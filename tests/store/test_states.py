"""Kept states: what was written is read, anything else is missing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray

from daskmetrics.core.names import Checkpoint
from daskmetrics.metrics import _engine as engine
from daskmetrics.metrics import resolve
from daskmetrics.store import _states as states

PLACE, LAYERS = Checkpoint("m", "step1"), (0, 3)


@pytest.fixture
def vectors() -> np.ndarray:
    """As the reducer gives them: of very different lengths, a zero vector among them."""
    rng = np.random.default_rng(0)
    lengths = 10.0 ** rng.integers(-20, 20, size=(2, 6, 1))
    drawn = (lengths * rng.normal(size=(2, 6, 5))).astype(np.float32)
    drawn[1, 2] = 0
    reducer = engine.Reducer(resolve(["anisotropy"]), LAYERS, 6, halves=True)
    reducer.put_vectors(drawn)
    assert (abs(reducer.vectors() - drawn) <= 5e-4 * abs(drawn).max(-1, keepdims=True)).all()
    return reducer.vectors()


def test_what_is_kept_is_what_metrics_were_taken_from(tmp_path, vectors):
    states.write(tmp_path / "states.zarr", PLACE, "key", LAYERS, vectors)
    np.testing.assert_array_equal(states.read(tmp_path / "states.zarr", PLACE, "key"), vectors)


def test_xarray_opens_it(tmp_path, vectors):
    states.write(tmp_path / "states.zarr", PLACE, "key", LAYERS, vectors)
    data = xarray.open_zarr(tmp_path / "states.zarr", group="m/step1", consolidated=False, chunks=None).load()
    assert data.vectors.dims == ("layer", "prompt", "dimension") and data.vectors.dtype == np.float16
    assert list(data.layer) == list(LAYERS)


def test_states_of_something_else_and_damaged_ones_are_not_there(tmp_path, vectors):
    path = tmp_path / "states.zarr"
    assert states.read(path, PLACE, "key") is None
    states.write(path, PLACE, "key", LAYERS, vectors)
    assert states.read(path, PLACE, "another") is None
    assert states.read(path, Checkpoint("m", "step2"), "key") is None
    chunk = next(file for file in (path / "m/step1/vectors").rglob("*") if file.is_file() and file.name != "zarr.json")
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    assert states.read(path, PLACE, "key") is None


def test_metrics_of_kept_states_are_those_of_the_pass(vectors):
    names, masks = ["pooled", "layers"], torch.ones(6, 1, dtype=torch.bool)
    chosen = [metric for metric in resolve(["all"]) if metric.takes in names]
    passed, kept = (engine.Reducer(chosen, LAYERS, 6, halves=True) for _ in range(2))
    for layer, own in zip(LAYERS, torch.from_numpy(vectors), strict=True):
        passed.add(layer, torch.arange(6), own[:, None], masks, own)
    kept.put_vectors(passed.vectors())
    np.testing.assert_array_equal(kept.finish().values, passed.finish().values)
