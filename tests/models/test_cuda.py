"""On a GPU: reading texts in half precision, without enough memory, and beside the copies of the
next weights.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.metrics import Shape, build, long_texts
from daskmetrics.config import Protocol
from daskmetrics.models import LoadedModel
from tests.models.architectures import encode

pytestmark = pytest.mark.cuda
LAYERS = [0, 1, 2]


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return build(tmp_path_factory.mktemp("suite"), Shape(2, 128), 2)


def vectors(location, texts, device="cuda", **protocol):
    with LoadedModel(location, Protocol(**protocol), device) as model:
        return encode(model, texts, LAYERS, "mean")


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-4), ("float16", 5e-3), ("bfloat16", 5e-2)]
)
def test_vectors_are_those_of_a_cpu(suite, dtype, tolerance):
    texts = [*long_texts(8), "a short one"]
    expected, found = vectors(suite[0], texts, "cpu"), vectors(suite[0], texts, dtype=dtype)
    assert np.linalg.norm(found - expected) < tolerance * np.linalg.norm(expected)


def test_a_batch_without_enough_memory_is_read_in_parts(suite, fresh_pool, monkeypatch):
    budgets: dict[str, int] = {}
    monkeypatch.setattr("daskmetrics.models._model._BUDGETS", budgets)
    texts, tokens = long_texts(600), 2**17
    expected = vectors(suite[0], texts, batch_tokens=4096)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    # one layer takes twice it
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**27) / total)
    try:
        found = vectors(suite[0], texts, batch_tokens=tokens)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert budgets and max(budgets.values()) < tokens
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_the_next_weights_are_read_into_pinned_memory(suite, fresh_pool):
    texts = ["one text", "another one"]
    with LoadedModel(suite[0], Protocol(), "cuda", suite[1]):
        fresh_pool.prefetch._thread.join()
        assert all(each.is_pinned() for each in fresh_pool.prefetch._weights.values())
    swapped = vectors(suite[1], texts)
    fresh_pool._idle.clear()
    np.testing.assert_array_equal(swapped, vectors(suite[1], texts))
