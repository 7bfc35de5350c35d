"""A second view of a text: the same words, some dropped, some neighbours swapped."""

from __future__ import annotations

import random

from daskmetrics.arms import seed_of

AUGMENTATION = "drop-swap-1"
"""Name of the augmentation, to be recorded with what is measured; it changes when its texts do."""

DROPPED = 0.1
SWAPPED = 0.1


def second_view(text: str, seed: int) -> str:
    """Another view of a text, for metrics that compare two: a tenth of the words dropped, a tenth swapped.

    The view depends on the text and the seed only, not on the texts around it or on the machine.

    Parameters
    ----------
    text : str
    seed : int
        The run's seed.

    Returns
    -------
    str
        Words joined by single spaces, never the words of ``text`` in their order, if ``text`` has at least two
        different words. Otherwise no view of it can differ, and ``text`` itself comes back.

    References
    ----------
    Wei and Zou (2019), *EDA: easy data augmentation techniques*: random deletion and random swap.

    Examples
    --------
    >>> second_view("the layer in the middle often gives the best embeddings", seed=4)
    'the layer in the middle the often best embeddings'
    >>> second_view("again again", seed=0)
    'again again'
    """
    words = text.split()
    if len(set(words)) < 2:
        return text
    rng = random.Random(seed_of(AUGMENTATION, text, seed))
    changed = _swapped(_dropped(words, rng), rng)
    if not changed or changed == words:
        changed = _one_swap(words, rng)
    return " ".join(changed)


def _dropped(words: list[str], rng: random.Random) -> list[str]:
    return [word for word in words if rng.random() >= DROPPED]


def _swapped(words: list[str], rng: random.Random) -> list[str]:
    words = list(words)
    for i in range(len(words) - 1):
        if rng.random() < SWAPPED:
            words[i], words[i + 1] = words[i + 1], words[i]
    return words


def _one_swap(words: list[str], rng: random.Random) -> list[str]:
    # short texts often come through unchanged, and two equal views would look like a perfect layer
    i = rng.choice([i for i in range(len(words) - 1) if words[i] != words[i + 1]])
    return [*words[:i], words[i + 1], words[i], *words[i + 2 :]]
