"""InfoNCE against a loop written from Chen et al. (2020), equation 1."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.infonce import infonce


def naive(first: np.ndarray, second: np.ndarray, temperature: float) -> float:
    z = [vector / np.linalg.norm(vector) for vector in (*first, *second)]
    prompts, total = len(first), 0.0
    for i in range(2 * prompts):
        partner = (i + prompts) % (2 * prompts)
        others = sum(math.exp(z[i] @ z[k] / temperature) for k in range(2 * prompts) if k != i)
        total += -math.log(math.exp(z[i] @ z[partner] / temperature) / others)
    return total / (2 * prompts)


@given(prompts=st.integers(2, 12), width=st.integers(1, 12), seed=st.integers(0, 999))
def test_agrees_with_the_loop(prompts, width, seed):
    first, second = np.random.default_rng(seed).normal(size=(2, prompts, width))
    value = infonce(torch.from_numpy(first), torch.from_numpy(second)).item()
    assert value == pytest.approx(naive(first, second, 0.1), abs=1e-9)


def test_two_orthogonal_prompts_at_temperature_one():
    assert infonce(torch.eye(2), torch.eye(2), temperature=1).item() == pytest.approx(
        0.551445, abs=1e-6
    )


@pytest.mark.parametrize("prompts", [2, 3, 50])
def test_zero_vectors_are_at_chance(prompts):
    zeros = torch.zeros(prompts, 4)
    assert infonce(zeros, zeros).item() == pytest.approx(math.log(2 * prompts - 1))


def test_the_views_are_interchangeable():
    first, second = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 6, 4)))
    assert infonce(first, second).item() == pytest.approx(infonce(second, first).item())


def test_a_view_of_another_prompt_costs():
    states = torch.eye(4)
    assert infonce(states, states).item() < 0.01 < infonce(states, states.roll(1, 0)).item()


def test_one_prompt_is_undefined():
    assert math.isnan(infonce(torch.ones(1, 4), torch.ones(1, 4)).item())


@given(prompts=st.integers(2, 9), width=st.integers(1, 9), seed=st.integers(0, 999))
def test_variants_agree_with_the_loop(prompts, width, seed):
    views = np.random.default_rng(seed).normal(1, 0.5, size=(2, prompts, width))
    first, second = map(torch.from_numpy, views)
    rest = views - views.mean((0, 1))
    assert infonce(first, second, centred=True).item() == pytest.approx(naive(*rest, 0.1), abs=1e-8)
    z, total = views.reshape(-1, width), 0.0
    for i in range(2 * prompts):
        others = np.array([z[i] @ z[k] / 0.1 for k in range(2 * prompts) if k != i])
        total += np.logaddexp.reduce(others) - z[i] @ z[(i + prompts) % (2 * prompts)] / 0.1
    assert infonce(first, second, variant="paper").item() == pytest.approx(
        total / (2 * prompts), abs=1e-8
    )


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_block_by_block_it_is_the_same(monkeypatch, leave_one_out):
    first, second = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 13, 4)))
    whole = infonce(first, second, leave_one_out=leave_one_out)
    monkeypatch.setattr("daskmetrics.metrics._spectra.NUMBERS", 5 * 26)
    torch.testing.assert_close(
        infonce(first, second, leave_one_out=leave_one_out), whole, rtol=1e-12, atol=0
    )
