"""Scores without a probe, against naive loops written from their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, ndcg_score

from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks.task import Score


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / math.sqrt(a @ a) / math.sqrt(b @ b))


def naive_mrr(queries: np.ndarray, documents: np.ndarray) -> float:
    q, d = queries - queries.mean(0), documents - documents.mean(0)
    total = 0.0
    for i in range(len(q)):
        cosines = [cosine(q[i], d[j]) for j in range(len(d))]
        total += 1 / (1 + sum(other > cosines[i] for other in cosines))
    return total / len(q)


@given(st.integers(0, 2**32), st.integers(4, 30), st.integers(2, 8))
def test_measures_of_pairs_agree_with_loops_and_libraries(seed, n, width):
    generator = np.random.default_rng(seed)
    first, second = generator.normal(size=(2, n, width))
    labels, grades = np.arange(n) % 2, generator.integers(0, 5, n).astype(float)
    grades[:2] = 0, 1
    cosines = [cosine(a, b) for a, b in zip(first, second, strict=True)]
    precision = measures.average_precision(first, second, labels).value
    assert precision == pytest.approx(average_precision_score(labels, cosines))
    correlation = measures.spearman(first, second, grades).value
    assert correlation == pytest.approx(spearmanr(cosines, grades).statistic)
    reciprocal_rank = measures.mean_reciprocal_rank(first, second).value
    assert reciprocal_rank == pytest.approx(naive_mrr(first, second))


@given(st.integers(0, 2**32), st.integers(4, 30), st.integers(2, 8))
def test_measures_of_searches_agree_with_scikit_learn(seed, n, width):
    generator = np.random.default_rng(seed)
    queries, documents = generator.normal(size=(5, width)), generator.normal(size=(n, width))
    gains = generator.integers(0, 3, (5, n)) * (generator.random((5, n)) < 0.4)
    gains[:, 0] = 1
    judged = [(q, d, float(gain)) for (q, d), gain in np.ndenumerate(gains)]
    cosines = np.array([[cosine(query, document) for document in documents] for query in queries])
    relevant = [judgement for judgement in judged if judgement[2]]
    gain = measures.ndcg(queries, documents, relevant).value
    assert gain == pytest.approx(ndcg_score(gains, cosines, k=10))
    wanted = [average_precision_score(gains[i] > 0, cosines[i]) for i in range(5)]
    precision = measures.mean_average_precision(queries, documents, judged).value
    assert precision == pytest.approx(np.mean(wanted))


def test_ties_count_against_the_embeddings():
    same, judged = np.ones((10, 3)), [(i, i, 1.0) for i in range(10)]
    assert measures.mean_reciprocal_rank(same, same).value == pytest.approx(0.1)
    assert measures.ndcg(same, same, judged).value == pytest.approx(1 / math.log2(11))
    candidates = [*judged, *((i, (i + 1) % 10, 0.0) for i in range(10))]
    assert measures.mean_average_precision(same, same, candidates).value == pytest.approx(0.5)
    assert measures.spearman(same, same, np.arange(10.0)).value == 0
    assert measures.v_measure(same, np.arange(10) % 2, seed=0).value == 0


@pytest.mark.parametrize("seed", range(6))
def test_rounding_breaks_no_ties(seed):
    """Pairs of equal texts, and documents in equal directions, have cosines that differ by it."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(200, 64))
    labels = np.arange(200) % 4 == 0
    assert measures.average_precision(rows, rows, labels.astype(int)).value == 0.25
    scaled = rows[:1] * generator.uniform(0.3, 4, size=(5, 1))
    ranked_last = (1 / math.log2(5) + 3 / math.log2(6)) / (3 + 1 / math.log2(3))
    gain = measures.ndcg(rows[:1], scaled, [(0, 0, 3.0), (0, 1, 1.0)]).value
    assert gain == pytest.approx(ranked_last)


@pytest.mark.parametrize("measure", ["v_measure", "average_precision"])
def test_the_error_of_a_perfect_score_has_the_size_of_the_spread(measure):
    """Where most data sets give one; neither loses 1 / n by one wrong item."""
    scores = []
    for number in range(40):
        generator = np.random.default_rng(number)
        if measure == "v_measure":
            labels = np.arange(60) % 2
            rows = generator.normal(size=(60, 4)) + 3.8 * np.eye(4)[labels]
            scores.append(measures.v_measure(rows, labels, seed=0))
        else:
            labels = (np.arange(1000) < 10).astype(int)
            angles = np.arccos(np.tanh((generator.normal(size=1000) + 5.5 * labels) / 4))
            second = np.stack([np.cos(angles), np.sin(angles)], axis=1)
            scores.append(measures.average_precision(np.eye(2)[[0] * 1000], second, labels))
    perfect = [score for score in scores if score.value > 1 - 1e-9]
    assert 20 < len(perfect) < 40
    assert 0.5 < perfect[0].stderr / np.std([score.value for score in scores]) < 2


def stated_over_spread(scores: list[Score]) -> float:
    stated = np.sqrt(np.mean([score.stderr**2 for score in scores]))
    return float(stated / np.std([score.value for score in scores], ddof=1))


def test_the_error_of_a_precision_counts_that_labels_are_drawn():
    """It was 0.8 of the spread when each block of the jackknife had an equal share of them."""
    scores = []
    for number in range(200):
        generator = np.random.default_rng(number)
        labels = (generator.random(80) < 0.5).astype(int)
        angles = np.arccos(np.tanh((generator.normal(size=80) + 0.4 * labels) / 4))
        second = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        scores.append(measures.average_precision(np.eye(2)[[0] * 80], second, labels))
    assert 0.93 < stated_over_spread(scores) < 1.1


def test_the_error_of_clusters_holds_for_labels_of_unequal_size():
    """It was 0.7 of the spread with a factor fitted to labels of equal size."""
    centres = np.random.default_rng(0).normal(size=(2, 16))
    scores = []
    for number in range(50):
        generator = np.random.default_rng(number)
        labels = (generator.random(100) < 0.2).astype(int)
        rows = 0.55 * centres[labels] + generator.normal(size=(100, 16))
        scores.append(measures.v_measure(rows, labels, seed=0))
    assert 0.9 < stated_over_spread(scores) < 1.3


def test_clusters_without_structure_have_the_error_of_draws():
    """It was twice the spread when each draw's own chance counted as the texts' influence."""
    labels = np.arange(100) % 2
    rows = [np.random.default_rng(seed).normal(size=(100, 96)) for seed in range(60)]
    scores = [measures.v_measure(noise, labels, seed=0) for noise in rows]
    spread = np.std([score.value for score in scores])
    stated = np.sqrt(np.mean([score.stderr**2 for score in scores]))
    assert 0.7 < stated / spread < 1.7


def test_errors_have_the_size_of_differences_between_draws():
    """Over many data sets of one kind, scores of an arm and differences of two arms spread as their
    errors say, within a factor of two.
    """
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for seed in range(40):
        generator = np.random.default_rng(seed)
        labels = np.arange(120) % 2
        first = generator.normal(size=(120, 4))
        second = first * (0.5 * labels[:, None]) + generator.normal(size=(120, 4))
        grades, judged = labels + generator.normal(size=120), [(i, i, 1.0) for i in range(120)]
        shifted = first + 2.2 * labels[:, None] * np.eye(4)[0]
        noise = 0.3 * generator.normal(size=(2, 120, 4))
        pairs = {
            "match": [measures.average_precision(first + more, second, labels) for more in noise],
            "grade": [measures.spearman(first + more, second, grades) for more in noise],
            "cluster": [measures.v_measure(shifted + more, labels, 0) for more in noise],
            "search": [measures.ndcg(second, first + more, judged) for more in noise],
        }
        for name, (one, other) in pairs.items():
            apart = one.outcomes - other.outcomes
            paired = apart.std(ddof=1) / math.sqrt(len(apart))
            row = (one.value, one.stderr, one.value - other.value, paired)
            found.setdefault(name, []).append(row)
    for name, rows in found.items():
        value, error, difference, paired = np.array(rows).T
        assert 0.5 < np.median(error) / value.std() < 2, name
        assert 0.5 < np.median(paired) / difference.std() < 2, name
        assert np.median(paired) < math.sqrt(2) * np.median(error), name
