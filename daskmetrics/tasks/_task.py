"""What a task is: texts to embed, and a score for the embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.names import Key

Pooling = Literal["mean", "last"]
Embeddings = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Score:
    """How well one arm does on one task.

    Attributes
    ----------
    value : float
        The task's main score; higher is better.
    stderr : float
        Standard error of `value` over the `n` units, the probe taken as given.
    n : int
        Units that were scored: texts, pairs or queries.
    detail : mapping or None
        Plain JSON values that belong to the score, such as the benchmark's other scores.
    """

    value: float
    stderr: float
    n: int
    detail: Mapping[str, Any] | None = field(default=None, repr=False)


class Task(Protocol):
    """A benchmark task. Any object with these members will do; see `daskmetrics.tasks._registry` for how to add one."""

    @property
    def name(self) -> str:
        """The name under which it is asked for and its scores are stored."""

    @property
    def kind(self) -> str:
        """``classification``, ``pair_classification``, ``retrieval``, ``clustering``, ``reranking`` or ``sts``."""

    @property
    def main_score(self) -> str:
        """The name of the score's unit, such as ``accuracy`` or ``mrr``."""

    @property
    def pooling(self) -> Pooling | None:
        """How states become one vector, where the task's question decides it; None leaves it to the protocol."""

    @property
    def description(self) -> str:
        """The question it asks, in a few words."""

    @property
    def key(self) -> Key:
        """Content key of the data and the settings: equal keys and equal embeddings give equal scores."""

    @property
    def is_local(self) -> bool:
        """Whether `texts` surely needs no network; a preview never asks for texts otherwise."""

    def texts(self) -> Sequence[str]:
        """What must be embedded, in a fixed order."""

    def evaluate(self, embeddings: Embeddings, seed: int) -> Score:
        """The score of embeddings of shape (len(texts), D); `seed` decides folds and starting points."""
