"""From embeddings and labels to a score: logistic regression and ranking by cosine.

Pure functions of arrays. Scikit-learn is imported inside them, so that naming a task costs nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from daskmetrics.tasks.task import Embeddings, Score

Labels = NDArray[np.int64]

FOLDS = 3
_SHRINKAGE = (
    0.03  # C of the regression: strong, since there are about as many texts as dimensions; and quick to converge
)


def classify(embeddings: Embeddings, labels: Labels, seed: int) -> Score:
    """Accuracy of a cross-validated logistic regression on standardised features.

    Parameters
    ----------
    embeddings : ndarray, shape (texts, D)
    labels : ndarray of int, shape (texts,)
        At least `FOLDS` texts of each class.
    seed : int
        Decides the folds.

    Returns
    -------
    Score
        Each text is predicted once, by a probe that has not seen it; the error is binomial over texts.

    Examples
    --------
    >>> labels = np.arange(60) % 3
    >>> classify(np.eye(3)[labels], labels, seed=0)
    Score(value=1.0, stderr=0.0, n=60)
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=_SHRINKAGE, max_iter=2000))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=_seed32(seed))
    predicted = cross_val_predict(probe, np.asarray(embeddings, dtype=np.float64), labels, cv=folds)
    return _share(predicted == labels)


def order(first: Embeddings, second: Embeddings, seed: int) -> Score:
    """Accuracy of telling (first, second) from (second, first), by a probe on the difference of the two.

    Parameters
    ----------
    first, second : ndarray, shape (pairs, D)
    seed : int
        Decides which half of the pairs is shown swapped, and the folds.

    Returns
    -------
    Score
        Each pair is judged once; chance is 1/2 and the error is binomial over pairs.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=(40, 4))
    >>> order(noise, noise + [9, 0, 0, 0], seed=0).value
    1.0
    """
    swapped = np.random.default_rng(seed).permutation(len(first)) % 2
    sign = 1 - 2 * swapped
    return classify(sign[:, None] * (np.asarray(second, dtype=np.float64) - first), swapped, seed)


def retrieve(queries: Embeddings, documents: Embeddings) -> Score:
    """Mean reciprocal rank of each query's own document among all, by cosine of the centred embeddings.

    Parameters
    ----------
    queries, documents : ndarray, shape (pairs, D)
        Row i of one belongs to row i of the other.

    Returns
    -------
    Score
        The error is that of a mean over queries; ties count against the query.

    Examples
    --------
    >>> retrieve(np.eye(4), np.eye(4)).value
    1.0
    """
    similarity = _unit(queries) @ _unit(documents).T
    # a hair of tolerance: equal vectors must tie whatever the order of summation
    ranks = (similarity >= np.diag(similarity)[:, None] - 1e-12).sum(axis=1)
    return _mean(1.0 / ranks)


def _unit(rows: Embeddings) -> NDArray[np.float64]:
    """Centred rows of length one; a row of zeros stays."""
    centred = np.asarray(rows, dtype=np.float64) - np.mean(rows, axis=0, dtype=np.float64)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred / np.where(norms > 0, norms, 1.0)


def _share(hits: NDArray[np.bool_]) -> Score:
    n = len(hits)
    value = float(hits.mean())
    return Score(value, math.sqrt(value * (1 - value) / n), n)


def _mean(values: NDArray[np.float64]) -> Score:
    n = len(values)
    return Score(float(values.mean()), float(values.std(ddof=1) / math.sqrt(n)), n)


def _seed32(seed: int) -> int:
    return seed % 2**32  # as far as scikit-learn counts
