"""The data of a task of any kind, and how it is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from daskmetrics.core.errors import DataError
from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._measures import Judgement
from daskmetrics.tasks._task import Embeddings, Score


@dataclass(frozen=True)
class Examples:
    """Texts, and what is known of them.

    Attributes
    ----------
    texts : tuple of str
        Of pairs first all first texts, then all seconds; of a search first the queries, then the documents.
    labels : tuple of float
        The class of each text, 0 to K - 1; of pairs whether they belong together (0 or 1), or a grade of likeness.
    judged : tuple of (query, document, relevance)
        Of a search: places among the queries and among the documents.
    queries : int
        How many of the texts are queries.
    """

    texts: tuple[str, ...]
    labels: tuple[float, ...] = ()
    judged: tuple[Judgement, ...] = ()
    queries: int = 0


@dataclass(frozen=True)
class Kind:
    """How tasks of one kind are scored.

    Attributes
    ----------
    main_score : str
    measure : callable
        From embeddings, examples, a seed and the name of a probe to a `Score`.
    """

    main_score: str
    measure: Callable[[Embeddings, Examples, int, str], Score]


def require_fit(task: str, embeddings: Embeddings, texts: int) -> None:
    """Make sure that embeddings are finite rows, one for each text.

    Raises
    ------
    DataError
        If not.
    """
    if embeddings.ndim != 2 or len(embeddings) != texts:
        raise DataError(f"Task '{task}' wants embeddings of shape ({texts}, D), got {embeddings.shape}.")
    if not np.isfinite(embeddings).all():
        raise DataError(f"Task '{task}' got embeddings that are not finite; look at the model's weights.")


def _classify(embeddings: Embeddings, examples: Examples, seed: int, probe: str) -> Score:
    return probes.classify(embeddings, np.array(examples.labels, dtype=np.int64), seed, probe)


def _cluster(embeddings: Embeddings, examples: Examples, seed: int, probe: str) -> Score:
    return measures.cluster(embeddings, np.array(examples.labels, dtype=np.int64), seed)


def _match(embeddings: Embeddings, examples: Examples, seed: int, probe: str) -> Score:
    first, second = np.split(embeddings, 2)
    return measures.match(first, second, np.array(examples.labels, dtype=np.int64))


def _grade(embeddings: Embeddings, examples: Examples, seed: int, probe: str) -> Score:
    first, second = np.split(embeddings, 2)
    return measures.grade(first, second, np.array(examples.labels, dtype=np.float64))


def _search(embeddings: Embeddings, examples: Examples, seed: int, probe: str) -> Score:
    queries, documents = np.split(embeddings, [examples.queries])
    return measures.search(queries, documents, examples.judged)


def _rerank(embeddings: Embeddings, examples: Examples, seed: int, probe: str) -> Score:
    queries, documents = np.split(embeddings, [examples.queries])
    return measures.rerank(queries, documents, examples.judged)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "classification": Kind("accuracy", _classify),
        "clustering": Kind("v_measure", _cluster),
        "pair_classification": Kind("average_precision", _match),
        "sts": Kind("spearman", _grade),
        "retrieval": Kind("ndcg_at_10", _search),
        "reranking": Kind("map", _rerank),
    }
)
"""The kinds of tasks, and how each is scored."""
