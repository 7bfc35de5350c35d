"""Scores without a probe, against naive loops written from their definitions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, ndcg_score

from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks.file import table_task

cases = given(st.integers(0, 2**32), st.integers(4, 30), st.integers(2, 8))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / math.sqrt(a @ a) / math.sqrt(b @ b))


def naive_mrr(queries: np.ndarray, documents: np.ndarray) -> float:
    q, d = queries - queries.mean(0), documents - documents.mean(0)
    total = 0.0
    for i in range(len(q)):
        cosines = [cosine(q[i], d[j]) for j in range(len(d))]
        total += 1 / (1 + sum(each > cosines[i] for each in cosines))
    return total / len(q)


@settings(max_examples=20, deadline=None)
@cases
def test_mean_reciprocal_rank_agrees_with_the_loop(seed: int, pairs: int, width: int) -> None:
    queries, documents = np.random.default_rng(seed).normal(size=(2, pairs, width))
    assert measures.mean_reciprocal_rank(queries, documents).value == pytest.approx(
        naive_mrr(queries, documents)
    )


@settings(max_examples=20, deadline=None)
@cases
def test_average_precision_and_spearman_agree_with_the_libraries(
    seed: int, pairs: int, width: int
) -> None:
    generator = np.random.default_rng(seed)
    first, second = generator.normal(size=(2, pairs, width))
    labels, grades = np.arange(pairs) % 2, generator.integers(0, 5, pairs).astype(float)
    grades[:2] = 0, 1
    cosines = [cosine(a, b) for a, b in zip(first, second, strict=True)]
    assert measures.average_precision(first, second, labels).value == pytest.approx(
        average_precision_score(labels, cosines)
    )
    assert measures.spearman(first, second, grades).value == pytest.approx(
        spearmanr(cosines, grades).statistic
    )


@settings(max_examples=20, deadline=None)
@cases
def test_ndcg_agrees_with_scikit_learn(seed: int, documents: int, width: int) -> None:
    generator = np.random.default_rng(seed)
    queries, corpus = generator.normal(size=(5, width)), generator.normal(size=(documents, width))
    gains = generator.integers(0, 3, (5, documents)) * (generator.random((5, documents)) < 0.3)
    gains[:, 0] = 1
    judged = [(i, j, float(gains[i, j])) for i in range(5) for j in range(documents) if gains[i, j]]
    cosines = np.array([[cosine(q, d) for d in corpus] for q in queries])
    assert measures.ndcg(queries, corpus, judged).value == pytest.approx(
        ndcg_score(gains, cosines, k=10)
    )


@settings(max_examples=20, deadline=None)
@cases
def test_mean_average_precision_agrees_with_scikit_learn(
    seed: int, candidates: int, width: int
) -> None:
    generator = np.random.default_rng(seed)
    queries, documents = (
        generator.normal(size=(3, width)),
        generator.normal(size=(candidates, width)),
    )
    relevant = generator.random((3, candidates)) < 0.4
    relevant[:, 0] = True
    judged = [(i, j, float(relevant[i, j])) for i in range(3) for j in range(candidates)]
    wanted = [
        average_precision_score(relevant[i], [cosine(queries[i], d) for d in documents])
        for i in range(3)
    ]
    assert measures.mean_average_precision(queries, documents, judged).value == pytest.approx(
        np.mean(wanted)
    )


def test_ties_count_against_the_embeddings() -> None:
    same, judged = np.ones((10, 3)), [(i, i, 1.0) for i in range(10)]
    assert measures.mean_reciprocal_rank(same, same).value == pytest.approx(0.1)
    assert measures.ndcg(same, same, judged).value == pytest.approx(1 / math.log2(11))
    candidates = [*judged, *((i, (i + 1) % 10, 0.0) for i in range(10))]
    assert measures.mean_average_precision(same, same, candidates).value == pytest.approx(0.5)
    assert measures.spearman(same, same, np.arange(10.0)).value == 0
    assert measures.v_measure(same, np.arange(10) % 2, seed=0).value == 0


@pytest.mark.parametrize(
    "columns",
    [
        ["text", "label"],
        ["text", "label", "clustering"],
        ["first", "second", "label"],
        ["query", "document"],
    ],
)
def test_a_perfect_score_has_an_error(columns: list[str]) -> None:
    names, kind = columns[:3], {}
    if columns[-1] == "clustering":
        names, kind = columns[:2], {"kind": "clustering"}
    rows = []
    for i in range(20):
        values = {name: f"{name} {i}" for name in names}
        rows.append((f"line {i}", values | {"label": str(i % 2)}))
    task = table_task(Path("own.csv"), rows, kind, "own", in_memory=True)
    vectors = np.tile(np.eye(2), (10, 1))
    if "second" in names:
        vectors = np.vstack([vectors, np.tile([0.0, 1.0], (20, 1))])
    elif "query" in names:
        vectors = np.vstack([np.eye(20)] * 2)
    score = task.evaluate(vectors, seed=0)
    assert score.value == pytest.approx(1) and 0.03 < score.stderr < 0.13


@pytest.mark.parametrize("measure", ["v_measure", "average_precision"])
def test_the_error_of_a_perfect_score_has_the_size_of_the_spread(measure: str) -> None:
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


def test_errors_have_the_size_of_the_differences_between_draws() -> None:
    """Over many data sets of one kind the scores spread as the errors say, within a factor of two."""
    found: dict[str, list] = {"match": [], "grade": [], "cluster": []}
    for seed in range(40):
        generator = np.random.default_rng(seed)
        labels = np.arange(120) % 2
        first = generator.normal(size=(120, 4))
        second = first * (0.5 * labels[:, None]) + generator.normal(size=(120, 4))
        found["match"].append(measures.average_precision(first, second, labels))
        found["grade"].append(measures.spearman(first, second, labels + generator.normal(size=120)))
        shifted = first + 2.2 * labels[:, None] * np.eye(4)[0]
        found["cluster"].append(measures.v_measure(shifted, labels, seed))
    for name, scores in found.items():
        spread, said = np.std([s.value for s in scores]), np.median([s.stderr for s in scores])
        assert 0.5 < said / spread < 2, name


def test_paired_errors_have_the_size_of_the_differences_between_draws() -> None:
    """Over many data sets, differences of two arms spread as their paired errors say, within a
    factor of two.
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(40):
        generator = np.random.default_rng(seed)
        labels = np.arange(120) % 2
        first = generator.normal(size=(120, 4))
        second = first * (0.5 * labels[:, None]) + generator.normal(size=(120, 4))
        grades, judged = labels + generator.normal(size=120), [(i, i, 1.0) for i in range(120)]
        shifted = first + 2.2 * labels[:, None] * np.eye(4)[0]
        noise = 0.3 * generator.normal(size=(2, 120, 4))
        pairs = {
            "match": [measures.average_precision(first + each, second, labels) for each in noise],
            "grade": [measures.spearman(first + each, second, grades) for each in noise],
            "cluster": [measures.v_measure(shifted + each, labels, 0) for each in noise],
            "search": [measures.ndcg(second, first + each, judged) for each in noise],
        }
        for name, (one, other) in pairs.items():
            assert one.outcomes is not None and other.outcomes is not None
            apart = one.outcomes - other.outcomes
            paired = apart.std(ddof=1) / math.sqrt(len(apart))
            found.setdefault(name, []).append(
                (one.value - other.value, paired, math.hypot(one.stderr, other.stderr))
            )
    for name, rows in found.items():
        value, paired, alone = np.array(rows).T
        assert 0.5 < np.median(paired) / value.std() < 2, name
        assert np.median(paired) < np.median(alone), name
