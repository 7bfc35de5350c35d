"""Effective rank against a loop written from Roy and Vetterli (2007), definition 1."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.effective_rank import effective_rank


def naive(vectors: np.ndarray) -> float:
    sigma = np.linalg.svd(vectors - vectors.mean(0), compute_uv=False)
    shares = [value / sum(sigma) for value in sigma]
    return math.exp(-sum(share * math.log(share) for share in shares if share > 1e-12))


@given(prompts=st.integers(2, 20), width=st.integers(1, 20), seed=st.integers(0, 999))
def test_agrees_with_the_loop(prompts, width, seed):
    vectors = np.random.default_rng(seed).normal(1, 1, size=(prompts, width))
    assert effective_rank(torch.from_numpy(vectors)).item() == pytest.approx(
        naive(vectors), rel=1e-6
    )


def test_singular_values_3_and_1():
    half = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    assert effective_rank(torch.cat([half, -half])).item() == pytest.approx(1.754765, abs=1e-6)


def test_orthonormal_prompts_lose_one_dimension_to_the_mean():
    assert effective_rank(torch.eye(4)).item() == pytest.approx(3)


def test_prompts_on_a_line_have_rank_one_however_many_dimensions():
    line = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None] * torch.rand(
        200, dtype=torch.float64
    )
    assert effective_rank(line).item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("vectors", [torch.ones(1, 4), torch.zeros(3, 4), torch.full((7, 4), 0.1)])
def test_without_variance_it_is_undefined(vectors):
    assert math.isnan(effective_rank(vectors).item())


@given(seed=st.integers(0, 99))
def test_duplicated_prompts_change_nothing(seed):
    vectors = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, 4)))
    assert effective_rank(vectors.repeat(3, 1)).item() == pytest.approx(
        effective_rank(vectors).item()
    )
