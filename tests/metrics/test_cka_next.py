"""Linear CKA against loops written from Kornblith et al. (2019) and, unbiased, Song et al. (2012)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.cka_next import cka_next

SHAPE = {"prompts": st.integers(5, 12), "widths": st.tuples(st.integers(2, 15), st.integers(2, 15))}


def hsic(k: np.ndarray, other: np.ndarray) -> float:
    """Equation 3 of Kornblith et al., up to a factor."""
    n = len(k)
    h = np.eye(n) - np.ones((n, n)) / n
    return np.trace(k @ h @ other @ h)


def unbiased_hsic(k: np.ndarray, other: np.ndarray) -> float:
    """Equation 5 of Song et al., up to a factor."""
    n = len(k)
    k, other = k - np.diag(np.diag(k)), other - np.diag(np.diag(other))
    one = np.ones(n)
    mixed = (one @ k @ one) * (one @ other @ one) / ((n - 1) * (n - 2))
    return np.trace(k @ other) + mixed - 2 / (n - 2) * (one @ k @ other @ one)


@pytest.mark.parametrize(("product", "debiased"), [(hsic, False), (unbiased_hsic, True)])
@given(**SHAPE, seed=st.integers(0, 999))
def test_agrees_with_the_loop(product, debiased, prompts, widths, seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(1, 1, size=(prompts, width)) for width in widths)
    own = product(x @ x.T, x @ x.T) * product(y @ y.T, y @ y.T)
    expected = product(x @ x.T, y @ y.T) / math.sqrt(own) if own > 0 else math.nan
    got = cka_next(torch.from_numpy(x), torch.from_numpy(y), debiased=debiased).item()
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-8, nan_ok=True)


@given(seed=st.integers(0, 99), prompts=st.sampled_from([4, 30]))
def test_a_rotated_and_scaled_copy_is_the_same_layer(seed, prompts):
    rng = np.random.default_rng(seed)
    x, turn = rng.normal(size=(prompts, 6)), np.linalg.qr(rng.normal(size=(6, 6)))[0]
    assert cka_next(
        torch.from_numpy(x), torch.from_numpy(1e-3 * x @ turn + 5)
    ).item() == pytest.approx(1)


def test_a_layer_of_equal_prompts_is_undefined():
    assert math.isnan(cka_next(torch.eye(4), torch.full((4, 3), 0.1)).item())
    assert math.isnan(cka_next(torch.ones(1, 3), torch.ones(1, 3)).item())
    assert math.isnan(cka_next(torch.eye(3), torch.eye(3), debiased=True).item())
