"""Further views of a text: the same words, some dropped, some neighbours swapped."""

from __future__ import annotations

import random
from collections.abc import Iterator

from daskmetrics.core.keys import seed_of

#: name of the augmentation, stored with the results; it changes when its texts do
AUGMENTATION = "drop-swap-1"
DROPPED = 0.1
SWAPPED = 0.1


def second_view(text: str, seed: int) -> str:
    """Another view of a text, for metrics that compare two.

    A tenth of the words is dropped, a tenth swapped.

    It depends on the text and the run's seed only. Its words, joined by single spaces, differ in
    order or number from those of the text; with fewer than two different words no view can differ,
    and the text itself is returned. After Wei and Zou (2019), *EDA: easy data augmentation
    techniques*: random deletion and random swap.

    >>> second_view("the layer in the middle often gives the best embeddings", seed=4)
    'the layer in the middle the often best embeddings'
    >>> second_view("again again", seed=0)
    'again again'
    """
    words = text.split()
    if len(set(words)) < 2:
        return text
    rng = random.Random(seed_of(AUGMENTATION, text, seed))
    changed = [word for word in words if rng.random() >= DROPPED]
    for i in range(len(changed) - 1):
        if rng.random() < SWAPPED:
            changed[i], changed[i + 1] = changed[i + 1], changed[i]
    if not changed or changed == words:
        # short texts often come through unchanged, and two equal views would look like a perfect
        # layer
        unequal = [i for i in range(len(words) - 1) if words[i] != words[i + 1]]
        changed = _swapped(words, rng.choice(unequal))
    return " ".join(changed)


def _swapped(words: list[str], i: int) -> list[str]:
    return [*words[:i], words[i + 1], words[i], *words[i + 2 :]]


def view(text: str, seed: int, number: int) -> str:
    """View 0 of a text is the text, 1 its `second_view`, and so on.

    All differ where the text allows it.

    With two different words or more, views 0 to 3 always differ; if dropping or swapping words
    gives nothing new, the second view is repeated.

    >>> [view("one two", 0, number) for number in range(4)]
    ['one two', 'two one', 'two', 'one']
    """
    other = second_view(text, seed)
    texts = [text, other]
    while len(texts) <= number and other != text:
        # only words count: other white space does not make another view
        given = [former.split() for former in texts]
        candidates = _candidates(text, seed, len(texts))
        different = (new for new in candidates if new.split() not in given)
        texts.append(next(different, other))
    return texts[min(number, len(texts) - 1)]


def _candidates(text: str, seed: int, number: int) -> Iterator[str]:
    words = text.split()
    for attempt in range(8):
        yield second_view(text, seed_of("view", seed, number, attempt))
    for i in range(len(words) - 1):
        yield " ".join(_swapped(words, i))
    for i in range(len(words)):
        yield " ".join(words[:i] + words[i + 1 :])
