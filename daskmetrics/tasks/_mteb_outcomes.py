"""Outcomes per item of the benchmark's tasks, seen where its evaluators hand their predictions to its scores.

======================= ===========================================================================================
classification          the share of its draws in which a text is predicted rightly
retrieval, reranking    nDCG, average precision, recall or precision of each query
sts                     pseudo-values of Spearman's correlation of the cosine
pair_classification     pseudo-values of the average precision of the similarity that is best
clustering              pseudo-values of its draws, which are the same for all arms
======================= ===========================================================================================

A task has outcomes only if their mean is its main score; this excludes a mean over several subsets, F1, and others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskmetrics.core._outcomes import TOLERANCE
from daskmetrics.tasks import _measures as measures

Array = NDArray[np.float64]

_PER_QUERY = {"ndcg_at_": "ndcg_cut_", "map_at_": "map_cut_", "recall_at_": "recall_", "precision_at_": "P_"}
_SIMILARITIES = {  # and their sign
    "cosine_scores": 1,
    "dot_scores": 1,
    "similarity_scores": 1,
    "manhattan_distances": -1,
    "euclidean_distances": -1,
}


class Observer:
    """Sees the predictions of one run of a task."""

    def __init__(self) -> None:
        self._parts: dict[bytes, list[Array]] = {}  # draws of the same items, by these items

    def watch(self, task: Any) -> None:
        """Observe this task object, which must not be used for another run."""
        main = task.metadata.main_score
        hooks: Mapping[
            str, tuple[str, Callable[..., None]]
        ] = {  # by the benchmark's type of task: where its predictions appear, and what sees them
            "Classification": ("_calculate_scores", self._right),
            "STS": ("_calculate_scores", self._correlation),
            "PairClassification": ("_compute_metrics", self._precision),
            "Retrieval": ("task_specific_scores", partial(self._queries, main)),
            "Reranking": ("task_specific_scores", partial(self._queries, main)),
        }
        name, see = hooks.get(task.metadata.type, ("", self._right))
        if original := getattr(task, name, None):

            def seen(*args: Any, **keywords: Any) -> Any:
                see(*args)
                return original(*args, **keywords)

            setattr(task, name, seen)

    def outcomes(self, score: float, draws: Sequence[float] = ()) -> Array | None:
        """Outcomes whose mean is this score; from draws of a clustering if there are any; None if there are none."""
        parts = [np.mean(part, axis=0) for part in self._parts.values()]
        if draws and not parts:
            parts = [measures.draw_outcomes(draws)]
        found = np.concatenate(parts or [np.empty(0)])
        return found if len(found) > 1 and abs(found.mean() - score) <= TOLERANCE else None

    def _add(self, items: ArrayLike, outcomes: Array) -> None:
        self._parts.setdefault(np.asarray(items).tobytes(), []).append(outcomes)

    def _right(self, y_test: ArrayLike, y_pred: ArrayLike) -> None:
        self._add(y_test, (np.asarray(y_test) == np.asarray(y_pred)).astype(np.float64))

    def _queries(self, main: str, scores: Mapping[str, Mapping[str, float]], *_: Any) -> None:
        name = next((main.replace(ours, theirs) for ours, theirs in _PER_QUERY.items() if main.startswith(ours)), main)
        order = sorted(query for query, of_query in scores.items() if name in of_query)
        if order:
            self._add(order, np.array([scores[query][name] for query in order]))

    def _correlation(self, scores: Mapping[str, Sequence[float]], grades: Sequence[float]) -> None:
        self._add(grades, measures.correlation_outcomes(np.array(scores["cosine_scores"]), np.array(grades)))

    def _precision(self, scores: Mapping[str, Sequence[float]], labels: Sequence[int]) -> None:
        from sklearn.metrics import average_precision_score

        known = [np.array(scores[name]) * sign for name, sign in _SIMILARITIES.items() if scores.get(name) is not None]
        best = max(known, key=lambda similarity: average_precision_score(labels, similarity))
        self._add(labels, measures.precision_outcomes(best, np.array(labels)))
