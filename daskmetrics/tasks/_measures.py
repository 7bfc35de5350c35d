"""From embeddings to a score without a probe: clusters, similarity of pairs, ranks of documents.

Pure functions of arrays; similarity is the cosine. Ties count against the embeddings, so that
constant embeddings do not score well. Scikit-learn and SciPy are imported inside the functions, so
that resolving a task is fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskmetrics.tasks.task import EmbeddingArray, Score

Judgement = tuple[int, int, float]
"""A query, a document, and the relevance of the document; 0 is not relevant."""

CUT = 10  # ranks that count in `ndcg`
_HALVES = 8  # draws of `v_measure`
_CENTRES, _SHARED = 1.45, 0.8  # times the variance by influences: of its score, of a difference
_BLOCKS = 20  # of a jackknife ...
_RANK_BLOCKS = (
    100  # ... and of one on ranks, which cost little; its error is known to 1 / sqrt(2 blocks)
)
_TOLERANCE = 1e-9  # equal vectors must tie in any order of summation


def v_measure(embeddings: EmbeddingArray, labels: NDArray[np.int64], seed: int) -> Score:
    """V-measure (Rosenberg and Hirschberg 2007) of k-means with as many clusters as there are
    labels: the mean over eight draws of half the texts, which depend on the seed alone.

    Its variance is that of the mean over draws, plus that of the texts: the sum of squares of each
    text's influence on the score, given the clusters (Efron 1982, chapter 6). The outcomes are the
    influences of the texts and the deviations of the draws, scaled so that their spread is the
    error. What the texts do to the centres of clusters is not in the influences; it adds about a
    half to the variance of a score, and cancels in a difference, where the influences themselves
    are noisy: both factors were measured by ``benchmarks/errors.py``. The error of a perfect score
    is what it loses if one text has a cluster of its own.

    >>> labels = np.arange(60) % 3
    >>> round(v_measure(9 * np.eye(3)[labels], labels, seed=0).value, 6)
    1.0
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import v_measure_score

    generator = np.random.default_rng(seed)
    rows = np.asarray(embeddings, dtype=np.float64)
    n = len(rows)
    values = []
    influence, times_drawn = np.zeros((2, n))
    for _ in range(_HALVES):
        drawn = generator.permutation(n)[: max(2, n // 2)]
        distinct = len(np.unique(rows[drawn], axis=0))
        clusters = min(len(np.unique(labels[drawn])), distinct)
        start = int(generator.integers(2**32))
        assigned = KMeans(clusters, n_init=1, random_state=start).fit_predict(rows[drawn])
        values.append(v_measure_score(labels[drawn], assigned))
        influence[drawn] += _influence(labels[drawn], assigned)
        times_drawn[drawn] += 1
    influence /= n * np.maximum(times_drawn, 1)
    influence -= influence.mean()
    value = float(np.mean(values))
    draws = (np.array(values) - value) / math.sqrt(_HALVES * (_HALVES - 1))
    error = math.sqrt(_CENTRES * (influence**2).sum() + (draws**2).sum())
    if value > 1 - _TOLERANCE:
        apart = np.append(labels[:-1], labels.max() + 1)
        error = 1 - v_measure_score(labels, apart)
    samples = np.concatenate([math.sqrt(_SHARED) * influence, draws])
    outcomes = value + math.sqrt(len(samples) * (len(samples) - 1)) * samples
    return Score(value, error, n, outcomes=outcomes)


def _influence(labels: NDArray[np.int64], clusters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Influence (n,) of each text on the V-measure of these labels and clusters.

    That is 2 I / (H_labels + H_clusters), and the influence on an entropy is ``-log p - H`` for the
    share p of the texts that are where the text is.
    """
    pairs = np.stack([labels, clusters], axis=1)
    surprises = []
    for groups in (labels, clusters, pairs):
        _, index, counts = np.unique(groups, axis=0, return_inverse=True, return_counts=True)
        surprises.append(-np.log(counts[index.ravel()] / len(labels)))
    total = surprises[0] + surprises[1]
    entropy = total.mean()
    if entropy == 0:  # one label and one cluster
        return np.zeros(len(labels))
    value = 2 * (1 - surprises[2].mean() / entropy)
    return np.asarray((2 * (total - surprises[2]) - value * total) / entropy)


def average_precision(
    first: EmbeddingArray, second: EmbeddingArray, labels: NDArray[np.int64]
) -> Score:
    """Average precision of the cosine as a predictor that two texts belong together (label 1) or
    not (0).

    The error is a jackknife over twenty blocks of pairs, and the outcomes are its pseudo-values.
    That of a perfect score is at least what it loses if the last of P pairs that belong together
    falls by one rank, 1 / (P (P + 1)): few pairs among many say little.

    >>> average_precision(np.eye(4), np.eye(4)[[0, 1, 3, 2]], np.array([1, 1, 0, 0])).value
    1.0
    """
    similarity = _cosines(first, second)
    score = mean(precision_outcomes(similarity, labels))
    together = int(labels.sum())
    n = min(len(labels), together * (together + 1))
    score = with_error(replace(score, value=_precision(similarity, labels), n=n))
    return replace(score, n=len(labels))


def spearman(first: EmbeddingArray, second: EmbeddingArray, grades: NDArray[np.float64]) -> Score:
    """Spearman's correlation of the cosine with a grade of similarity; 0 if all cosines are equal.

    The error is that of Bonett and Wright (2000); the outcomes are pseudo-values of a jackknife
    over a hundred blocks.

    >>> angles = np.linspace(0, 1, 9)
    >>> turned = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    >>> spearman(np.ones((9, 1)) * [1.0, 0.0], turned, -angles).value
    1.0
    """
    return correlation(_cosines(first, second), grades)


def correlation(values: NDArray[np.float64], grades: NDArray[np.float64]) -> Score:
    """Spearman's correlation of values (n,) with grades, with its error and outcomes; see
    `spearman`.
    """
    n = len(grades)
    rho = _correlation(values, grades)
    error = (1 - rho**2) * math.sqrt((1 + rho**2 / 2) / max(1, n - 3))
    return Score(rho, error, n, outcomes=correlation_outcomes(values, grades))


def mean_reciprocal_rank(queries: EmbeddingArray, documents: EmbeddingArray) -> Score:
    """Mean reciprocal rank of row i of the documents for query i, by cosine of the centred
    embeddings.

    >>> mean_reciprocal_rank(np.eye(4), np.eye(4)).value
    1.0
    """
    similarity = _unit(_centred(queries)) @ _unit(_centred(documents)).T
    ranks = (similarity >= np.diag(similarity)[:, None] - 1e-12).sum(axis=1)
    return mean(1.0 / ranks)


def ndcg(
    queries: EmbeddingArray, documents: EmbeddingArray, judgements: Sequence[Judgement]
) -> Score:
    """Normalised discounted cumulative gain of the first ten documents; every document is a
    candidate.

    A pair without a judgement is not relevant. The gain is the relevance itself, as in trec_eval.

    >>> ndcg(np.eye(3), np.eye(3), [(0, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0)]).value.__round__(3)
    0.833
    """
    unit_queries = _unit(queries)
    unit_documents = _unit(documents)
    gains = []
    for query, relevances in _by_query(judgements):
        ranks, gain = _ranks(unit_documents @ unit_queries[query], relevances)
        if len(gain):
            best = np.sort(gain)[::-1][:CUT]
            ideal = (best / np.log2(np.arange(len(best)) + 2)).sum()
            discounted = gain / np.log2(ranks + 1)
            gains.append(float(discounted[ranks <= CUT].sum() / ideal))
    return mean(np.array(gains))


def mean_average_precision(
    queries: EmbeddingArray, documents: EmbeddingArray, judgements: Sequence[Judgement]
) -> Score:
    """Mean average precision over each query's own candidates: the judged ones, also of relevance
    0.

    >>> mean_average_precision(np.eye(3), np.eye(3), [(0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0), (1, 1, 0.0)]).value
    0.75
    """
    unit_queries = _unit(queries)
    unit_documents = _unit(documents)
    precisions = []
    for query, relevances in _by_query(judgements):
        similarity = unit_documents[list(relevances)] @ unit_queries[query]
        ranks, _ = _ranks(similarity, dict(enumerate(relevances.values())))
        if len(ranks):
            precisions.append(float(np.mean((np.arange(len(ranks)) + 1) / ranks)))
    return mean(np.array(precisions))


def _by_query(judgements: Sequence[Judgement]) -> Iterator[tuple[int, dict[int, float]]]:
    """Each query with its documents and their relevance."""
    for query, group in groupby(sorted(judgements), key=itemgetter(0)):
        yield query, {document: relevance for _, document, relevance in group}


def _ranks(
    similarity: NDArray[np.float64], relevances: dict[int, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ranks of the relevant documents, best first, and the relevance of each."""
    indices = np.array([i for i, relevance in relevances.items() if relevance > 0], dtype=np.intp)
    values = np.array([relevances[i] for i in indices.tolist()])
    order = np.lexsort((values, -similarity[indices]))
    indices = indices[order]
    values = values[order]
    others = np.delete(similarity, indices)
    before = [(others >= similarity[index] - _TOLERANCE).sum() for index in indices]
    return np.arange(1, len(indices) + 1) + before, values


def _cosines(first: EmbeddingArray, second: EmbeddingArray) -> NDArray[np.float64]:
    """Cosine of row i of one with row i of the other."""
    return np.asarray((_unit(first) * _unit(second)).sum(axis=1))


def _centred(rows: EmbeddingArray) -> NDArray[np.float64]:
    return np.asarray(rows, dtype=np.float64) - np.mean(rows, axis=0, dtype=np.float64)


def _unit(rows: EmbeddingArray) -> NDArray[np.float64]:
    """Rows scaled to length one; a row of zeros stays."""
    wide = np.asarray(rows, dtype=np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(norms > 0, norms, 1.0)


def _precision(similarity: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    from sklearn.metrics import average_precision_score

    if not labels.any():
        return 0.0
    return float(average_precision_score(labels, similarity))


def _correlation(similarity: NDArray[np.float64], grades: NDArray[np.float64]) -> float:
    """Spearman's correlation; 0 if a side is constant."""
    from scipy.stats import rankdata

    ranks = [rankdata(np.round(side, 9)) for side in (similarity, grades)]
    if len(grades) < 2 or not all(np.ptp(side) for side in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1].clip(-1, 1))


def precision_outcomes(
    similarity: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Pseudo-values of the average precision of a similarity."""
    return _pseudo_values(_precision, similarity, labels, _BLOCKS)


def correlation_outcomes(
    similarity: NDArray[np.float64], grades: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Pseudo-values of Spearman's correlation of a similarity with grades."""
    return _pseudo_values(_correlation, similarity, grades, _RANK_BLOCKS)


def draw_outcomes(values: ArrayLike) -> NDArray[np.float64]:
    """Pseudo-values of draws of half the items: with their mean, and with their deviation as error
    of the mean.
    """
    draws = np.asarray(values, dtype=np.float64)
    return np.asarray(draws.mean() + math.sqrt(len(draws)) * (draws - draws.mean()))


def _pseudo_values(
    statistic: Callable[..., float],
    similarity: NDArray[np.float64],
    labels: NDArray[Any],
    max_blocks: int,
) -> NDArray[np.float64]:
    """Pseudo-values of a jackknife over blocks that have equal shares of each label, shifted to the
    statistic itself.

    The blocks depend on the labels alone, so that those of two arms belong together.
    """
    n = len(labels)
    blocks = min(max_blocks, n)
    block = np.empty(n, dtype=np.int64)
    block[np.argsort(labels, kind="stable")] = np.arange(n) % blocks
    masks = [block != i for i in range(blocks)]
    without = np.array([statistic(similarity[mask], labels[mask]) for mask in masks])
    return np.asarray(statistic(similarity, labels) + (blocks - 1) * (without.mean() - without))


def with_error(score: Score) -> Score:
    """The score, with an error where its items show none: all are perfect, all fail, or there is
    only one.

    Perfect items do not say that the next one will be, so the error is that of a share after one
    more item of each outcome (Laplace's rule of succession).

    >>> with_error(Score(1.0, 0.0, 60)).stderr.__round__(3), with_error(Score(0.5, 0.0, 1)).stderr
    (0.016, 0.5)
    """
    if score.stderr > _TOLERANCE or (score.n > 1 and round(abs(score.value), 9) not in (0.0, 1.0)):
        return score
    n = max(1, score.n)
    share = (n * min(1.0, abs(score.value)) + 1) / (n + 2)
    return replace(score, stderr=math.sqrt(share * (1 - share) / n))


def mean(values: NDArray[np.float64]) -> Score:
    """The score that is the mean of values (n,) of items, with its standard error."""
    n = len(values)
    error = values.std(ddof=1) / math.sqrt(n) if n > 1 else 0.0
    return Score(float(values.mean()), float(error), n, outcomes=values)
