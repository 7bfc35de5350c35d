"""DiME against a loop written from Skean et al. (2023)."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.dime import _difference, dime


def entropy(matrix: np.ndarray) -> float:
    values = np.linalg.eigvalsh(matrix / np.trace(matrix))
    return -sum(value * math.log(value) for value in values if value > 1e-14)


def naive(a: np.ndarray, b: np.ndarray, orders: list[list[int]]) -> float:
    apart = 0.0
    for order in orders:
        turn = np.eye(len(a))[order]
        apart += entropy(a * (turn @ b @ turn.T)) / len(orders)
    return apart - entropy(a * b)


@given(prompts=st.integers(2, 8), width=st.integers(1, 8), seed=st.integers(0, 999))
def test_agrees_with_the_loop(prompts, width, seed):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(1, 1, size=(2, prompts, width))
    orders = [rng.permutation(prompts).tolist() for _ in range(3)]
    a, b = first @ first.T, second @ second.T
    got = _difference(
        torch.from_numpy(a), torch.from_numpy(b), [torch.tensor(order) for order in orders]
    )
    assert got.item() == pytest.approx(naive(a, b, orders), abs=1e-9)


def test_two_clusters_of_two_over_all_permutations():
    clusters = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2)).double()
    orders = [torch.tensor(order) for order in itertools.permutations(range(4))]
    assert _difference(clusters, clusters, orders).item() == pytest.approx(2 / 3 * math.log(2))
    rows = torch.eye(2)[[0, 0, 1, 1]]
    assert dime(rows, rows, permutations=4000).item() == pytest.approx(
        2 / 3 * math.log(2), abs=0.02
    )


@pytest.mark.parametrize("rows", [torch.eye(5), torch.ones(5, 3)], ids=["orthonormal", "rank one"])
def test_views_without_common_information_give_zero(rows):
    assert dime(rows, rows).item() == pytest.approx(0, abs=1e-9)


def test_pairing_counts_and_the_seed_decides():
    first = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 3)))
    other = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 3)))
    assert dime(first, first).item() > 5 * abs(dime(first, other).item())
    assert (
        dime(first, first).item() == dime(first, first).item() != dime(first, first, seed=1).item()
    )


def test_only_the_first_prompts_are_used():
    first = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 3)))
    assert dime(first, first, most=10).item() == dime(first[:10], first[:10]).item()


def test_one_prompt_and_zero_vectors_are_undefined():
    assert math.isnan(dime(torch.ones(1, 3), torch.ones(1, 3)).item())
    assert math.isnan(dime(torch.zeros(4, 3), torch.zeros(4, 3)).item())
