from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.tasks import probes


def test_classify_has_a_binomial_error() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(300) % 2
    score = probes.classify(generator.normal(size=(300, 4)) + labels[:, None], labels, seed=0)
    assert 0.6 < score.value < 1
    assert score.stderr == math.sqrt(score.value * (1 - score.value) / 300)


@pytest.mark.parametrize("width", [1, 8, 512])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_classify_converges_on_any_scale(width: int, scale: float) -> None:
    # warnings are errors here
    features = np.random.default_rng(width).standard_t(2, size=(120, width)) * scale
    probes.classify(features.astype(np.float32), np.arange(120) % 12, seed=0)


def naive_mrr(queries: np.ndarray, documents: np.ndarray) -> float:
    q, d = queries - queries.mean(0), documents - documents.mean(0)
    total = 0.0
    for i in range(len(q)):
        cosines = [q[i] @ d[j] / math.sqrt(q[i] @ q[i]) / math.sqrt(d[j] @ d[j]) for j in range(len(d))]
        total += 1 / (1 + sum(cosine > cosines[i] for cosine in cosines))
    return total / len(q)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(2, 8))
def test_retrieve_is_the_mean_reciprocal_rank(seed: int, pairs: int, width: int) -> None:
    queries, documents = np.random.default_rng(seed).normal(size=(2, pairs, width))
    assert probes.retrieve(queries, documents).value == pytest.approx(naive_mrr(queries, documents))


def test_ties_count_against_the_query() -> None:
    assert probes.retrieve(np.ones((10, 3)), np.ones((10, 3))).value == pytest.approx(0.1)


def test_order_does_not_depend_on_the_text_alone() -> None:
    # a first half that differs from pair to pair, but by nothing that the second half has not too
    same = np.random.default_rng(0).normal(size=(200, 16))
    assert abs(probes.order(same, same[::-1], seed=0).value - 0.5) < 0.15
