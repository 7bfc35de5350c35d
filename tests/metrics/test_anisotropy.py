"""Anisotropy against the mean over all pairs, as in Ethayarajh (2019)."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.anisotropy import anisotropy


def naive(vectors: np.ndarray) -> float:
    cosines = [
        u @ v / (np.linalg.norm(u) * np.linalg.norm(v))
        for u, v in itertools.combinations(vectors, 2)
    ]
    return sum(cosines) / len(cosines)


@given(prompts=st.integers(2, 20), width=st.integers(1, 20), seed=st.integers(0, 999))
def test_agrees_with_all_pairs(prompts, width, seed):
    vectors = np.random.default_rng(seed).normal(1, 1, size=(prompts, width))
    assert anisotropy(torch.from_numpy(vectors)).item() == pytest.approx(naive(vectors), abs=1e-10)


def test_orthonormal_identical_and_opposite():
    assert anisotropy(torch.eye(5)).item() == 0
    assert anisotropy(torch.full((4, 3), 0.1)).item() == pytest.approx(1)
    assert anisotropy(torch.tensor([[2.0, 1.0], [-2.0, -1.0]])).item() == pytest.approx(-1)


def test_zero_vectors_have_no_direction_and_are_left_out():
    vectors = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert anisotropy(vectors).item() == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize(
    "vectors", [torch.full((1, 3), 0.1), torch.zeros(3, 2), torch.eye(2) * torch.tensor([0.3, 0.0])]
)
def test_without_a_pair_it_is_undefined(vectors):
    assert math.isnan(anisotropy(vectors).item())
