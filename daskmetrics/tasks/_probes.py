"""From embeddings and labels to an accuracy: small classifiers, scored by cross-validation.

Pure functions of arrays, one thread each. Libraries are imported inside them, so that resolving a
task is fast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.tasks.task import EmbeddingArray, Score

Labels = NDArray[np.int64]

FOLDS = 3
DEFAULT = "logistic"
PROBES = ("logistic", "ridge", "knn", "centroid", "xgboost", "lightgbm")
_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "xgboost": ("xgboost-cpu", "xgboost"),
    "lightgbm": ("lightgbm",),
}
# C of the regression: strong, since there are about as many texts as dimensions; it also converges
# quickly
_SHRINKAGE = 0.03
_NEIGHBOURS = 5
_TREES = 100
_DEPTH = 4


def classify(
    embeddings: EmbeddingArray, labels: Labels, seed: int, probe: str = DEFAULT, fitted: int = 0
) -> Score:
    """Accuracy of a cross-validated probe, one of `PROBES`.

    Each text is predicted once, by a probe that has not seen it; the error is binomial over texts,
    and an outcome says whether the prediction is right. There are at least `FOLDS` texts of each
    class, 0 to K - 1. The seed decides the folds and the random choices of the probe.

    With ``fitted`` only the texts after the first so many are predicted, by the probes of the folds
    of the first ones: these have as many texts to learn from as in a cross-validation of the first
    texts alone.

    >>> labels = np.arange(60) % 3
    >>> classify(np.eye(3)[labels], labels, seed=0)
    Score(value=1.0, stderr=0.0, n=60)
    >>> classify(np.eye(3)[labels], labels, seed=0, probe="centroid").value
    1.0
    """
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    require(probe)
    seed32 = seed % 2**32  # the largest seed of scikit-learn
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed32)
    rows = np.asarray(embeddings, dtype=np.float64)
    if fitted:
        predicted = np.empty_like(labels[fitted:])
        for fold, (train, _) in enumerate(folds.split(rows[:fitted], labels[:fitted])):
            model = _model(probe, seed32).fit(rows[train], labels[train])
            predicted[fold::FOLDS] = model.predict(rows[fitted + fold :: FOLDS])
    else:
        predicted = cross_val_predict(_model(probe, seed32), rows, labels, cv=folds)
    right = predicted == labels[fitted:]
    value, n = float(right.mean()), len(right)
    return Score(value, math.sqrt(value * (1 - value) / n), n, outcomes=right)


def order(first: EmbeddingArray, second: EmbeddingArray, seed: int, fitted: int = 0) -> Score:
    """Accuracy of distinguishing (first, second) from (second, first), by a probe on their
    difference.

    The seed decides which half of the pairs is swapped, and the folds. Chance is 1/2; the error is
    binomial over pairs. ``fitted`` is as in `classify`, in pairs.

    >>> noise = np.random.default_rng(0).normal(size=(40, 4))
    >>> order(noise, noise + [9, 0, 0, 0], seed=0).value
    1.0
    """
    swapped = np.random.default_rng(seed).permutation(len(first)) % 2
    signed = (1 - 2 * swapped)[:, None] * (np.asarray(second, dtype=np.float64) - first)
    return classify(signed, swapped, seed, fitted=fitted)


def require(probe: str) -> None:
    """Check that a probe exists and that its library is installed."""
    if probe not in PROBES:
        raise unknown("probe", probe, PROBES)
    if probe in _LIBRARIES and not any(library_version(probe)):
        raise ConfigError(
            f"Probe '{probe}' needs {_LIBRARIES[probe][0]}: pip install 'daskmetrics[trees]'"
        )


def library_version(probe: str) -> tuple[str, str]:
    """The library of a probe and its version; both empty if it is not installed.

    >>> library_version("ridge")[0]
    'scikit-learn'
    """
    for name in _LIBRARIES.get(probe, ("scikit-learn",)):
        try:
            return name, version(name)
        except PackageNotFoundError:
            continue
    return "", ""


def _model(probe: str, seed: int) -> Any:
    """A new classifier; the seed is below 2^32."""
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

    match probe:
        case "logistic":
            return make_pipeline(StandardScaler(), LogisticRegression(C=_SHRINKAGE, max_iter=2000))
        case "ridge":
            return make_pipeline(StandardScaler(), RidgeClassifier(alpha=1 / _SHRINKAGE))
        case "knn":
            # for rows of length one, the nearest by distance is the nearest by cosine
            neighbours = KNeighborsClassifier(_NEIGHBOURS, algorithm="brute")
            return make_pipeline(StandardScaler(with_std=False), Normalizer(), neighbours)
        case "centroid":
            return make_pipeline(StandardScaler(), NearestCentroid())
        case "xgboost":
            from xgboost import XGBClassifier

            return XGBClassifier(
                n_estimators=_TREES,
                max_depth=_DEPTH,
                tree_method="hist",
                n_jobs=1,
                random_state=seed,
            )
    import pandas as pd
    from lightgbm import LGBMClassifier

    trees = LGBMClassifier(
        n_estimators=_TREES,
        max_depth=_DEPTH,
        n_jobs=1,
        random_state=seed,
        deterministic=True,
        verbosity=-1,
    )
    # named columns: LightGBM invents names otherwise, and warns that predictions come without them
    return make_pipeline(
        FunctionTransformer(lambda rows: pd.DataFrame(rows).add_prefix("d")), trees
    )
