"""Dataset entropy against a loop written from its definition."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.dataset_entropy import dataset_entropy


def naive(vectors: np.ndarray) -> float:
    units = np.array([vector / np.linalg.norm(vector) for vector in vectors])
    covariance = np.zeros((vectors.shape[1],) * 2)
    for unit in units:
        covariance += np.outer(unit - units.mean(0), unit - units.mean(0))
    values = np.linalg.eigvalsh(covariance / np.trace(covariance))
    return -sum(value * math.log(value) for value in values if value > 1e-15)


@given(prompts=st.integers(2, 20), width=st.integers(2, 20), seed=st.integers(0, 999))
def test_agrees_with_the_loop(prompts, width, seed):
    vectors = np.random.default_rng(seed).normal(1, 1, size=(prompts, width))
    assert dataset_entropy(torch.from_numpy(vectors)).item() == pytest.approx(
        naive(vectors), abs=1e-9
    )


def test_directions_are_taken_before_the_mean():
    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    lengths = torch.tensor([[1.0], [10.0], [1.0], [10.0]])
    assert dataset_entropy(vectors * lengths).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    "vectors",
    [
        torch.ones(1, 4),
        torch.zeros(3, 4),
        torch.full((7, 4), 0.1),
        torch.tensor([[1.0, 3.0], [2.0, 6.0], [0.5, 1.5]]),
    ],
    ids=["one prompt", "zeros", "equal", "same direction"],
)
def test_without_spread_of_directions_it_is_undefined(vectors):
    assert math.isnan(dataset_entropy(vectors).item())


@given(prompts=st.integers(2, 12), width=st.integers(2, 12), seed=st.integers(0, 999))
def test_variants_agree_with_the_loop(prompts, width, seed):
    vectors = np.random.default_rng(seed).normal(0.3, 1, size=(prompts, width))
    rows = torch.from_numpy(vectors)
    matrix = vectors.T @ vectors if prompts > width else vectors @ vectors.T
    matrix = np.array([[max(entry, 0.0) for entry in line] for line in matrix])
    values = [value for value in np.linalg.eigvalsh(matrix) if value > 0]
    expected = -sum(value / sum(values) * math.log(value / sum(values)) for value in values)
    assert dataset_entropy(rows, variant="paper").item() == pytest.approx(expected, abs=1e-8)
    shortcut = math.log(len(matrix) ** 2 / (matrix**2).sum())
    assert dataset_entropy(rows, variant="paper", alpha=2.0).item() == pytest.approx(shortcut)
    most = min(math.log(prompts), math.log(width))
    assert dataset_entropy(rows, norm="maxEntropy").item() == pytest.approx(
        naive(vectors) / most, abs=1e-9
    )
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    purity = ((units @ units.T) ** 2).sum() / prompts**2
    assert dataset_entropy(rows, alpha=2.0, centred=False).item() == pytest.approx(
        -math.log(purity)
    )
