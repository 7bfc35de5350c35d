"""From embeddings and labels to an accuracy: small classifiers, scored by cross-validation.

Pure functions of arrays, one thread each. Libraries are imported inside them, so that resolving a
task is fast.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import ConfigError, require_known
from daskmetrics.tasks._measures import (
    ACCURACY,
    MEASURES,
    PRECISION,
    Groups,
    correlation,
    jackknife,
    mean,
    unseen_error,
)
from daskmetrics.tasks.task import EmbeddingArray, Floats, Labels, Score

FOLDS = 3
DEFAULT = "logistic"
_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "xgboost": ("xgboost-cpu", "xgboost"),
    "lightgbm": ("lightgbm",),
}
# C of the regression: strong, since there are about as many texts as dimensions; it also converges
# quickly
_SHRINKAGE = 0.03
_PENALTIES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)  # values of C to choose from
_NEIGHBOURS = 5
_TREES = 100
_DEPTH = 4
SETTINGS: Mapping[str, str] = {
    "logistic": f"standardised; logistic regression, L2 with C = {_SHRINKAGE}",
    "logistic_cv": f"as logistic; C of {', '.join(f'{c:g}' for c in _PENALTIES)} is chosen by the texts it learns from",
    "ridge": f"standardised; ridge classifier, alpha = {1 / _SHRINKAGE:.1f}",
    "knn": f"centred, of length one; the majority of the {_NEIGHBOURS} nearest by cosine",
    "centroid": "standardised; the nearest mean of a class",
    "xgboost": f"{_TREES} trees of depth {_DEPTH}",
    "lightgbm": f"{_TREES} trees of depth {_DEPTH}",
}  #: of each probe
PROBES = tuple(SETTINGS)


@dataclass(frozen=True, eq=False)
class Folds:
    """Which items fit the probes that are tested on others."""

    fitted: int = 0
    """With it only the items after the first so many are tested, by the probes of the folds of the
    first ones: these have as many items to learn from as in a cross-validation of them alone."""
    groups: Groups = None
    """Items of one group are in one fold."""
    repeats: int = 1
    """How often the items are divided into folds, by a seed of its own each time."""

    def seeds(self, seed: int) -> Iterable[int]:
        """The seed of each division into folds."""
        return range(seed, seed + self.repeats)

    @property
    def tested_groups(self) -> Groups:
        """The groups of the tested items."""
        return None if self.groups is None else self.groups[self.fitted :]

    def splits(self, plain: Any, strata: Labels, seed: int) -> Iterator[tuple[Labels, Labels]]:
        """Items that fit and those of the fold, by a plain splitter where there are no groups."""
        from sklearn.model_selection import StratifiedGroupKFold

        n = self.fitted or len(strata)
        splitter, groups = plain, None
        if self.groups is not None:
            splitter = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed % 2**32)
            groups = self.groups[:n]
        for fold, (train, tested) in enumerate(splitter.split(strata[:n], strata[:n], groups)):
            if self.fitted:
                tested = np.arange(n + fold, len(strata), FOLDS)
            yield train, tested


ALL = Folds()  #: items test the probes of each other
Factors = tuple[float, float]
"""Of the variance of a score and of that of its outcomes, for what probes learn from the same items."""
NO_FACTORS = (1.0, 1.0)  # tested items that fitted no probe


def classify(
    embeddings: EmbeddingArray,
    labels: Labels,
    seed: int,
    probe: str = DEFAULT,
    folds: Folds = ALL,
    measure: str = ACCURACY,
) -> Score:
    """Accuracy, or one of `MEASURES`, of a cross-validated probe, one of `PROBES`.

    Each text is predicted once, by a probe that has not seen it. There are at least `FOLDS` texts
    of each class, 0 to K - 1. The seed decides the folds and the random choices of the probe.

    The error counts the texts that a probe learns from, too: see `_inflation`. Outcomes are right
    or wrong (1, 0), or the share of the folds' repeats in which they are right, spread about the
    score so that the errors of differences count them as well.

    >>> labels = np.arange(60) % 3
    >>> classify(np.eye(3)[labels], labels, seed=0)
    Score(value=1.0, stderr=0.0, n=60)
    >>> classify(np.eye(3)[labels], labels, seed=0, probe="centroid").value
    1.0
    """
    require(probe)
    return _over_folds(
        _classified(embeddings, labels, each, probe, folds, measure) for each in folds.seeds(seed)
    )


def _classified(
    embeddings: EmbeddingArray, labels: Labels, seed: int, probe: str, folds: Folds, measure: str
) -> tuple[Score, Factors]:
    from sklearn.model_selection import StratifiedKFold

    seed32 = seed % 2**32  # the largest seed of scikit-learn
    plain = StratifiedKFold(FOLDS, shuffle=True, random_state=seed32)
    model = _model(probe, seed32, folds.fitted or len(labels))
    splits = folds.splits(plain, labels, seed)
    known, groups = labels[folds.fitted :], folds.tested_groups
    if measure == PRECISION:
        counts = np.bincount(labels)
        predict = partial(_class_scores, len(counts))
        scores = _predicted(model, splits, embeddings, labels, predict)
        # of two labels the rarer, whose precision says more
        chosen = np.arange(len(counts)) if len(counts) > 2 else [counts.argmin()]
        predicted = scores.argmax(axis=1)
        compared = scores[:, chosen], known[:, None] == chosen
    else:
        predicted = _predicted(model, splits, embeddings, labels)
        compared = predicted, known
    right = predicted == known
    score = mean(right.astype(np.float64), groups)
    accuracy = score.value
    variance = accuracy * (1 - accuracy)
    texts = float(len(known))
    if groups is None:
        score = replace(score, stderr=math.sqrt(variance / texts))
    elif score.stderr:
        texts = variance / score.stderr**2  # so many independent ones would have this error
    if measure != ACCURACY:
        score = jackknife(MEASURES[measure], *compared, groups)
        score = replace(score, stderr=max(score.stderr, unseen_error(right, known, groups)))
    if folds.fitted:
        return score, NO_FACTORS
    single, paired = _inflation(accuracy, len(np.unique(labels)), texts, embeddings.shape[1])
    if groups is not None:  # measured: nothing of it cancels in a difference
        paired = single
    return score, (single, paired)


def _over_folds(divisions: Iterable[tuple[Score, Factors]]) -> Score:
    """The mean over divisions of the items into folds, with its variances times their factors.

    The part of a variance by which outcomes of one item vary between divisions becomes less with
    their number; that of the items, and of what probes learn from them, stays.

    >>> folds = [Score(0.5, 0.25, 4, outcomes=np.array([1.0, 0, 1, 0])),
    ...          Score(0.5, 0.25, 4, outcomes=np.array([1.0, 0, 0, 1]))]
    >>> once, twice = _over_folds([(folds[0], NO_FACTORS)]), _over_folds((fold, NO_FACTORS) for fold in folds)
    >>> once.stderr, round(twice.stderr, 3), twice.outcomes
    (0.25, 0.177, array([1. , 0. , 0.5, 0.5]))
    """
    scored = list(divisions)
    scores = [score for score, _ in scored]
    value = float(np.mean([score.value for score in scores]))
    deviations = np.array([np.asarray(score.outcomes) - score.value for score in scores])
    removed = deviations.var(axis=0).mean()
    single, paired = np.sqrt([factors for _, factors in scored]).T
    errors = single * [score.stderr for score in scores]
    stderr = math.sqrt(max(0.0, (errors**2).mean() - removed / deviations.shape[1]))
    spread = paired[:, None] * deviations
    deviation = spread.mean(axis=0)
    if variance := deviation.var():
        deviation *= math.sqrt(float(spread.var(axis=1).mean() - removed) / float(variance))
    return replace(scores[0], value=value, stderr=stderr, outcomes=value + deviation)


def _inflation(accuracy: float, classes: int, texts: float, width: int) -> Factors:
    """Factors of the variances of a cross-validated accuracy and of a paired difference.

    Texts of different folds train each other's probes, so that their outcomes are correlated: the
    variance of a mean over folds exceeds that of independent outcomes (Nadeau and Bengio 2003,
    section 3). How much cannot be estimated from one cross-validation without bias (Bengio and
    Grandvalet 2004), so it is derived for a simple case: a probe that is the difference of the
    means of two Gaussian classes whose variance is equal in all dimensions. Nothing is fitted. If a
    text is right when a normal margin is positive, small correlations of margins become
    correlations of outcomes in proportion to ``density^2 / (accuracy (1 - accuracy))``, with the
    normal density at the margin of that accuracy. The difference of means consists of that of the
    classes, which has the share ``true`` of its squared length, as the accuracy above that of
    guessing shows, and of chance in the texts of the two classes. The correlations of a text with
    all others add up to ``1 - true`` by the chance that two texts have in common when each trains
    the probe of the other, and to ``true*(1-true)*(3-true)`` by what a text changes in the
    direction of the classes. With more classes, most pairs of texts do not concern each other. Half
    of it cancels in a difference. ``benchmarks/errors.py`` compares the errors with other probes on
    other populations.

    >>> [round(factor, 2) for factor in _inflation(0.9, classes=2, texts=200, width=384)]
    [1.38, 1.19]
    """
    if not 0 < accuracy < 1:
        return NO_FACTORS
    normal = NormalDist()
    margin = normal.inv_cdf(accuracy)
    of_outcomes = normal.pdf(margin) ** 2 / (accuracy * (1 - accuracy))
    learned = max(0.0, margin - normal.inv_cdf(1 / max(2, classes))) ** 2
    texts_of_two = texts * (1 - 1 / FOLDS) * 2 / classes  # in a training set
    chance = width / texts_of_two
    classes_apart = learned / 2 + math.sqrt(learned**2 / 4 + learned * chance)
    true = classes_apart / (classes_apart + chance)
    of_margins = (1 - true) * (1 + true * (3 - true))
    concerned = classes / (2 * max(1, classes - 1))
    excess = of_outcomes * of_margins * concerned
    return 1 + excess, 1 + excess / 2


def regress(embeddings: EmbeddingArray, grades: Floats, seed: int, folds: Folds = ALL) -> Score:
    """Spearman's correlation of grades (n,) with a cross-validated ridge regression.

    Folds are those of `classify`.

    Error and outcomes are those of a correlation, whose variance is multiplied by ``2 - rho^2``
    where the folds train each other's regressions. As in `classify` this is greatest where nothing
    was learned; the factor was fitted to populations with known truth.

    >>> grades = np.arange(30.0)
    >>> regress(np.stack([grades, grades % 2], axis=1), grades, seed=0).value > 0.9
    True
    """
    return _over_folds(_regressed(embeddings, grades, each, folds) for each in folds.seeds(seed))


def _regressed(
    embeddings: EmbeddingArray, grades: Floats, seed: int, folds: Folds
) -> tuple[Score, Factors]:
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import KFold

    ridge = _scaled(Ridge(alpha=1 / _SHRINKAGE))
    plain = KFold(FOLDS, shuffle=True, random_state=seed % 2**32)
    splits = folds.splits(plain, np.zeros(len(grades), dtype=np.int64), seed)
    # in no units: equal predictions are found by rounding
    scaled = (grades - grades.min()) / (np.ptp(grades) or 1.0)
    predicted = _predicted(ridge, splits, embeddings, scaled)
    score = correlation(predicted, grades[folds.fitted :], folds.tested_groups)
    if folds.fitted:
        return score, NO_FACTORS
    factor = 2 - score.value**2
    return score, (factor, factor)


def rank_labels(
    embeddings: EmbeddingArray, known: Labels, rarest: Labels, seed: int, folds: Folds = ALL
) -> Score:
    """Label ranking average precision of a logistic probe for each label.

    The score is that of Tsoumakas, Katakis and Vlahavas (2010); each text is new to its probes.

    ``known`` (n, K) is 1 for the labels of a text, and ``rarest`` (n,) the rarest of each: folds
    have equal shares of these. The score is a mean over texts, which are the outcomes, spread as
    those of `classify` for the two classes that each probe tells apart.

    >>> known = np.eye(3, dtype=int)[np.arange(60) % 3] | np.eye(3, dtype=int)[np.arange(60) % 2]
    >>> rank_labels(known * 9.0, known, np.arange(60) % 3, seed=0).value > 0.98
    True
    """
    return _over_folds(
        _labels_ranked(embeddings, known, rarest, each, folds) for each in folds.seeds(seed)
    )


def _labels_ranked(
    embeddings: EmbeddingArray, known: Labels, rarest: Labels, seed: int, folds: Folds
) -> tuple[Score, Factors]:
    from sklearn.metrics import label_ranking_average_precision_score as precision
    from sklearn.model_selection import PredefinedSplit
    from sklearn.multiclass import OneVsRestClassifier

    fitting = rarest[: folds.fitted or len(rarest)]
    n = len(fitting)
    draws = np.random.default_rng(seed).random(n)
    fold = np.empty(n, dtype=np.int64)
    fold[np.lexsort((draws, fitting))] = np.arange(n) % FOLDS
    model = OneVsRestClassifier(_model(DEFAULT, 0, n))
    splits = folds.splits(PredefinedSplit(fold), rarest, seed)
    with warnings.catch_warnings():
        # a label on none, or all, of the texts that fit a probe: its probability is 0, or 1
        warnings.filterwarnings("ignore", "Label .* is present in all training")
        probability = _predicted(
            model, splits, embeddings, known, lambda fit, x: fit.predict_proba(x)
        )
    precisions = []
    for labels, row in zip(known[folds.fitted :], probability, strict=True):
        precisions.append(precision([labels], [row]))
    score = mean(np.array(precisions), folds.tested_groups)
    if folds.fitted:
        return score, NO_FACTORS
    return score, _inflation(score.value, 2, n, embeddings.shape[1])


def _predicted(
    model: Any,
    splits: Iterable[tuple[Labels, Labels]],
    embeddings: EmbeddingArray,
    known: NDArray[Any],
    predict: Callable[[Any, Floats], NDArray[Any]] = lambda fit, rows: fit.predict(rows),
) -> NDArray[Any]:
    """Predictions of each tested item, in their order, by the model of a fold that has not seen it."""
    from sklearn.base import clone

    rows = np.asarray(embeddings, dtype=np.float64)
    items, of_folds = [], []
    for train, tested in splits:
        items.append(tested)
        of_folds.append(predict(clone(model).fit(rows[train], known[train]), rows[tested]))
    predicted: NDArray[Any] = np.concatenate(of_folds)[np.argsort(np.concatenate(items))]
    return predicted


def _class_scores(classes: int, model: Any, rows: Floats) -> Floats:
    """Scores (n, K) of all classes; a class that the model has not seen has the least."""
    if hasattr(model, "predict_proba"):
        of_seen = model.predict_proba(rows)
    else:
        of_seen = model.decision_function(rows)
        if of_seen.ndim == 1:
            of_seen = np.stack([-of_seen, of_seen], axis=1)
    scores = np.full((len(rows), classes), of_seen.min())
    scores[:, model.classes_] = of_seen
    return scores


def order(first: EmbeddingArray, second: EmbeddingArray, seed: int, folds: Folds = ALL) -> Score:
    """Accuracy of telling (first, second) from (second, first), by their difference.

    The seed decides which half of the pairs is swapped, and the folds. Chance is 1/2. Errors and
    folds are those of `classify`, in pairs.

    >>> noise = np.random.default_rng(0).normal(size=(40, 4))
    >>> order(noise, noise + [9, 0, 0, 0], seed=0).value
    1.0
    """
    swapped = np.random.default_rng(seed).permutation(len(first)) % 2
    signs = 1 - 2 * swapped
    differences = np.asarray(second, dtype=np.float64) - first
    return classify(signs[:, None] * differences, swapped, seed, folds=folds)


def require(probe: str) -> None:
    """Check that a probe exists and that its library is installed."""
    require_known("probe", probe, PROBES)
    if probe in _LIBRARIES and not any(library_version(probe)):
        raise ConfigError(
            f"Probe '{probe}' needs {_LIBRARIES[probe][0]}: pip install 'daskmetrics[trees]'"
        )


def library_version(probe: str) -> tuple[str, str]:
    """The library of a probe and its version, empty if not installed.

    >>> library_version("ridge")[0]
    'scikit-learn'
    """
    for name in _LIBRARIES.get(probe, ("scikit-learn",)):
        with suppress(PackageNotFoundError):
            return name, version(name)
    return "", ""


def _scaled(model: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def _model(probe: str, seed: int, texts: int) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

    match probe:
        case "logistic":
            return _scaled(LogisticRegression(C=_SHRINKAGE, max_iter=2000))
        case "logistic_cv":
            logistic = LogisticRegression(max_iter=2000)
            # of each class at least so many texts are in the other folds
            folds = StratifiedKFold(FOLDS - 1, shuffle=True, random_state=seed)
            return _scaled(GridSearchCV(logistic, {"C": _PENALTIES}, cv=folds))
        case "ridge":
            return _scaled(RidgeClassifier(alpha=1 / _SHRINKAGE))
        case "knn":
            # for rows of length one, the nearest by distance is the nearest by cosine
            nearest = min(_NEIGHBOURS, texts * (FOLDS - 1) // FOLDS)  # at most all that it learns
            neighbours = KNeighborsClassifier(nearest, algorithm="brute")
            return make_pipeline(StandardScaler(with_std=False), Normalizer(), neighbours)
        case "centroid":
            return _scaled(NearestCentroid())
    trees = {"n_estimators": _TREES, "max_depth": _DEPTH, "n_jobs": 1, "random_state": seed}
    if probe == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(tree_method="hist", **trees)
    from lightgbm import LGBMClassifier

    # named columns: LightGBM invents names otherwise, and warns that predictions come without them
    named = FunctionTransformer(feature_names_out="one-to-one").set_output(transform="pandas")
    return make_pipeline(named, LGBMClassifier(deterministic=True, verbosity=-1, **trees))
