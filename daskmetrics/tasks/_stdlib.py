"""Built-in tasks on held-out texts of the standard library: they need no download and prefer
different arms.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, combinations, pairwise

from daskmetrics.core import corpus as corpus
from daskmetrics.core.keys import Key, content_key
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._measures import Judgement
from daskmetrics.tasks.examples import Examples, ExampleTask

VERSION = 1  # of the scores: raise it when equal texts and embeddings no longer give equal scores

# twelve packages whose held-out part is large enough in every Python from 3.11 on
PACKAGES = (
    "asyncio", "email", "http", "importlib", "logging", "statistics",
    "topics", "typing", "unittest", "urllib", "wsgiref", "xml",
)  # fmt: skip

TextPair = tuple[str, str]

_LONG_WORD = re.compile(r"\b[a-z]{4,}\b")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


@dataclass(frozen=True)
class StdlibTask(ExampleTask):
    """A task whose examples are drawn from the corpus on first use."""

    draw: Callable[[], Examples]

    @cached_property
    def key(self) -> Key:
        examples = self.draw()
        content: list[object] = [examples.texts, list(map(int, examples.labels))]
        if examples.judgements:
            content.append(examples.judgements)
        if self.probe != probes.DEFAULT:
            content += [self.probe, *probes.library_version(self.probe)]
        return content_key("task", VERSION, self.name, self.pooling, *content, *self._part_key)

    def whole(self) -> Examples:
        """All examples."""
        return self.draw()


@cache
def next_token() -> Examples:
    """Passages cut off after a random character, equally many of each `what_follows`."""
    generator = random.Random(0)
    labelled = []
    for text, _ in _passages(words=8):
        cut = generator.randrange(len(text) // 2, len(text))
        if not text[cut - 1].isspace():
            labelled.append((text[:cut], what_follows(text[cut])))
    return _balanced(labelled, per_class=300)


def what_follows(character: str) -> int:
    """The class of a next character: of a word 0, space 1, other 2.

    >>> [what_follows(character) for character in "e ,"]
    [0, 1, 2]
    """
    if character.isalnum() or character == "_":
        return 0
    return 1 if character == " " else 2


@cache
def halves() -> Examples:
    """First halves of sentences, then their second halves, without full stops."""
    pairs = []
    for sentence in chain.from_iterable(_paragraphs()):
        words = sentence.removesuffix(".").split()
        if sentence.endswith(".") and 14 <= len(words) <= 30:
            middle = len(words) // 2
            first_half = " ".join(words[:middle])
            pairs.append((first_half, " ".join(words[middle:])))
    return _columns(pairs, count=500)


@cache
def neighbours() -> Examples:
    """Sentences, then in the same order the sentence that follows each."""
    pairs = []
    for paragraph in _paragraphs():
        for sentence, successor in zip(paragraph[::2], paragraph[1::2], strict=False):
            lengths = len(sentence.split()), len(successor.split())
            if min(lengths) >= 10 and max(lengths) <= 24:
                pairs.append((sentence, successor))
    examples = _columns(pairs, count=300)
    return replace(examples, queries=examples.first)


@cache
def package() -> Examples:
    """Passages; the class is the package they document, equally many of each."""
    labelled = []
    for text, name in _passages(words=16):
        if name in PACKAGES:
            labelled.append((text, PACKAGES.index(name)))
    return _balanced(labelled, per_class=40)


@cache
def word() -> Examples:
    """Passages with exactly one of twenty words, which is their class.

    The words are of medium frequency.
    """
    passages = [(text, set(_LONG_WORD.findall(text))) for text, _ in _passages(words=16)]
    counts = Counter(chain.from_iterable(words for _, words in passages))
    by_count = sorted(counts, key=lambda word: (-counts[word], word))
    medium = by_count[100:120]
    labelled = []
    for text, words in passages:
        hits = words.intersection(medium)
        if len(hits) == 1:
            labelled.append((text, medium.index(hits.pop())))
    return _balanced(labelled, per_class=24)


@cache
def closeness() -> Examples:
    """Pairs of passages and how close they are, equally many of each grade.

    3: consecutive; 2: in the same document; 1: in the same package; 0: in different packages.
    """
    generator = random.Random(3)
    pairs = defaultdict[int, list[TextPair]](list)
    packages = defaultdict[str, list[list[str]]](list)
    for document in corpus.held_out():
        texts = [passage.text for passage in corpus.passages([document], 16)]
        pairs[3] += pairwise(texts)
        pairs[2] += zip(texts, texts[2:], strict=False)
        if texts:
            packages[document.package].append(texts)
    for documents in packages.values():
        pairs[1] += [(texts[0], others[-1]) for texts, others in pairwise(documents)]
    first_passages = [documents[0][0] for documents in packages.values()]
    pairs[0] += combinations(first_passages, 2)
    drawn: list[tuple[str, str, int]] = []
    for grade in (3, 2, 1, 0):
        drawn += [(*pair, grade) for pair in generator.sample(pairs[grade], 75)]
    firsts, seconds, grades = zip(*drawn, strict=True)
    return Examples(firsts + seconds, grades)


@cache
def candidates() -> Examples:
    """Sentences, each with its successor and nine others as candidates."""
    generator = random.Random(10)
    examples = neighbours()
    n = examples.queries
    judgements: list[Judgement] = []
    for query in range(n):
        rows = [row for row in range(n) if row != query]
        judgements.append((query, query, 1.0))
        judgements += [(query, row, 0.0) for row in generator.sample(rows, 9)]
    return replace(examples, judgements=tuple(judgements))


def _passages(words: int) -> list[TextPair]:
    """Distinct held-out passages of this many words, shuffled, with their packages."""
    passages = corpus.passages(corpus.held_out(), words)
    packages = {passage.text: passage.package for passage in passages}
    return random.Random(words).sample(list(packages.items()), len(packages))


def _paragraphs() -> Iterator[list[str]]:
    """The held-out paragraphs as sentences."""
    for document in corpus.held_out():
        for line in document.text.splitlines():
            yield _SENTENCE_END.split(line)


def _columns(pairs: Iterable[TextPair], count: int) -> Examples:
    """At most `count` random pairs, no text twice."""
    shuffled = list(dict.fromkeys(pairs))
    random.Random(count).shuffle(shuffled)
    by_first_text = dict(shuffled)
    by_second_text = {second_text: first_text for first_text, second_text in by_first_text.items()}
    seconds = tuple(by_second_text)[:count]
    return Examples(tuple(by_second_text.values())[:count] + seconds)


def _balanced(labelled: Iterable[tuple[str, int]], per_class: int) -> Examples:
    count = Counter[int]()
    kept = []
    for text, label in labelled:
        count[label] += 1
        if count[label] <= per_class:
            kept.append((text, label))
    texts, labels = zip(*kept, strict=True)
    return Examples(texts, labels)


TASKS: Mapping[str, StdlibTask] = {
    task.name: task
    for task in (
        StdlibTask(
            "stdlib:next_token",
            "classification",
            "does the word continue, or end with a space or with a sign?",
            next_token,
            pooling="last",
        ),
        StdlibTask(
            "stdlib:order",
            "pair_classification",
            "which half of a sentence came first?",
            halves,
            scoring="order",
        ),
        StdlibTask(
            "stdlib:retrieval",
            "retrieval",
            "which sentence follows this one?",
            neighbours,
            scoring="successors",
        ),
        StdlibTask(
            "stdlib:package",
            "classification",
            "which of twelve packages does this text document?",
            package,
        ),
        StdlibTask(
            "stdlib:word", "classification", "which of twenty words does this text contain?", word
        ),
        StdlibTask(
            "stdlib:clusters", "clustering", "are texts of one package close together?", package
        ),
        StdlibTask(
            "stdlib:closeness", "sts", "how close to each other are two passages?", closeness
        ),
        StdlibTask(
            "stdlib:candidates", "reranking", "which of ten sentences follows this one?", candidates
        ),
    )
}

SETS: Mapping[str, tuple[str, ...]] = {
    "stdlib:all": tuple(TASKS),
    # chosen so that a layer that is not the last wins beyond the error
    "stdlib:demo": ("stdlib:next_token", "stdlib:retrieval", "stdlib:package", "stdlib:word"),
    "stdlib:kinds": (
        "stdlib:word",
        "stdlib:clusters",
        "stdlib:order",
        "stdlib:closeness",
        "stdlib:retrieval",
        "stdlib:candidates",
    ),
}
"""Named sets: all of them, those of the demo, one of each kind but those of grades and of several labels."""
