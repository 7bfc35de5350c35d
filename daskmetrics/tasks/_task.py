"""What a task is: texts to embed, and a score for the embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.names import Key

Pooling = Literal["mean", "last"]
EmbeddingArray = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Score:
    """How well one arm does on one task.

    Attributes
    ----------
    value : float
        The task's main score; higher is better.
    stderr : float
        Standard error of `value` over the `n` units, for a given probe.
    n : int
        Units that were scored: texts, pairs or queries.
    detail : mapping or None
        Further JSON values, such as the other scores of the benchmark.
    """

    value: float
    stderr: float
    n: int
    detail: Mapping[str, Any] | None = field(default=None, repr=False)


class Task(Protocol):
    """A task: any object with these members. A package offers one under the entry-point group ``daskmetrics.tasks``.

    A task may also have ``warnings``, a sequence of sentences about its data: the dry run and the report show them.
    """

    @property
    def name(self) -> str:
        """The name in configurations and results."""

    @property
    def kind(self) -> str:
        """``classification``, ``pair_classification``, ``retrieval``, ``clustering``, ``reranking`` or ``sts``."""

    @property
    def main_score(self) -> str:
        """The name of the score, such as ``accuracy`` or ``mrr``."""

    @property
    def pooling(self) -> Pooling | None:
        """How token states become one vector, if the task decides it; None leaves it to the protocol."""

    @property
    def description(self) -> str:
        """The question that the task asks, in a few words."""

    @property
    def key(self) -> Key:
        """Content key of the data and the settings: equal keys and equal embeddings give equal scores."""

    @property
    def is_local(self) -> bool:
        """Whether `texts` certainly needs no network; a preview calls `texts` only then."""

    def texts(self) -> Sequence[str]:
        """The texts to embed, in a fixed order."""

    def evaluate(self, embeddings: EmbeddingArray, seed: int) -> Score:
        """Score embeddings of shape (len(texts), D); `seed` decides folds and starting points."""
