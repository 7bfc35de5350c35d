"""LiDAR against loops written from Thilak et al. (2024), equations 1 to 3."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.lidar import lidar


def naive(views: np.ndarray, delta: float) -> float:
    """The entropy of views (q, P, D)."""
    q, prompts, width = views.shape
    mean, means = views.mean((0, 1)), views.mean(0)
    between, within = np.zeros((width, width)), delta * np.eye(width)
    for i in range(prompts):
        between += np.outer(means[i] - mean, means[i] - mean) / prompts
        for j in range(q):
            within += np.outer(views[j, i] - means[i], views[j, i] - means[i]) / (prompts * q)
    values, vectors = np.linalg.eigh(within)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    eigenvalues = np.linalg.eigvalsh(root @ between @ root)
    shares = [value / eigenvalues.sum() for value in eigenvalues]
    return -sum(share * math.log(share) for share in shares if share > 1e-14)


@given(
    q=st.integers(2, 5),
    prompts=st.integers(2, 12),
    width=st.integers(2, 12),
    seed=st.integers(0, 999),
)
def test_agrees_with_the_loop(q, prompts, width, seed):
    views = np.random.default_rng(seed).normal(1, 1, size=(q, prompts, width))
    units = views / np.linalg.norm(views, axis=-1, keepdims=True)
    given_views = list(torch.from_numpy(views))
    assert lidar(*given_views).item() == pytest.approx(math.exp(naive(units, 1e-4)), rel=1e-6)
    # as the code published with Layer by Layer
    assert lidar(*given_views, unit=False, log=True).item() == pytest.approx(
        naive(views, 1e-4), rel=1e-6
    )


@pytest.mark.parametrize("q", [2, 4])
def test_equal_views_give_the_rank_of_the_centred_prompts(q):
    assert lidar(*[torch.eye(5)] * q).item() == pytest.approx(4)
    assert lidar(*[torch.eye(5, 50)] * q).item() == pytest.approx(4)


def test_equal_scatters_leave_every_dimension():
    means = torch.tensor(
        [[8.0**0.5, 0], [-(8.0**0.5), 0], [0, 2.0**0.5], [0, -(2.0**0.5)]], dtype=torch.float64
    )
    # within and between are diag(4, 1)
    assert lidar(*(means + move for move in means), unit=False, delta=0.0).item() == pytest.approx(
        2
    )


def test_without_an_inverse_or_a_second_view_it_is_undefined():
    assert math.isnan(lidar(torch.eye(5), torch.eye(5), delta=0.0).item())
    assert math.isnan(lidar(torch.eye(5), torch.eye(5), relative=True).item())
    assert math.isnan(lidar(torch.eye(5)).item())
    assert math.isnan(lidar(torch.ones(1, 5), torch.ones(1, 5)).item())
