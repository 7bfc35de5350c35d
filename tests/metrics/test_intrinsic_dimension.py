"""TwoNN against a loop written from Facco et al. (2017)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.intrinsic_dimension import intrinsic_dimension


def ratios(points: np.ndarray) -> list[float]:
    found = []
    for point in points:
        near = sorted(float(np.linalg.norm(point - other)) for other in points)[1:3]
        found.append(near[1] / near[0])
    return sorted(found)


def naive(points: np.ndarray, discarded: float) -> float:
    mu = ratios(points)
    kept = min(int(len(mu) * (1 - discarded)), len(mu) - 1)
    pairs = [(math.log(mu[i]), -math.log(1 - (i + 1) / len(mu))) for i in range(kept)]
    return sum(x * y for x, y in pairs) / sum(x * x for x, _ in pairs)


@given(prompts=st.integers(4, 40), width=st.integers(1, 8), seed=st.integers(0, 999))
def test_agrees_with_the_loop(prompts, width, seed):
    points = np.random.default_rng(seed).normal(3, 1, size=(prompts, width))
    got = [
        intrinsic_dimension(torch.from_numpy(points), discarded=share).item()
        for share in (0.1, 0.0)
    ]
    assert got == pytest.approx([naive(points, 0.1), naive(points, 0.0)], rel=1e-6)
    likely = intrinsic_dimension(torch.from_numpy(points), fit="likelihood").item()
    assert likely == pytest.approx((prompts - 1) / sum(map(math.log, ratios(points))), rel=1e-6)


def test_a_cube_of_five_dimensions_in_twenty(monkeypatch):
    rng = np.random.default_rng(0)
    cube = torch.from_numpy(rng.uniform(size=(2000, 5)) @ rng.normal(size=(5, 20)))
    value = intrinsic_dimension(cube).item()
    assert value == pytest.approx(4.6, abs=0.4)
    monkeypatch.setattr("daskmetrics.metrics._spectra.NUMBERS", 333_000)
    assert intrinsic_dimension(cube).item() == pytest.approx(value, rel=1e-9)


def test_equal_distances_and_too_few_points_are_undefined():
    for points in (
        torch.eye(5),
        torch.eye(2),
        torch.ones(4, 3),
        torch.zeros(4, 3),
        torch.eye(2).repeat(3, 1),
    ):
        assert math.isnan(intrinsic_dimension(points).item())
