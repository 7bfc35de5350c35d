"""Tasks whose texts and labels are here, and parts of their items: those that a search may see, or
the others.

An item is what a score is an average over: a text of a classification or clustering, a pair, or a
query with its judgements. What only helps to score items is in both parts: the documents of a
retrieval are candidates of every query, and the probe of a classification is fitted to the items of
the search and tested on the items kept back, which fitted nothing that the search has seen.

Which items are kept back depends on their content and on the task's name alone. So the parts are
the same for all arms and runs, whatever the order of the rows, and copies of an item stay together.
Each label keeps back the same share, except that three items of it remain, which a probe with three
folds needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import content_key
from daskmetrics.core.text import listed, plural
from daskmetrics.tasks._probes import DEFAULT, FOLDS
from daskmetrics.tasks.examples import KINDS, Examples, TaskKind, check_embeddings, roles
from daskmetrics.tasks.task import EmbeddingArray, Pooling, Role, Score, Task

NAMED = 3  #: tasks that a message names
FEWEST = 10  #: items that each part needs; a score of fewer says little

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Portion:
    """The part of a task's items that a search may see, or the part kept back from it."""

    share: float  # of the items that is kept back, in (0, 1)
    fresh: bool  # whether this is the part that is kept back


@dataclass(frozen=True)
class ExampleTask(ABC):
    """A task whose examples are on this machine: all of them, or a part."""

    name: str
    kind: str
    description: str
    pooling: Pooling | None = field(default=None, kw_only=True)
    # by default, as all tasks of its kind
    scoring: TaskKind | None = field(default=None, kw_only=True)
    probe: str = field(default=DEFAULT, kw_only=True)
    portion: Portion | None = field(default=None, kw_only=True)  # None: all items

    @property
    def main_score(self) -> str:
        return self._scoring.main_score

    @property
    def is_local(self) -> bool:
        return True

    @abstractmethod
    def whole(self) -> Examples:
        """All examples."""

    def examples(self) -> Examples:
        """The examples, or a part of them."""
        return part_of(self.whole(), self.kind, self._scoring.fits, self.name, self.portion)

    def part(self, portion: Portion) -> Self:
        """The same task on a part of its items."""
        return replace(self, portion=portion)

    def texts(self) -> Sequence[str]:
        return self.examples().texts

    def roles(self) -> tuple[Role | None, ...]:
        return roles(self.kind, self.examples())

    def evaluate(self, embeddings: EmbeddingArray, seed: int) -> Score:
        examples = self.examples()
        check_embeddings(self.name, embeddings, len(examples.texts))
        return self._scoring.measure(embeddings, examples, seed, self.probe)

    @property
    def _scoring(self) -> TaskKind:
        return self.scoring or KINDS[self.kind]

    @property
    def _part_key(self) -> list[object]:
        """What a part adds to the content key; nothing for all of it."""
        if self.portion is None:
            return []
        return [["portion", self.name, self.portion.share, self.portion.fresh]]


class Divisible(Protocol):
    """A task whose items can be divided, as built-in tasks and those on a user's own texts can."""

    def part(self, portion: Portion) -> Task:
        """The same task, under the same name, on a part of its items."""


def divide(tasks: Sequence[Task], share: float) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """The tasks on the items that a search may see, and on those that are kept back.

    Raises
    ------
    ConfigError
        If a task cannot be divided, or a part would have too few items.
    """
    indivisible = [f"'{task.name}'" for task in tasks if not hasattr(task, "part")]
    if indivisible:
        named = indivisible[:NAMED]
        if len(indivisible) > NAMED:
            named.append(f"{len(indivisible) - NAMED} other tasks")
        raise ConfigError(
            f"'search.confirm: fresh' keeps back part of each task's items, and {listed(named)} cannot be divided. Use "
            "built-in tasks or your own texts (stdlib:NAME, file:PATH), give your task a method part(portion), or "
            "remove 'search.confirm'."
        )
    divisible = cast(Sequence[Divisible], tasks)
    seen = tuple(task.part(Portion(share, fresh=False)) for task in divisible)
    fresh = tuple(task.part(Portion(share, fresh=True)) for task in divisible)
    for task in (*seen, *fresh):
        task.texts()  # too few items are an error now, not during the run
    return seen, fresh


@cache
def part_of(
    examples: Examples, kind: str, fits: bool, name: str, portion: Portion | None
) -> Examples:
    """A part of the examples of a task of some kind and name; all of them for None.

    If the task ``fits`` a probe to its items, the fresh part begins with the items of the search,
    which fit it: `Examples.fitted` of them.
    """
    if portion is None:
        return examples
    items = _items(examples, kind)
    labels = np.zeros(len(items))
    if examples.labels and kind != "sts":
        labels = np.array(examples.labels)
    fresh = kept_back([content_key("portion", name, item) for item in items], labels, portion.share)
    chosen = np.flatnonzero(fresh == portion.fresh)
    others = np.flatnonzero(fresh != portion.fresh)
    _check(name, chosen, labels, portion)
    fitted = others if portion.fresh and fits else others[:0]
    return replace(_take(examples, kind, np.append(fitted, chosen)), fitted=len(fitted))


def kept_back(names: Sequence[str], labels: NDArray[Any], share: float) -> NDArray[np.bool_]:
    """Which items (n,) are kept back, by their names and labels: of each label the first names in
    alphabetical order.

    Items of one name and label, copies, are kept back together or not at all.

    >>> kept_back(["b", "a", "a", "d", "c", "e"], np.zeros(6), 0.4).tolist()
    [False, True, True, False, False, False]
    """
    fresh = np.zeros(len(names), dtype=bool)
    all_names = np.array(names)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        _, name_index, copies = np.unique(all_names[rows], return_inverse=True, return_counts=True)
        fresh[rows] = np.cumsum(copies)[name_index] <= min(
            round(share * len(rows)), len(rows) - FOLDS
        )
    return fresh


def _items(examples: Examples, kind: str) -> list[object]:
    """The content of each item."""
    if kind in ("classification", "clustering"):
        return list(examples.texts)
    if kind in ("retrieval", "reranking"):
        return list(examples.texts[: examples.first])
    half = len(examples.texts) // 2
    return [list(pair) for pair in zip(examples.texts[:half], examples.texts[half:], strict=True)]


def _check(name: str, chosen: Rows, labels: NDArray[Any], portion: Portion) -> None:
    """A `ConfigError` if a part has too few items, or only one of several labels."""
    where = "kept back" if portion.fresh else "left for the search"
    problem = ""
    if len(chosen) < FEWEST:
        few = plural(len(chosen), "item")
        problem = f"only {few} of {len(labels):,} would be {where}, at least {FEWEST} are needed"
    elif len(np.unique(labels)) > 1 == len(np.unique(labels[chosen])):
        problem = f"the items {where} would have only one label"
    if problem:
        raise ConfigError(
            f"'search.confirm: fresh' keeps back {portion.share:.0%} of the items: {problem} for the task '{name}'. "
            "Give it more items, or remove 'search.confirm'."
        )


def _take(examples: Examples, kind: str, rows: Rows) -> Examples:
    """The examples of some items."""
    if kind in ("retrieval", "reranking"):
        return _take_queries(examples, rows, all_documents=kind == "retrieval")
    labels = tuple(examples.labels[row] for row in rows) if examples.labels else ()
    if kind not in ("classification", "clustering"):
        rows = np.append(rows, rows + len(examples.texts) // 2)
    return replace(examples, texts=tuple(examples.texts[row] for row in rows), labels=labels)


def _take_queries(examples: Examples, rows: Rows, all_documents: bool) -> Examples:
    """Some queries with all documents, or with those that they are judged with."""
    queries, documents = examples.texts[: examples.first], examples.texts[examples.first :]
    position = {int(row): i for i, row in enumerate(rows)}
    judged = [
        (position[query], document, value)
        for query, document, value in examples.judgements
        if query in position
    ]
    if not examples.judgements:  # document i belongs to query i
        kept = [*position, *(row for row in range(len(documents)) if row not in position)]
    elif all_documents:
        kept = list(range(len(documents)))
    else:
        kept = sorted({document for _, document, _ in judged})
    moved = {document: i for i, document in enumerate(kept)}
    return Examples(
        tuple(queries[row] for row in position) + tuple(documents[row] for row in kept),
        judgements=tuple((query, moved[document], value) for query, document, value in judged),
        queries=len(position),
    )
