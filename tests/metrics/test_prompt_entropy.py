"""Prompt entropy against a loop written from Wei et al. (2024)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.prompt_entropy import prompt_entropy


def naive(tokens: np.ndarray) -> float:
    mean = tokens.mean(0)
    covariance = np.zeros((tokens.shape[1],) * 2)
    for token in tokens:
        unit = (token - mean) / np.linalg.norm(token - mean)
        covariance += np.outer(unit, unit) / len(tokens)
    return -sum(value * math.log(value) for value in np.linalg.eigvalsh(covariance) if value > 1e-14)


def one(tokens: torch.Tensor) -> float:
    return prompt_entropy(tokens[None], torch.ones(1, len(tokens), dtype=torch.bool)).item()


@given(tokens=st.integers(3, 20), width=st.integers(2, 20), seed=st.integers(0, 999))
def test_agrees_with_the_loop(tokens, width, seed):
    states = np.random.default_rng(seed).normal(1, 1, size=(tokens, width))
    assert one(torch.from_numpy(states)) == pytest.approx(naive(states), abs=1e-9)
    assert one(torch.from_numpy(states).float()) == pytest.approx(naive(states), abs=1e-4)


def test_a_batch_of_different_lengths_agrees_with_the_loop():
    rng = np.random.default_rng(1)
    lengths = (3, 9, 6)
    states = torch.full((3, 9, 5), torch.nan)  # padding may hold anything
    for row, length in enumerate(lengths):
        states[row, :length] = torch.from_numpy(rng.normal(size=(length, 5)))
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    expected = [naive(states[row, :length].double().numpy()) for row, length in enumerate(lengths)]
    np.testing.assert_allclose(prompt_entropy(states, mask), expected, atol=1e-5)


def test_orthonormal_tokens_span_one_direction_less_than_tokens():
    assert one(torch.eye(4)) == pytest.approx(math.log(3), abs=1e-6)


def test_two_tokens_and_one_dimension_have_one_direction():
    assert one(torch.tensor([[1.0, 2.0], [3.0, 1.0]])) == pytest.approx(0, abs=1e-5)
    assert one(torch.tensor([[1.0], [2.0], [5.0]])) == pytest.approx(0, abs=1e-5)


def test_one_token_and_equal_tokens_are_undefined():
    assert math.isnan(one(torch.ones(1, 4)))
    assert math.isnan(one(torch.full((7, 4), 0.1)))
    assert math.isnan(one(torch.zeros(3, 4)))
    assert math.isnan(prompt_entropy(torch.ones(1, 3, 4), torch.zeros(1, 3, dtype=torch.bool)).item())


@given(seed=st.integers(0, 99))
def test_saying_every_token_twice_changes_nothing(seed):
    tokens = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, 4)))
    assert one(tokens.repeat(2, 1)) == pytest.approx(one(tokens))
