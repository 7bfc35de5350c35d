"""Tasks on held-out text of the standard library: they need no download, and they want different arms."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from daskmetrics import corpus
from daskmetrics.arms import Key, content_key
from daskmetrics.errors import DataError
from daskmetrics.tasks import probes
from daskmetrics.tasks.task import Embeddings, Pooling, Score

VERSION = 1  # of the scores: raise it when equal texts and embeddings no longer give equal scores

# twelve packages whose held-out part is large enough in every Python from 3.11 on
PACKAGES = (
    "asyncio", "email", "http", "importlib", "logging", "statistics",
    "topics", "typing", "unittest", "urllib", "wsgiref", "xml",
)  # fmt: skip

_LONG_WORD = re.compile(r"\b[a-z]{4,}\b")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


@dataclass(frozen=True)
class Examples:
    """The data of a task: texts with a class each; or, without classes, first texts and then their seconds."""

    texts: tuple[str, ...]
    labels: tuple[int, ...] = ()


@dataclass(frozen=True)
class StdlibTask:
    """A task whose examples are drawn from the corpus when they are first asked for."""

    name: str
    kind: str
    main_score: str
    pooling: Pooling | None
    description: str
    draw: Callable[[], Examples]
    probe: Callable[[Embeddings, Examples, int], Score]

    @property
    def key(self) -> Key:
        examples = self.draw()
        return content_key("task", VERSION, self.name, self.pooling, examples.texts, examples.labels)

    @property
    def is_local(self) -> bool:
        return True

    def texts(self) -> Sequence[str]:
        return self.draw().texts

    def evaluate(self, embeddings: Embeddings, seed: int) -> Score:
        examples = self.draw()
        if embeddings.ndim != 2 or len(embeddings) != len(examples.texts):
            wanted = f"({len(examples.texts)}, D)"
            raise DataError(f"Task '{self.name}' wants embeddings of shape {wanted}, got {embeddings.shape}.")
        if not np.isfinite(embeddings).all():
            raise DataError(f"Task '{self.name}' got embeddings that are not finite; look at the model's weights.")
        return self.probe(embeddings, examples, seed)


@cache
def next_token() -> Examples:
    """Passages cut off anywhere behind a letter or sign; the class is `what_follows`, equally many of each."""
    generator = random.Random(0)
    found = []
    for text, _ in _passages(words=8):
        cut = generator.randrange(len(text) // 2, len(text))
        if not text[cut - 1].isspace():
            found.append((text[:cut], what_follows(text[cut])))
    return _balanced(found, each=300)


def what_follows(character: str) -> int:
    """The class of a next character: 0, the word goes on; 1, it ends with a space; 2, it ends with a sign.

    Examples
    --------
    >>> [what_follows(character) for character in "e ,"]
    [0, 1, 2]
    """
    return 0 if character.isalnum() or character == "_" else 1 if character == " " else 2


@cache
def halves() -> Examples:
    """First halves of sentences, then their second halves in the same order; full stops are left out."""
    sentences = [s.removesuffix(".").split() for paragraph in _paragraphs() for s in paragraph if s.endswith(".")]
    cut = {(_joined(w[: len(w) // 2]), _joined(w[len(w) // 2 :])): None for w in sentences if 14 <= len(w) <= 30}
    return _columns(cut, count=500)


@cache
def neighbours() -> Examples:
    """Sentences, then in the same order the sentence that follows each."""
    pairs: dict[tuple[str, str], None] = {}
    for paragraph in _paragraphs():
        for pair in zip(paragraph[::2], paragraph[1::2], strict=False):
            if all(10 <= len(sentence.split()) <= 24 for sentence in pair):
                pairs[pair] = None
    return _columns(pairs, count=300)


@cache
def package() -> Examples:
    """Passages; the class is the package they document, equally many of each."""
    index = {name: i for i, name in enumerate(PACKAGES)}
    return _balanced(((text, index[name]) for text, name in _passages(words=16) if name in index), each=40)


@cache
def word() -> Examples:
    """Passages that hold exactly one of twenty words of middling frequency; the class is that word."""
    passages = [(text, set(_LONG_WORD.findall(text))) for text, _ in _passages(words=16)]
    counts = Counter(found for _, words in passages for found in words)
    by_count = sorted(counts, key=lambda found: (-counts[found], found))
    index = {found: i for i, found in enumerate(by_count[100:120])}
    hits = ((text, words & index.keys()) for text, words in passages)
    return _balanced(((text, index[hit.pop()]) for text, hit in hits if len(hit) == 1), each=24)


def _passages(words: int) -> list[tuple[str, str]]:
    """All held-out passages of so many words, shuffled, each text once, with its package."""
    found = {passage.text: passage.package for passage in corpus.passages(corpus.held_out(), words)}
    return random.Random(words).sample(list(found.items()), len(found))


def _paragraphs() -> Iterator[list[str]]:
    """The held-out paragraphs as sentences."""
    for document in corpus.held_out():
        for line in document.text.splitlines():
            yield _SENTENCE_END.split(line)


def _joined(words: Sequence[str]) -> str:
    return " ".join(words)


def _columns(pairs: Iterable[tuple[str, str]], count: int) -> Examples:
    """At most `count` of the pairs, at random, no text twice: all first texts, then all seconds."""
    found = list(pairs)
    random.Random(count).shuffle(found)
    unique = list({second: (first, second) for first, second in {p[0]: p for p in found}.values()}.values())[:count]
    return Examples(tuple(first for first, _ in unique) + tuple(second for _, second in unique))


def _balanced(found: Iterable[tuple[str, int]], each: int) -> Examples:
    """The first `each` of every class, in the order in which they come."""
    count: dict[int, int] = defaultdict(int)
    kept = []
    for text, label in found:
        if count[label] < each:
            count[label] += 1
            kept.append((text, label))
    return Examples(tuple(text for text, _ in kept), tuple(label for _, label in kept))


def _classify(embeddings: Embeddings, examples: Examples, seed: int) -> Score:
    return probes.classify(embeddings, np.array(examples.labels), seed)


def _order(embeddings: Embeddings, examples: Examples, seed: int) -> Score:
    first, second = np.split(embeddings, 2)
    return probes.order(first, second, seed)


def _retrieve(embeddings: Embeddings, examples: Examples, seed: int) -> Score:
    first, second = np.split(embeddings, 2)
    return probes.retrieve(first, second)


TASKS: Mapping[str, StdlibTask] = {
    task.name: task
    for task in (
        StdlibTask(
            name="stdlib:next_token",
            kind="classification",
            main_score="accuracy",
            pooling="last",
            description="does the word go on, end with a space or end with a sign?",
            draw=next_token,
            probe=_classify,
        ),
        StdlibTask(
            name="stdlib:order",
            kind="pair_classification",
            main_score="accuracy",
            pooling=None,
            description="which half of a sentence came first?",
            draw=halves,
            probe=_order,
        ),
        StdlibTask(
            name="stdlib:retrieval",
            kind="retrieval",
            main_score="mrr",
            pooling=None,
            description="which sentence follows this one?",
            draw=neighbours,
            probe=_retrieve,
        ),
        StdlibTask(
            name="stdlib:package",
            kind="classification",
            main_score="accuracy",
            pooling=None,
            description="which of twelve packages does this text document?",
            draw=package,
            probe=_classify,
        ),
        StdlibTask(
            name="stdlib:word",
            kind="classification",
            main_score="accuracy",
            pooling=None,
            description="which of twenty words does this text hold?",
            draw=word,
            probe=_classify,
        ),
    )
}
