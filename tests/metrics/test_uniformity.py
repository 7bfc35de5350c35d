"""Uniformity and alignment against loops written from Wang and Isola (2020)."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.alignment import alignment
from daskmetrics.metrics.uniformity import uniformity

SHAPE = {"prompts": st.integers(2, 20), "width": st.integers(1, 20), "seed": st.integers(0, 999)}


def unit(vectors: np.ndarray) -> np.ndarray:
    return np.array([vector / np.linalg.norm(vector) for vector in vectors])


@given(**SHAPE, t=st.sampled_from([0.5, 2.0]))
def test_uniformity_agrees_with_all_pairs(prompts, width, seed, t):
    vectors = np.random.default_rng(seed).normal(1, 1, size=(prompts, width))
    pairs = list(itertools.combinations(unit(vectors), 2))
    naive = math.log(sum(math.exp(-t * np.sum((x - y) ** 2)) for x, y in pairs) / len(pairs))
    assert uniformity(torch.from_numpy(vectors), t=t).item() == pytest.approx(naive, abs=1e-10)


def test_uniformity_of_orthonormal_and_equal_prompts():
    assert uniformity(torch.eye(6)).item() == pytest.approx(-4)
    assert uniformity(torch.ones(6, 3)).item() == pytest.approx(0, abs=1e-12)


def test_blocks_change_nothing(monkeypatch):
    vectors = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 4)))
    whole = uniformity(vectors).item()
    monkeypatch.setattr("daskmetrics.metrics._spectra.NUMBERS", 200)
    assert uniformity(vectors).item() == pytest.approx(whole, abs=1e-12)


@given(**SHAPE, power=st.sampled_from([1.0, 2.0]))
def test_alignment_agrees_with_the_loop(prompts, width, seed, power):
    first, second = np.random.default_rng(seed).normal(size=(2, prompts, width))
    apart = [np.linalg.norm(x - y) ** power for x, y in zip(unit(first), unit(second), strict=True)]
    got = alignment(torch.from_numpy(first), torch.from_numpy(second), power=power).item()
    assert got == pytest.approx(sum(apart) / prompts, abs=1e-10)


def test_alignment_of_equal_and_opposite_views():
    assert alignment(torch.eye(3), 2 * torch.eye(3)).item() == 0
    assert alignment(torch.eye(3), -torch.eye(3)).item() == pytest.approx(4)
