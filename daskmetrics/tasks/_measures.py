"""From embeddings to a score without a probe: clusters, similarity of pairs, ranks of documents.

Pure functions of arrays; similarity is the cosine. Ties count against the embeddings, so that
constant embeddings do not score well. Scikit-learn and SciPy are imported inside the functions, so
that resolving a task is fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.tasks.task import EmbeddingArray, Floats, Labels, Score

Judgement = tuple[int, int, float]
"""A query, a document, and the relevance of the document; 0 is not relevant."""
Judgements = Sequence[Judgement]
Groups = Labels | None
"""The group (n,) of each item, or None if each item is independent of the others."""

CUT = 10  # ranks that count in `ndcg`
_DRAWS = 8  # of `v_measure`
_SPLITS = 16  # of its texts, for its error; halves of the first ones are the draws
_SHARED = 2.0  # times the variance by influences that draws share, of a difference
_BLOCKS = 100  # of a jackknife, whose error is known to 1 / sqrt(2 blocks)
_DECIMALS = 9  # equal vectors must tie in any order of summation
_TOLERANCE = 10.0**-_DECIMALS


def v_measure(
    embeddings: EmbeddingArray, labels: Labels, seed: int, groups: Groups = None
) -> Score:
    """V-measure (Rosenberg and Hirschberg 2007) of k-means with as many clusters as labels.

    The mean over eight draws of half the texts, or groups, which depend on the seed alone.

    Its error is that of scores of halves without a common text: see `_error_of_halves`. It is at
    least what the score would lose if one text had a cluster of its own. The outcomes are the
    influences of the texts, given the clusters (Efron 1982, chapter 6), without the share that each
    draw has by itself, and the deviations of the draws; they are scaled so that their spread is the
    error of a difference. What the texts do to the centres of clusters is not in the influences;
    the factor for it was measured on Gaussian classes, and ``benchmarks/errors.py`` compares it on
    others.

    >>> labels = np.arange(60) % 3
    >>> round(v_measure(9 * np.eye(3)[labels], labels, seed=0).value, 6)
    1.0
    """
    from sklearn.metrics import v_measure_score

    generator = np.random.default_rng(seed)
    rows = np.asarray(embeddings, dtype=np.float64)
    n = len(rows)
    unit = _units(n, groups)
    members = np.split(np.argsort(unit, kind="stable"), np.cumsum(np.bincount(unit))[:-1])
    half = max(2, len(members) // 2)
    scores = np.empty((_SPLITS, 2))
    draws = []
    for split in range(_SPLITS):
        order = generator.permutation(len(members))
        start = int(generator.integers(2**32))
        halves = [np.concatenate([members[i] for i in of]) for of in (order[:half], order[-half:])]
        clusters = [_clusters(rows[drawn], labels[drawn], start) for drawn in halves]
        scores[split] = [
            v_measure_score(labels[drawn], assigned)
            for drawn, assigned in zip(halves, clusters, strict=True)
        ]
        draws.append((halves[0], clusters[0]))
    of_draws = scores[:_DRAWS, 0]
    value = float(of_draws.mean())
    apart = np.append(labels[:-1], labels.max() + 1)
    lost = 1 - v_measure_score(labels, apart)
    influences = math.sqrt(_SHARED) * _shared_influence(labels, unit, draws[:_DRAWS])
    error = max(_error_of_halves(scores, (influences**2).sum()), value * lost)
    deviations = (of_draws - value) / math.sqrt(_DRAWS * (_DRAWS - 1))
    samples = np.concatenate([influences, deviations])
    m = len(samples)
    outcomes = value + math.sqrt(m * (m - 1)) * samples
    return Score(value, error, n, outcomes=outcomes)


def _clusters(rows: Floats, labels: Labels, start: int) -> Labels:
    from sklearn.cluster import KMeans

    clusters = min(len(np.unique(labels)), len(np.unique(rows, axis=0)))
    assigned: Labels = KMeans(clusters, n_init=1, random_state=start).fit_predict(rows)
    return assigned


def _error_of_halves(scores: Floats, least: float) -> float:
    """Standard error of a mean over draws of half the items.

    The scores (S, 2) are those of both halves of other splits.

    The halves of a split have no item in common, so that their difference has twice the variance of
    a draw. Less the variance among draws of the same items, it is what draws have in common, without
    bias for any score, smooth or not (Wang and Lindsay 2014). Sampled from few splits that can be
    negative, so it is at least the variance ``least``.

    >>> _error_of_halves(np.array([[0.5, 0.7], [0.7, 0.5]]), 0.0).__round__(3)
    0.106
    """
    of_draw = np.square(scores[:, 0] - scores[:, 1]).mean() / 2
    of_splits = scores.mean(axis=1).var(ddof=1)
    common = max(of_draw / 2 - of_splits, least)
    among_draws = of_draw / 2 + of_splits
    return math.sqrt(common + among_draws / _DRAWS)


def _shared_influence(
    labels: Labels, unit: Labels, draws: Sequence[tuple[Labels, Labels]]
) -> Floats:
    """Influence of the texts of each unit on the mean over draws.

    Draws are texts and their clusters. The share that each draw has by itself is left out.

    That is all of it if the clusters have nothing to do with the labels.
    """
    n = len(labels)
    units = unit.max() + 1
    influence, squares, times_drawn = np.zeros((3, units))
    for drawn, assigned in draws:
        in_draw = np.bincount(unit[drawn], _influence(labels[drawn], assigned), units)
        influence += in_draw
        squares += in_draw**2
        times_drawn[np.unique(unit[drawn])] += 1
    scale = n * np.maximum(times_drawn, 1)
    influence /= scale
    influence -= influence.mean()
    of_single_draws = (squares / scale**2).sum()
    shared = 1 - of_single_draws / max(_TOLERANCE, (influence**2).sum())
    shared_influence: Floats = influence * math.sqrt(max(0.0, shared))
    return shared_influence


def _influence(labels: Labels, clusters: Labels) -> Floats:
    """Influence (n,) of each text on the V-measure of one clustering.

    That is 2 I / (H_labels + H_clusters), and the influence on an entropy is ``-log p - H`` for the
    share p of the texts that are where the text is.
    """
    pairs = np.stack([labels, clusters], axis=1)
    total = _surprises(labels) + _surprises(clusters)
    joint = _surprises(pairs)
    entropy = total.mean()
    if entropy == 0:  # one label and one cluster
        return np.zeros(len(labels))
    value = 2 * (1 - joint.mean() / entropy)
    influence: Floats = (2 * (total - joint) - value * total) / entropy
    return influence


def _surprises(groups: Labels) -> Floats:
    """``-log p`` (n,) for the share p of each text's group."""
    _, index, counts = np.unique(groups, axis=0, return_inverse=True, return_counts=True)
    shares = counts[index.ravel()] / len(groups)
    return -np.log(shares)


def average_precision(
    first: EmbeddingArray, second: EmbeddingArray, labels: Labels, groups: Groups = None
) -> Score:
    """Average precision of the cosine as a predictor of pairs (label 1 or 0).

    The error is a jackknife over a hundred blocks of pairs, and the outcomes are its pseudo-values.
    It is smallest where a score happens to be close to 0 or 1, so it is multiplied by the error of
    a share of the P pairs that belong together, after half a pair more of each outcome (Jeffreys'
    prior; Brown, Cai and DasGupta 2001), over that of the score itself. The error of a perfect
    score is at least what it loses if the last of these pairs falls by one rank, 1 / (P (P + 1)):
    few pairs among many say little.

    >>> average_precision(np.eye(4), np.eye(4)[[0, 1, 3, 2]], np.array([1, 1, 0, 0])).value
    1.0
    """
    similarity = _tied(_cosines(first, second))
    score = jackknife(precision_of, similarity, labels, groups)
    value = score.value
    unit = _units(len(labels), groups)
    together = len(np.unique(unit[labels == 1]))  # pairs, or groups with one
    share = (together * value + 0.5) / (together + 1)
    widening = share * (1 - share) / max(_TOLERANCE, value * (1 - value))
    score = replace(score, stderr=math.sqrt(widening) * score.stderr)
    return with_error(score, min(len(np.unique(unit)), together * (together + 1)))


def spearman(
    first: EmbeddingArray, second: EmbeddingArray, grades: Floats, groups: Groups = None
) -> Score:
    """Spearman's correlation of the cosine with grades; 0 for equal cosines.

    The error is that of Bonett and Wright (2000), or of groups that of the outcomes, which are
    pseudo-values of a jackknife over a hundred blocks.

    >>> angles = np.linspace(0, 1, 9)
    >>> turned = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    >>> spearman(np.ones((9, 1)) * [1.0, 0.0], turned, -angles).value
    1.0
    """
    return correlation(_cosines(first, second), grades, groups)


def correlation(values: Floats, grades: Floats, groups: Groups = None) -> Score:
    """Spearman's correlation of values (n,) with grades; see `spearman`."""
    score = jackknife(correlation_of, values, grades, groups)
    if groups is None:
        score = replace(score, stderr=correlation_error(score.value, score.n))
    return score


def correlation_error(rho: float, n: int) -> float:
    """Standard error of Spearman's correlation of n pairs (Bonett and Wright 2000)."""
    square = rho**2
    freedom = max(1, n - 3)
    return (1 - square) * math.sqrt((1 + square / 2) / freedom)


def mean_reciprocal_rank(queries: EmbeddingArray, documents: EmbeddingArray) -> Score:
    """Mean reciprocal rank of document i for query i, by cosine.

    The embeddings are centred.

    >>> mean_reciprocal_rank(np.eye(4), np.eye(4)).value
    1.0
    """
    similarity = _unit(_centred(queries)) @ _unit(_centred(documents)).T
    own_document = np.diag(similarity)[:, None]
    ranks = (similarity >= own_document - 1e-12).sum(axis=1)
    return mean(1.0 / ranks)


def ndcg(
    queries: EmbeddingArray,
    documents: EmbeddingArray,
    judgements: Judgements,
    groups: Groups = None,
) -> Score:
    """Normalised discounted cumulative gain of the first ten documents.

    Every document is a candidate.

    A pair without a judgement is not relevant. The gain is the relevance itself, as in trec_eval.

    >>> ndcg(np.eye(3), np.eye(3), [(0, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0)]).value.__round__(3)
    0.833
    """
    unit_queries = _unit(queries)
    unit_documents = _unit(documents)
    gains = []
    for query, judged, relevances in _by_query(judgements):
        similarity = unit_documents @ unit_queries[query]
        ranks, gain = _ranks(similarity, judged, relevances)
        if len(gain):
            best = np.sort(gain)[::-1][:CUT]
            ideal = (best / np.log2(np.arange(len(best)) + 2)).sum()
            discounted = gain / np.log2(ranks + 1)
            gains.append(discounted[ranks <= CUT].sum() / ideal)
    return mean(np.array(gains), groups)


def mean_average_precision(
    queries: EmbeddingArray,
    documents: EmbeddingArray,
    judgements: Judgements,
    groups: Groups = None,
) -> Score:
    """Mean average precision over each query's own candidates.

    These are the judged documents, also of relevance 0.

    >>> mean_average_precision(np.eye(3), np.eye(3), [(0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0), (1, 1, 0.0)]).value
    0.75
    """
    unit_queries = _unit(queries)
    unit_documents = _unit(documents)
    precisions = []
    for query, judged, relevances in _by_query(judgements):
        similarity = unit_documents[judged] @ unit_queries[query]
        ranks, _ = _ranks(similarity, np.arange(len(judged)), relevances)
        if len(ranks):
            relevant_so_far = np.arange(len(ranks)) + 1
            precisions.append(np.mean(relevant_so_far / ranks))
    return mean(np.array(precisions), groups)


def _by_query(judgements: Judgements) -> Iterator[tuple[int, Labels, Floats]]:
    """Each query with its judged documents and their relevances."""
    for query, group in groupby(sorted(judgements), key=itemgetter(0)):
        by_document = {document: relevance for _, document, relevance in group}
        relevances = np.array(list(by_document.values()))
        yield query, np.array(list(by_document)), relevances


def _ranks(similarity: Floats, judged: Labels, relevances: Floats) -> tuple[Floats, Floats]:
    """Ranks of the relevant documents, best first, and their relevances."""
    relevant = relevances > 0
    documents = judged[relevant]
    gains = relevances[relevant]
    order = np.lexsort((gains, -_tied(similarity[documents])))
    documents = documents[order]
    others = np.delete(similarity, documents)
    least = similarity[documents] - _TOLERANCE
    before = [(others >= value).sum() for value in least]
    ranks = np.arange(1, len(documents) + 1) + before
    return ranks, gains[order]


def _cosines(first: EmbeddingArray, second: EmbeddingArray) -> Floats:
    cosines: Floats = (_unit(first) * _unit(second)).sum(axis=1)
    return cosines


def _tied(similarity: Floats) -> Floats:
    """Similarities rounded, so that equal ones tie."""
    return np.round(similarity, _DECIMALS)


def _centred(rows: EmbeddingArray) -> Floats:
    wide = np.asarray(rows, dtype=np.float64)
    centre: Floats = wide.mean(axis=0)
    return wide - centre


def _unit(rows: EmbeddingArray) -> Floats:
    """Rows scaled to length one; a row of zeros stays."""
    wide = np.asarray(rows, dtype=np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(norms > 0, norms, 1.0)


def precision_of(similarity: Floats, labels: Labels) -> float:
    """Average precision as in scikit-learn, without its checks, which take longer."""
    if not labels.any():
        return 0.0
    order = np.argsort(-similarity, kind="stable")
    last_of_equal = np.flatnonzero(np.diff(similarity[order], append=-np.inf))
    together = np.cumsum(labels[order])[last_of_equal]
    precision = together / (last_of_equal + 1)
    recall = together / together[-1]
    steps = np.diff(recall, prepend=0.0)
    return float((steps * precision)[::-1].copy().sum())


def correlation_of(similarity: Floats, grades: Floats) -> float:
    """Spearman's correlation; 0 if a side is constant."""
    from scipy.stats import rankdata

    ranks = rankdata([_tied(similarity), grades], axis=1)
    if len(grades) < 2 or not np.ptp(ranks, axis=1).all():
        return 0.0
    rho = np.corrcoef(ranks)[0, 1]
    return float(rho.clip(-1, 1))


def jackknife(
    statistic: Callable[..., float], values: Floats, known: NDArray[Any], groups: Groups = None
) -> Score:
    """A statistic of values and what is known of each item, with the error of its pseudo-values.

    These are its outcomes. The blocks are of random items, or of random groups. The pseudo-values
    are shifted, so that their mean is the statistic.

    Other items have other labels, so blocks of equal shares of each label would give an error that
    is too small. The blocks depend on the items' number and groups alone, so that those of two arms
    belong together.
    """
    unit = _units(len(known), groups)
    units = unit.max() + 1
    blocks = min(_BLOCKS, units)
    block = (np.random.default_rng(0).permutation(units) % blocks)[unit]
    of_rest = []
    for i in range(blocks):
        kept = block != i
        of_rest.append(statistic(values[kept], known[kept]))
    without = np.array(of_rest)
    value = statistic(values, known)
    outcomes = value + (blocks - 1) * (without.mean() - without)
    return Score(value, mean(outcomes).stderr, len(known), outcomes=outcomes)


def unseen_error(right: NDArray[np.bool_], labels: Labels, groups: Groups) -> float:
    """Error of a balanced accuracy by the classes whose items are all right, or all wrong.

    A jackknife sees no error there. Like that of `with_error`, it is of a share after one more item,
    or group, of each outcome.

    >>> labels = np.repeat([0, 1], 20)
    >>> round(unseen_error(labels == 0, labels, None), 3), unseen_error(labels < np.arange(40) % 3, labels, None)
    (0.033, 0.0)
    """
    labels = _units(len(labels), labels)
    recall = np.bincount(labels, right) / np.bincount(labels)
    units = np.unique(np.stack([labels, _units(len(labels), groups)]), axis=1)[0]
    counts = np.bincount(units)
    shares = (recall * counts + 1) / (counts + 2)
    variances = shares * (1 - shares) / counts
    return math.sqrt(variances[(recall == 0) | (recall == 1)].sum()) / len(recall)


def _units(n: int, groups: Groups) -> Labels:
    """The number of the group of each item; by default each is its own."""
    if groups is None:
        return np.arange(n)
    unit: Labels = np.unique(groups, return_inverse=True)[1]
    return unit


def with_error(score: Score, items: int | None = None) -> Score:
    """The score, with an error where its items show none.

    That is where all are perfect, all fail, or there is only one.

    Perfect items do not say that the next one will be, so the error is that of a share after one
    more item of each outcome (Laplace's rule of succession): of as many as are scored, or ``items``
    where these say less.

    >>> with_error(Score(1.0, 0.0, 60)).stderr.__round__(3), with_error(Score(0.5, 0.0, 1)).stderr
    (0.016, 0.5)
    """
    n = score.n if items is None else items
    size = abs(score.value)
    differ = n > 1 and round(size, 9) not in (0.0, 1.0)
    if differ or score.stderr > _TOLERANCE:
        return score
    n = max(1, n)
    share = (n * min(1.0, size) + 1) / (n + 2)
    return replace(score, stderr=math.sqrt(share * (1 - share) / n))


def mean(values: Floats, groups: Groups = None) -> Score:
    """The mean of values (n,) as a score, with its standard error.

    Items of one group are not independent: then the outcomes are those of groups, the mean plus the
    sum of a group's deviations from it times groups / items, so that errors are clustered by group
    (Cameron and Miller 2015, "A Practitioner's Guide to Cluster-Robust Inference", section II).

    >>> mean(np.array([0.0, 0.0, 1.0, 1.0]), np.array([7, 7, 8, 8])).stderr
    0.5
    """
    value = float(values.mean())
    n = len(values)
    if groups is not None:
        deviations = np.bincount(_units(n, groups), values - value)
        values = value + deviations * len(deviations) / n
    error = 0.0
    if len(values) > 1:
        error = float(values.std(ddof=1) / math.sqrt(len(values)))
    return Score(value, error, n, outcomes=values)


def _balanced_accuracy(predicted: Labels, labels: Labels) -> float:
    right, of_label, _ = _counts(predicted, labels)
    return float(np.mean(right[of_label > 0] / of_label[of_label > 0]))


def _macro_f1(predicted: Labels, labels: Labels) -> float:
    right, of_label, of_prediction = _counts(predicted, labels)
    total = of_label + of_prediction
    return float(np.mean(2 * right[total > 0] / total[total > 0]))


def _mcc(predicted: Labels, labels: Labels) -> float:
    """Matthews' correlation of K classes (Gorodkin 2004)."""
    right, of_label, of_prediction = _counts(predicted, labels)
    square = len(labels) ** 2
    variances = (square - of_label @ of_label) * (square - of_prediction @ of_prediction)
    if not variances:
        return 0.0
    return float((right.sum() * len(labels) - of_label @ of_prediction) / math.sqrt(variances))


def _counts(predicted: Labels, labels: Labels) -> tuple[Labels, Labels, Labels]:
    """How often each class is predicted rightly, known, and predicted."""
    classes = 1 + max(predicted.max(), labels.max())
    right = labels[predicted == labels]
    count = partial(np.bincount, minlength=classes)
    return count(right), count(labels), count(predicted)


def _mean_precision(scores: Floats, known: Labels) -> float:
    """Mean of the average precisions of the labels (n, K) that occur."""
    columns = np.flatnonzero(known.any(axis=0))
    return float(np.mean([precision_of(scores[:, label], known[:, label]) for label in columns]))


ACCURACY = "accuracy"
PRECISION = "average_precision"
MEASURES: Mapping[str, Callable[..., float]] = {
    "balanced_accuracy": _balanced_accuracy,
    "macro_f1": _macro_f1,
    "mcc": _mcc,
    PRECISION: _mean_precision,
}
"""Of the predictions of a classification, beside accuracy; a precision is of scores (n, K)."""
