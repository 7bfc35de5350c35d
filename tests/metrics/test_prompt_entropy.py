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
    return -sum(
        value * math.log(value) for value in np.linalg.eigvalsh(covariance) if value > 1e-14
    )


def one(tokens: torch.Tensor, **settings: object) -> float:
    return prompt_entropy(
        tokens[None], torch.ones(1, len(tokens), dtype=torch.bool), **settings
    ).item()


@given(tokens=st.integers(3, 20), width=st.integers(2, 20), seed=st.integers(0, 999))
def test_agrees_with_the_loop(tokens, width, seed):
    states = np.random.default_rng(seed).normal(1, 1, size=(tokens, width))
    assert one(torch.from_numpy(states)) == pytest.approx(naive(states), abs=1e-9)
    assert one(torch.from_numpy(states).float()) == pytest.approx(naive(states), abs=1e-4)


@given(
    tokens=st.integers(3, 40),
    width=st.integers(8, 40),  # fewer entries may all be within the rounding of their mean
    offset=st.floats(0, 3e5),
    dimensions=st.integers(1, 2),
    seed=st.integers(0, 999),
)
def test_tokens_far_from_zero_agree_with_the_loop(tokens, width, offset, dimensions, seed):
    """Of the same float32 numbers; all dimensions, or a few, are this many spreads from zero."""
    states = np.random.default_rng(seed).normal(size=(tokens, width))
    states[:, : dimensions if seed % 2 else width] += offset
    states = torch.from_numpy(states).float()
    assert one(states) == pytest.approx(naive(states.double().numpy()), abs=2e-4)


def test_without_the_first_token_it_is_that_of_the_others():
    states = torch.randn(2, 48, 64, generator=torch.manual_seed(0))
    rest = prompt_entropy(states[:, 1:])
    states[:, 0] += 1e4  # as in many language models
    mask = torch.ones(2, 51, dtype=torch.bool)
    mask[:, :3] = False
    padded = torch.cat([torch.full((2, 3, 64), torch.nan), states], 1)
    assert (prompt_entropy(states) < 0.2 * rest).all()
    torch.testing.assert_close(prompt_entropy(states, first=False), rest)
    torch.testing.assert_close(prompt_entropy(padded, mask, first=False), rest)
    torch.testing.assert_close(
        prompt_entropy(padded, mask, first=False, norm="logN"), rest / math.log(47)
    )


def test_one_token_and_equal_tokens_are_undefined():
    assert math.isnan(one(torch.ones(1, 4)))
    assert math.isnan(one(torch.full((7, 4), 0.1)))
    assert math.isnan(one(torch.zeros(3, 4)))
    assert math.isnan(
        prompt_entropy(torch.ones(1, 3, 4), torch.zeros(1, 3, dtype=torch.bool)).item()
    )


def tokens_of(rows: np.ndarray) -> list[float]:
    values = np.linalg.eigvalsh(rows @ rows.T)
    return [value / values.sum() for value in values if value > 1e-12 * values.sum()]


@given(tokens=st.integers(3, 20), width=st.integers(2, 20), seed=st.integers(0, 999))
def test_orders_norms_and_centring_agree_with_the_loop(tokens, width, seed):
    states = np.random.default_rng(seed).normal(1, 1, size=(tokens, width))
    rest = states - states.mean(0)
    shares = tokens_of(rest / np.linalg.norm(rest, axis=1, keepdims=True))
    for alpha in (0.5, 2.0, 3.0):
        renyi = math.log(sum(share**alpha for share in shares)) / (1 - alpha)
        assert one(torch.from_numpy(states), alpha=alpha) == pytest.approx(renyi, abs=1e-6)
    shares = tokens_of(states / np.linalg.norm(states, axis=1, keepdims=True))
    uncentred = -sum(share * math.log(share) for share in shares)
    assert one(torch.from_numpy(states), centred=False) == pytest.approx(uncentred, abs=1e-9)
    log_n, log_d = math.log(tokens), math.log(width)
    norms = {
        "logN": log_n,
        "logD": log_d,
        "logNlogD": log_n * log_d,
        "maxEntropy": min(log_n, log_d),
    }
    for norm, most in norms.items():
        assert one(torch.from_numpy(states), norm=norm) == pytest.approx(
            naive(states) / most, abs=1e-9
        )


@given(tokens=st.integers(3, 12), width=st.integers(2, 12), seed=st.integers(0, 999))
def test_paper_is_the_loop_over_what_the_published_code_does(tokens, width, seed):
    states = np.random.default_rng(seed).normal(1, 1, size=(tokens, width))
    rest = states - states.mean(0)
    rows = rest / np.linalg.norm(rest, axis=1, keepdims=True)
    matrix = rows.T @ rows if tokens > width else rows @ rows.T
    matrix = np.array([[max(entry, 0.0) for entry in line] for line in matrix])
    values = [value for value in np.linalg.eigvalsh(matrix) if value > 1e-12]
    expected = -sum(value / sum(values) * math.log(value / sum(values)) for value in values)
    padded = torch.cat([torch.from_numpy(states), torch.full((5, width), torch.nan)])
    mask = torch.arange(tokens + 5) < tokens
    assert prompt_entropy(padded[None], mask[None], variant="paper").item() == pytest.approx(
        expected, abs=1e-8
    )
    shortcut = math.log(len(matrix) ** 2 / sum(entry**2 for line in matrix for entry in line))
    assert one(torch.from_numpy(states), variant="paper", alpha=2.0) == pytest.approx(shortcut)


def test_published_vectors():
    gram = torch.full((4, 4), 0.5, dtype=torch.float64) + 0.5 * torch.eye(4, dtype=torch.float64)
    rows = torch.linalg.cholesky(gram)
    assert one(rows, centred=False) == pytest.approx(1.073543, abs=1e-6)
    assert one(rows, centred=False, alpha=2.0) == pytest.approx(0.826679, abs=1e-6)
    assert one(torch.eye(4), centred=False) == pytest.approx(math.log(4), abs=1e-6)
    assert one(torch.ones(4, 3), centred=False) == pytest.approx(0, abs=1e-5)
