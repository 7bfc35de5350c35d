"""The data of a task, and how each kind of task is scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import DataError
from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._measures import Judgement
from daskmetrics.tasks.task import EmbeddingArray, Role, Score


@dataclass(frozen=True)
class Examples:
    """The texts of a task and their labels."""

    texts: tuple[str, ...]
    """For pairs all first texts, then all second texts; for a retrieval the queries, then the documents."""
    labels: tuple[float, ...] = ()
    """Classes, 0 to K - 1; for pairs whether they belong together (0 or 1), or a grade of similarity."""
    judgements: tuple[Judgement, ...] = ()  # for a retrieval
    queries: int = 0  # among the texts
    fitted: int = 0
    """The first so many texts or pairs only fit the probe; the others are tested. 0: cross-validation over all."""

    @property
    def classes(self) -> NDArray[np.int64]:
        return np.array(self.labels, dtype=np.int64)

    @property
    def first(self) -> int:
        """The number of queries, or of first texts of pairs."""
        return self.queries or len(self.texts) // 2

    def split(self, embeddings: EmbeddingArray) -> tuple[EmbeddingArray, EmbeddingArray]:
        """The embeddings of all first texts and of all second texts, or of the queries and of the
        documents.
        """
        return embeddings[: self.first], embeddings[self.first :]


def roles(kind: str, examples: Examples) -> tuple[Role | None, ...]:
    """The role of each text: first the queries of a retrieval or reranking, then its documents;
    else none.
    """
    n = len(examples.texts)
    if kind not in ("retrieval", "reranking"):
        return (None,) * n
    return tuple("query" if row < examples.first else "document" for row in range(n))


@dataclass(frozen=True)
class TaskKind:
    """How tasks of one kind are scored: from embeddings, examples, a seed and the name of a probe
    to a `Score`.
    """

    main_score: str
    measure: Callable[[EmbeddingArray, Examples, int, str], Score]
    fits: bool = False  # a probe to its items


def check_embeddings(task: str, embeddings: EmbeddingArray, texts: int) -> None:
    """Check that embeddings have one finite row for each text."""
    if embeddings.ndim != 2 or len(embeddings) != texts:
        raise DataError(
            f"Task '{task}' needs embeddings of shape ({texts}, D), got {embeddings.shape}."
        )
    if not np.isfinite(embeddings).all():
        raise DataError(
            f"Task '{task}' got embeddings that are not finite; check the weights of the model."
        )


KINDS: Mapping[str, TaskKind] = {
    "classification": TaskKind(
        "accuracy",
        lambda rows, x, seed, probe: probes.classify(rows, x.classes, seed, probe, x.fitted),
        fits=True,
    ),
    "clustering": TaskKind(
        "v_measure", lambda rows, x, seed, _: measures.v_measure(rows, x.classes, seed)
    ),
    "pair_classification": TaskKind(
        "average_precision",
        lambda rows, x, _, __: measures.average_precision(*x.split(rows), x.classes),
    ),
    "sts": TaskKind(
        "spearman",
        lambda rows, x, _, __: measures.spearman(*x.split(rows), np.array(x.labels, float)),
    ),
    "retrieval": TaskKind(
        "ndcg_at_10", lambda rows, x, _, __: measures.ndcg(*x.split(rows), x.judgements)
    ),
    "reranking": TaskKind(
        "map", lambda rows, x, _, __: measures.mean_average_precision(*x.split(rows), x.judgements)
    ),
}
"""Kinds of tasks by name."""
