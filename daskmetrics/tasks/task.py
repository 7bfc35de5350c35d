"""What a task is: texts to embed, and a score for the embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import DataError
from daskmetrics.core.keys import Key
from daskmetrics.domain.plan import Floor

Pooling = Literal["mean", "last"]
Role = Literal["query", "document"]
EmbeddingArray = NDArray[np.floating[Any]]
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


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
        Units that were scored: texts, pairs or queries, also where these come in groups.
    outcomes : array (m,) or None
        What the task says of each of its items, in an order that is the same for all arms: bool for
        right or wrong, otherwise any number, such as the reciprocal rank of a query. Their mean is
        `value`, and their standard deviation over sqrt(m) is its error, unless it is 0; so two arms
        are compared item by item, with the standard error std(a - b) / sqrt(m) of the difference. A
        score that is no mean over items gives pseudo-values instead. Those of a jackknife are ``g
        value - (g - 1) value_without_block_i`` for each of g blocks (Tukey 1958; Efron 1982, "The
        Jackknife, the Bootstrap and Other Resampling Plans", section 3.3), here shifted so that
        their mean is `value`; those of m draws of half the items are ``value + sqrt(m)
        (value_of_draw_i - value)``. Items of one group have one outcome or block in common. None:
        arms are compared as if they were independent.
    detail : mapping or None
        Further JSON values, such as the other scores of the benchmark.
    """

    value: float
    stderr: float
    n: int
    detail: Mapping[str, Any] | None = field(default=None, repr=False)
    outcomes: NDArray[Any] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Selection:
    """The splits and subsets of a benchmark's task that are evaluated."""

    splits: tuple[str, ...] = ()
    subsets: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextStatistics:
    """The size of a task as its benchmark lists it.

    Classifications also encode the training texts that they draw: their expected number is among
    the texts.
    """

    texts: int
    characters: int


@dataclass(frozen=True)
class Portion:
    """The items of a task for a search, or those kept back."""

    share: float  # of the items that is kept back, in (0, 1)
    fresh: bool  # whether this is the part that is kept back


class Task(ABC):
    """Texts to embed, and a score for the embeddings.

    A task of your own is an instance of a subclass. A package offers one under the entry-point group
    ``daskmetrics.tasks``. The first five attributes are required, as are `texts` and `evaluate`.

    Attributes
    ----------
    name : str
        The name in configurations and results.
    kind : str
        ``classification``, ``pair_classification``, ``retrieval``, ``clustering``, ``reranking`` or
        ``sts``.
    main_score : str
        The name of the score, such as ``accuracy`` or ``mrr``.
    description : str
        The question that the task asks, in a few words.
    key : str
        Content key of the data and the settings: equal keys and equal embeddings give equal scores.
    pooling : {"mean", "last"} or None
        How token states become one vector, if the task decides it; None leaves it to the protocol.
    warnings : sequence of str
        Sentences about the data; the dry run and the report show them.
    """

    if TYPE_CHECKING:  # attributes, fields or properties of a subclass

        @property
        def name(self) -> str: ...
        @property
        def kind(self) -> str: ...
        @property
        def main_score(self) -> str: ...
        @property
        def description(self) -> str: ...
        @property
        def key(self) -> Key: ...

    pooling: Pooling | None = None
    warnings: Sequence[str] = ()

    @property
    def floor(self) -> Floor | None:
        """What guessing scores, where that is known."""
        return None

    @property
    def is_local(self) -> bool:
        """Whether `texts` certainly needs no network; a preview calls `texts` only then."""
        return True

    @property
    def benchmark_name(self) -> str:
        """The name of the data, by which models have prompts."""
        return self.name

    @property
    def selection(self) -> Selection:
        """The splits and subsets that a benchmark evaluates."""
        return Selection()

    @property
    def statistics(self) -> TextStatistics | None:
        """The size that a benchmark lists, known without the data."""
        return None

    @property
    def files(self) -> Sequence[str]:
        """Files that workers must see, too."""
        return ()

    @abstractmethod
    def texts(self) -> Sequence[str]:
        """The texts to embed, in a fixed order."""

    @abstractmethod
    def evaluate(self, embeddings: EmbeddingArray, seed: int) -> Score:
        """Score embeddings of shape (len(texts), D).

        The seed decides folds, draws and starting points. It belongs to the task and the run and is
        the same for all arms, so that equal embeddings score equally.
        """

    def roles(self) -> Sequence[Role | None]:
        """The role of each text; a text may occur once in each.

        Models with prompts read queries and documents differently.
        """
        return [None] * len(self.texts())

    def part(self, portion: Portion) -> Task | None:
        """The task on part of its items, or None.

        ``search.confirm: fresh`` needs it.
        """
        return None


def roles_of(task: Task) -> Sequence[Role | None]:
    """The role of each text of a task, checked."""
    texts = len(task.texts())
    roles = task.roles()
    if len(roles) != texts or not set(roles) <= {"query", "document", None}:
        raise DataError(
            f"The roles() of task '{task.name}' must be 'query', 'document' or None for each of its"
            f" {texts} texts, got {len(roles)}: {', '.join(sorted(map(str, set(roles))))}."
        )
    return roles


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
