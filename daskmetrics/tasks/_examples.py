"""The data of a task, and how each kind of task is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from daskmetrics.core.errors import DataError
from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._measures import Judgement
from daskmetrics.tasks._task import EmbeddingArray, Score


@dataclass(frozen=True)
class Examples:
    """The texts of a task and their labels."""

    texts: tuple[str, ...]
    """For pairs all first texts, then all second texts; for a retrieval the queries, then the documents."""
    labels: tuple[float, ...] = ()
    """Classes, 0 to K - 1; for pairs whether they belong together (0 or 1), or a grade of similarity."""
    judgements: tuple[Judgement, ...] = ()  # for a retrieval
    queries: int = 0  # among the texts


@dataclass(frozen=True)
class TaskKind:
    """How tasks of one kind are scored: from embeddings, examples, a seed and the name of a probe to a `Score`."""

    main_score: str
    measure: Callable[[EmbeddingArray, Examples, int, str], Score]


def check_embeddings(task: str, embeddings: EmbeddingArray, texts: int) -> None:
    """Check that embeddings have one finite row for each text."""
    if embeddings.ndim != 2 or len(embeddings) != texts:
        raise DataError(f"Task '{task}' needs embeddings of shape ({texts}, D), got {embeddings.shape}.")
    if not np.isfinite(embeddings).all():
        raise DataError(f"Task '{task}' got embeddings that are not finite; check the weights of the model.")


def _score_classification(embeddings: EmbeddingArray, examples: Examples, seed: int, probe: str) -> Score:
    return probes.classify(embeddings, np.array(examples.labels, dtype=np.int64), seed, probe)


def _score_clustering(embeddings: EmbeddingArray, examples: Examples, seed: int, probe: str) -> Score:
    return measures.v_measure(embeddings, np.array(examples.labels, dtype=np.int64), seed)


def _score_pairs(embeddings: EmbeddingArray, examples: Examples, seed: int, probe: str) -> Score:
    first, second = np.split(embeddings, 2)
    return measures.average_precision(first, second, np.array(examples.labels, dtype=np.int64))


def _score_sts(embeddings: EmbeddingArray, examples: Examples, seed: int, probe: str) -> Score:
    first, second = np.split(embeddings, 2)
    return measures.spearman(first, second, np.array(examples.labels, dtype=np.float64))


def _score_retrieval(embeddings: EmbeddingArray, examples: Examples, seed: int, probe: str) -> Score:
    queries, documents = np.split(embeddings, [examples.queries])
    return measures.ndcg(queries, documents, examples.judgements)


def _score_reranking(embeddings: EmbeddingArray, examples: Examples, seed: int, probe: str) -> Score:
    queries, documents = np.split(embeddings, [examples.queries])
    return measures.mean_average_precision(queries, documents, examples.judgements)


KINDS: Mapping[str, TaskKind] = MappingProxyType(
    {
        "classification": TaskKind("accuracy", _score_classification),
        "clustering": TaskKind("v_measure", _score_clustering),
        "pair_classification": TaskKind("average_precision", _score_pairs),
        "sts": TaskKind("spearman", _score_sts),
        "retrieval": TaskKind("ndcg_at_10", _score_retrieval),
        "reranking": TaskKind("map", _score_reranking),
    }
)
"""Kinds of tasks by name."""
