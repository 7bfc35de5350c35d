"""Tasks whose texts and labels are here: how each kind is scored, and parts of their items, those
that a search may see or the others.

An item is what a score is an average over: a text of a classification or clustering, a pair, or a
query with its judgements. What only helps to score items is in both parts: the documents of a
retrieval are candidates of every query, and the probe of a classification is fitted to the items of
the search and tested on the items kept back, which fitted nothing that the search has seen.

Which items are kept back depends on their content and on the task's name alone. So the parts are
the same for all arms and runs, whatever the order of the rows, and copies of an item stay together.
Each label keeps back the same share, except that three items of it remain, which a probe with three
folds needs. Items that come in groups are kept back by groups, each under its most frequent label.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import ConfigError, require_known
from daskmetrics.core.keys import content_key
from daskmetrics.core.text import plural, shortened
from daskmetrics.domain.plan import Floor
from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._measures import Groups, Judgement
from daskmetrics.tasks.task import (
    EmbeddingArray,
    Floats,
    Labels,
    Pooling,
    Portion,
    Role,
    Score,
    Task,
    check_embeddings,
)

FEWEST = 10  #: items that each part needs; a score of fewer says little
_GRADED = ("sts", "regression")
T = TypeVar("T")


@dataclass(frozen=True)
class Examples:
    """The texts of a task and their labels."""

    texts: tuple[str, ...]
    """For pairs all first texts, then all second texts; for a retrieval the queries, then the documents."""
    labels: tuple[float, ...] = ()
    """Classes, 0 to K - 1; for pairs whether they belong together (0 or 1), or a grade of similarity;
    where texts have several labels, the rarest of each."""
    judgements: tuple[Judgement, ...] = ()
    """For a retrieval, without any of which document i is of query i; or each label of a text: (text, label, 1)."""
    queries: int = 0  # among the texts
    fitted: int = 0
    """The first so many texts or pairs only fit the probe; the others are tested. 0: cross-validation over all."""
    groups: tuple[int, ...] = ()
    """The group of each item, whose items are not independent; none: all items are."""

    @property
    def classes(self) -> Labels:
        return np.array(self.labels, dtype=np.int64)

    @property
    def grades(self) -> Floats:
        return np.array(self.labels, dtype=np.float64)

    @property
    def group_array(self) -> Groups:
        return np.array(self.groups) if self.groups else None

    @property
    def label_matrix(self) -> Labels:
        """The labels of each text (n, K), 1 or 0."""
        texts, labels, _ = zip(*self.judgements, strict=True)
        matrix = np.zeros((len(self.texts), max(labels) + 1), dtype=np.int64)
        matrix[texts, labels] = 1
        return matrix

    @property
    def first(self) -> int:
        """The number of queries, or of first texts of pairs."""
        return self.queries or len(self.texts) // 2

    def split(self, embeddings: EmbeddingArray) -> tuple[EmbeddingArray, EmbeddingArray]:
        """The embeddings of first and second texts, or of queries and documents."""
        return embeddings[: self.first], embeddings[self.first :]

    @property
    def items(self) -> Sequence[object]:
        """The content of each item."""
        if len(self.labels) == len(self.texts):
            return self.texts
        texts = self.texts[: self.first]
        if self.queries:
            return texts
        return list(zip(texts, self.texts[self.first :], strict=True))

    def take(self, rows: Sequence[int], all_documents: bool) -> Examples:
        """The examples of some items.

        Of a retrieval they have all documents, or those that the queries are judged with.
        """
        position = {row: i for i, row in enumerate(rows)}
        groups = self.groups and _at(self.groups, rows)
        judged = tuple(
            (position[item], other, value)
            for item, other, value in self.judgements
            if item in position
        )
        if not self.queries:
            labels = self.labels and _at(self.labels, rows)
            if len(self.labels) < len(self.texts):
                rows = [*rows, *(row + self.first for row in rows)]
            return Examples(_at(self.texts, rows), labels, judged, groups=groups)
        documents = self.texts[self.first :]
        if not self.judgements:
            others = set(range(len(documents))).difference(rows)
            kept = [*rows, *sorted(others)]
        elif all_documents:
            kept = list(range(len(documents)))
        else:
            kept = sorted({document for _, document, _ in judged})
        moved = {document: i for i, document in enumerate(kept)}
        return Examples(
            _at(self.texts, rows) + _at(documents, kept),
            judgements=tuple((query, moved[item], value) for query, item, value in judged),
            queries=len(rows),
            groups=groups,
        )


def _at(values: Sequence[T], rows: Sequence[int]) -> tuple[T, ...]:
    return tuple(values[row] for row in rows)


@dataclass(frozen=True)
class TaskKind:
    """How tasks of one kind are scored.

    `measure` takes embeddings, examples, a seed and the task, which names a probe and a score.
    """

    main_score: str
    question: str  # that a task on own texts asks
    measure: Callable[[EmbeddingArray, Examples, int, ExampleTask], Score]
    fits: bool = False  # a probe to its items


KINDS: Mapping[str, TaskKind] = {
    "classification": TaskKind(
        "accuracy",
        "which label has this text?",
        lambda rows, x, seed, task: probes.classify(
            rows, x.classes, seed, task.probe, task.folds(x), task.main_score
        ),
        fits=True,
    ),
    "regression": TaskKind(
        "spearman",
        "which grade has this text?",
        lambda rows, x, seed, task: probes.regress(rows, x.grades, seed, task.folds(x)),
        fits=True,
    ),
    "multilabel_classification": TaskKind(
        "lrap",
        "which labels has this text?",
        lambda rows, x, seed, task: probes.rank_labels(
            rows, x.label_matrix, x.classes, seed, task.folds(x)
        ),
        fits=True,
    ),
    "clustering": TaskKind(
        "v_measure",
        "are texts of one label close together?",
        lambda rows, x, seed, _: measures.v_measure(rows, x.classes, seed, x.group_array),
    ),
    "pair_classification": TaskKind(
        "average_precision",
        "do these two texts belong together?",
        lambda rows, x, _, __: measures.average_precision(*x.split(rows), x.classes, x.group_array),
    ),
    "sts": TaskKind(
        "spearman",
        "how similar are these two texts?",
        lambda rows, x, _, __: measures.spearman(*x.split(rows), x.grades, x.group_array),
    ),
    "retrieval": TaskKind(
        "ndcg_at_10",
        "which of all documents answer this query?",
        lambda rows, x, _, __: measures.ndcg(*x.split(rows), x.judgements, x.group_array),
    ),
    "reranking": TaskKind(
        "map",
        "which candidates answer this query?",
        lambda rows, x, _, __: measures.mean_average_precision(
            *x.split(rows), x.judgements, x.group_array
        ),
    ),
}
"""Kinds of tasks by name."""

_SCORINGS: Mapping[str, TaskKind] = {
    **KINDS,
    "order": TaskKind(
        "accuracy",
        "which text came first?",
        lambda rows, x, seed, task: probes.order(*x.split(rows), seed, task.folds(x)),
        fits=True,
    ),
    "successors": TaskKind(
        "mrr",
        "which text follows this one?",
        lambda rows, x, _, __: measures.mean_reciprocal_rank(*x.split(rows)),
    ),
}


@dataclass(frozen=True)
class ExampleTask(Task):
    """A task whose examples are on this machine, or a part of one."""

    name: str
    kind: str
    description: str
    pooling: Pooling | None = field(default=None, kw_only=True)
    scoring: str = field(default="", kw_only=True)  # by default, as all tasks of its kind
    probe: str = field(default=probes.DEFAULT, kw_only=True)
    measure: str = field(default="", kw_only=True)  # of the predictions; by default, as its kind
    repeats: int = field(default=1, kw_only=True)  # of the folds of its probe
    portion: Portion | None = field(default=None, kw_only=True)  # None: all items

    @property
    def how(self) -> TaskKind:
        """How it is scored."""
        return _SCORINGS[self.scoring or self.kind]

    @property
    def main_score(self) -> str:
        return self.measure or self.how.main_score

    @abstractmethod
    def whole(self) -> Examples:
        """All examples."""

    def examples(self) -> Examples:
        """The examples, or a part of them."""
        if self.portion is None:
            return self.whole()
        return _part_of(self, self.portion)

    def part(self, portion: Portion) -> Self:
        """The same task on a part of its items."""
        return replace(self, portion=portion)

    def with_probe(self, probe: str) -> Self:
        """The same classification with another of `daskmetrics.tasks._probes.PROBES`."""
        self._require("probe", self.kind == "classification")
        probes.require(probe)
        return replace(self, probe=probe)

    def with_measure(self, measure: str) -> Self:
        """The same classification with another of `daskmetrics.tasks._measures.MEASURES`."""
        self._require("score", self.kind == "classification")
        require_known("score", measure, (measures.ACCURACY, *measures.MEASURES))
        return replace(self, measure="" if measure == measures.ACCURACY else measure)

    def with_repeats(self, repeats: int) -> Self:
        """The same task with its items divided into folds so often."""
        self._require("repeats", self.how.fits)
        return replace(self, repeats=repeats)

    def _require(self, option: str, has_option: bool) -> None:
        if not has_option:
            raise ConfigError(
                f"'{self.name}' is a {self.kind} task, which has no {option}; leave out the option."
            )

    def folds(self, examples: Examples) -> probes.Folds:
        """How probes are fitted to examples."""
        return probes.Folds(examples.fitted, examples.group_array, self.repeats)

    @property
    def groups(self) -> int:
        """The number of groups that are scored; 0: items are independent."""
        examples = self.examples()
        return len(set(examples.groups[examples.fitted :]))

    @property
    def floor(self) -> Floor | None:
        """What guessing scores; None for kinds without a guess.

        The guess of a classification is the most frequent label; of pairs it is the share that
        belong together.
        """
        if self.main_score == "spearman":
            return Floor(0.0)
        if self.kind not in ("classification", "pair_classification"):
            return None
        labels = self.examples().labels or (0, 1)  # each pair is shown in both orders
        if self.kind == "pair_classification":
            return Floor(sum(labels) / len(labels))
        shares = np.array(list(Counter(labels).values())) / len(labels)
        largest = float(shares.max())
        chances = {
            "accuracy": largest,
            "balanced_accuracy": 1 / len(shares),
            "macro_f1": 2 * largest / (1 + largest) / len(shares),
            "mcc": 0.0,
            "average_precision": 1 / len(shares) if len(shares) > 2 else 1 - largest,
        }
        floor = Floor(chances[self.main_score])
        if self.main_score in ("accuracy", "macro_f1") and largest > 1 / len(shares):
            return replace(floor, guess="largest class alone")
        return floor

    def texts(self) -> Sequence[str]:
        return self.examples().texts

    def roles(self) -> Sequence[Role | None]:
        """Queries and documents of a retrieval or reranking; else none."""
        examples = self.examples()
        texts = len(examples.texts)
        queries = examples.queries
        if not queries:
            return [None] * texts
        roles: list[Role | None] = ["query"] * queries
        return roles + ["document"] * (texts - queries)

    def evaluate(self, embeddings: EmbeddingArray, seed: int) -> Score:
        examples = self.examples()
        check_embeddings(self.name, embeddings, len(examples.texts))
        score = self.how.measure(embeddings, examples, seed, self)
        return measures.with_error(score, self.groups or None)

    @property
    def _part_key(self) -> list[object]:
        if self.portion is None:
            return []
        return [["portion", self.name, self.portion.share, self.portion.fresh]]


def divide(tasks: Sequence[Task], share: float) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """The tasks on the items of the search, and on those kept back.

    Raises
    ------
    ConfigError
        If a task cannot be divided, or a part would have too few items.
    """
    seen = [task.part(Portion(share, fresh=False)) for task in tasks]
    indivisible = [f"'{task.name}'" for task, part in zip(tasks, seen, strict=True) if not part]
    if indivisible:
        raise ConfigError(
            "'search.confirm: fresh' keeps back part of each task's items, and"
            f" {shortened(indivisible, most=3)} cannot be divided. Use built-in tasks or your own"
            " texts (stdlib:NAME, file:PATH), give your task a method part(portion), or remove"
            " 'search.confirm'."
        )
    fresh = [task.part(Portion(share, fresh=True)) for task in tasks]
    for part in filter(None, seen + fresh):
        part.texts()  # too few items are an error now, not during the run
    return tuple(filter(None, seen)), tuple(filter(None, fresh))


@cache
def _part_of(task: ExampleTask, portion: Portion) -> Examples:
    """The examples of a part; a ConfigError if they are too few, or of one label.

    If the task fits a probe to its items, the fresh part begins with the items of the search, which
    fit it: `Examples.fitted` of them.
    """
    examples = task.whole()
    where = "left for the search"
    if portion.fresh:
        where = "kept back"
    items = examples.items
    labels = np.zeros(len(items))
    if examples.labels and task.kind not in _GRADED:
        labels = examples.grades
    names = [content_key("portion", task.name, item) for item in items]
    in_part = _fresh(names, labels, portion.share, examples.groups) == portion.fresh
    chosen = np.flatnonzero(in_part)
    problem = ""
    groups = {examples.groups[row] for row in chosen} if examples.groups else ()
    if 0 < len(groups) < probes.FOLDS:
        problem = f"only {plural(len(groups), 'group')} would be {where}, at least {probes.FOLDS} are needed"
    if len(chosen) < FEWEST:
        few = plural(len(chosen), "item")
        problem = f"only {few} of {len(labels):,} would be {where}, at least {FEWEST} are needed"
    elif len(np.unique(labels)) > 1 == len(np.unique(labels[chosen])):
        problem = f"the items {where} would have only one label"
    if problem:
        raise ConfigError(
            f"'search.confirm: fresh' keeps back {portion.share:.0%} of the items: {problem} for"
            f" the task '{task.name}'. Give it more items, or remove 'search.confirm'."
        )
    fitted = chosen[:0]
    if portion.fresh and task.how.fits:
        fitted = np.flatnonzero(~in_part)
    portion_items = examples.take([*fitted, *chosen], all_documents=task.kind == "retrieval")
    return replace(portion_items, fitted=len(fitted))


def _fresh(
    names: Sequence[str], labels: Floats, share: float, groups: Sequence[int]
) -> NDArray[np.bool_]:
    """Which items (n,) are kept back, each group as a whole: under the first of its names."""
    if not groups:
        return kept_back(names, labels, share)
    all_names, group_of = np.array(names), np.array(groups)
    members = {group: np.flatnonzero(group_of == group) for group in np.unique(group_of)}
    firsts = [min(all_names[rows]) for rows in members.values()]
    # the lesser of equally frequent labels
    frequent = [np.bincount(labels[rows].astype(int)).argmax() for rows in members.values()]
    fresh = kept_back(firsts, np.array(frequent), share)
    return np.isin(group_of, np.array(list(members))[fresh])


def kept_back(names: Sequence[str], labels: NDArray[np.generic], share: float) -> NDArray[np.bool_]:
    """Which items (n,) are kept back: of each label the first names of the alphabet.

    Items of one name and label, copies, are kept back together or not at all.

    >>> kept_back(["b", "a", "a", "d", "c", "e"], np.zeros(6), 0.4).tolist()
    [False, True, True, False, False, False]
    """
    fresh = np.zeros(len(names), dtype=bool)
    all_names = np.array(names)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        _, name_index, copies = np.unique(all_names[rows], return_inverse=True, return_counts=True)
        limit = min(round(share * len(rows)), len(rows) - probes.FOLDS)
        fresh[rows] = np.cumsum(copies)[name_index] <= limit
    return fresh
