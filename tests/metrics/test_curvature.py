"""Curvature against a loop written from Hosseini and Fedorenko (2023)."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.curvature import curvature


def naive(tokens: np.ndarray) -> float:
    steps = [
        after - before for before, after in itertools.pairwise(tokens) if (after != before).any()
    ]
    angles = [
        math.acos(np.clip(u @ v / (np.linalg.norm(u) * np.linalg.norm(v)), -1, 1))
        for u, v in itertools.pairwise(steps)
    ]
    return sum(angles) / len(angles)


def one(tokens: torch.Tensor, **settings: object) -> float:
    return curvature(tokens[None], torch.ones(1, len(tokens), dtype=torch.bool), **settings).item()


def polygon(corners: int) -> torch.Tensor:
    turn = 2 * math.pi * torch.arange(corners + 1, dtype=torch.float64) / corners
    return torch.stack([turn.cos(), turn.sin()], dim=1)


@given(tokens=st.integers(3, 20), width=st.integers(2, 20), seed=st.integers(0, 999))
def test_agrees_with_the_loop(tokens, width, seed):
    states = np.random.default_rng(seed).normal(size=(tokens, width))
    assert one(torch.from_numpy(states)) == pytest.approx(naive(states), abs=1e-9)
    assert one(torch.from_numpy(states).float()) == pytest.approx(naive(states), abs=1e-5)


@pytest.mark.parametrize(
    ("path", "angle"),
    [
        (torch.arange(6.0)[:, None] * torch.ones(1, 3), 0),
        (polygon(4), math.pi / 2),
        (torch.tensor([[0.0], [1.0], [0.0], [1.0]]), math.pi),
        (polygon(6), math.pi / 3),
    ],
    ids=["line", "square", "zigzag", "hexagon"],
)
def test_known_paths(path, angle):
    assert one(path.double()) == pytest.approx(angle, abs=1e-12)


@given(
    direction=st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=8).filter(
        lambda v: max(map(abs, v)) > 1e-3
    )
)
def test_collinear_points_are_straight_and_never_nan(direction):
    line = torch.arange(1, 9)[:, None] * torch.tensor(direction)
    assert 0 <= one(line) < 1e-4


@given(seed=st.integers(0, 99), times=st.lists(st.integers(1, 3), min_size=6, max_size=6))
def test_repeated_tokens_change_nothing(seed, times):
    tokens = torch.from_numpy(np.random.default_rng(seed).normal(size=(6, 3)))
    assert one(tokens.repeat_interleave(torch.tensor(times), 0)) == pytest.approx(one(tokens))


def test_a_batch_mixes_lengths_and_sides_of_padding():
    square = polygon(4)
    states = torch.full((3, 7, 2), torch.nan, dtype=torch.float64)
    mask = torch.zeros(3, 7, dtype=torch.bool)
    for row, places in enumerate([slice(0, 5), slice(2, 7), [0, 2, 3, 5, 6]]):
        states[row, places], mask[row, places] = square, True
    np.testing.assert_allclose(curvature(states, mask), [math.pi / 2] * 3)


def test_fewer_than_two_steps_are_undefined():
    assert math.isnan(one(torch.ones(1, 3)))
    assert math.isnan(one(torch.eye(3)[:2]))
    assert math.isnan(one(torch.ones(5, 3)))
    assert math.isnan(one(torch.eye(3)[[0, 0, 1, 1]]))
    assert math.isnan(curvature(torch.eye(3)[None], torch.zeros(1, 3, dtype=torch.bool)).item())


@given(
    tokens=st.integers(5, 20),
    width=st.integers(2, 20),
    seed=st.integers(0, 999),
    k=st.integers(1, 3),
)
def test_steps_k_apart_and_the_published_angle_of_states_agree_with_loops(tokens, width, seed, k):
    states = np.random.default_rng(seed).normal(size=(tokens, width))

    def mean_angle(rows: np.ndarray) -> float:
        units = [row / np.linalg.norm(row) for row in rows]
        angles = [math.acos(np.clip(u @ v, -1, 1)) for u, v in zip(units, units[k:], strict=False)]
        return sum(angles) / len(angles)

    rows = torch.from_numpy(states)
    assert one(rows, k=k) == pytest.approx(mean_angle(np.diff(states, axis=0)), abs=1e-9)
    assert one(rows, k=k, variant="paper") == pytest.approx(
        mean_angle(states - states.mean(0)), abs=1e-7
    )
