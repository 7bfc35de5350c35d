"""The assumed cost of a piece of work, known before any is done.

The search weighs cells by these figures and not by measured times, so that two runs decide alike however busy the
machine was. They need only be right relative to each other; measured times stand in the journal beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

CPU_FLOPS = 2e10
"""Assumed sustained float32 operations per second of one CPU core in a forward pass."""

GPU_FLOPS = 5e13
"""Assumed sustained operations per second of one data-centre GPU in a half-precision forward pass."""

CHARACTERS_PER_TOKEN = 3.0
"""Assumed, for English text and a small vocabulary."""


def forward_flops(width: int, depth: int, tokens: float, length: float) -> float:
    """Operations of one forward pass over ``tokens`` tokens in texts of ``length`` tokens.

    12 width^2 weights per block, two operations each, and the attention scores (Kaplan et al. 2020, section 2.1).

    Examples
    --------
    >>> forward_flops(width=64, depth=4, tokens=1000, length=0) == 1000 * 2 * 12 * 64**2 * 4
    True
    """
    return tokens * depth * (24.0 * width**2 + 4.0 * length * width)


@dataclass(frozen=True)
class TextSize:
    """How much text there is: number of texts, tokens in all, and tokens per text."""

    texts: int
    tokens: float
    length: float


UNKNOWN_TASK = TextSize(texts=5_000, tokens=250_000.0, length=50.0)
"""Assumed of a task whose data is not on this machine."""


def size_of(characters: Iterable[int], max_length: int) -> TextSize:
    """Assumed size of texts with these numbers of characters.

    Examples
    --------
    >>> size_of([30, 60, 3000], max_length=100)
    TextSize(texts=3, tokens=130.0, length=43.333333333333336)
    """
    tokens = [min(float(max_length), max(1.0, n / CHARACTERS_PER_TOKEN)) for n in characters]
    return TextSize(len(tokens), sum(tokens), sum(tokens) / max(1, len(tokens)))


def encode_seconds(width: int, depth: int, tokens: float, length: float, flops: float = CPU_FLOPS) -> float:
    """Assumed seconds to load a checkpoint and run texts through it."""
    load = 0.2 + 12.0 * width**2 * depth * 4 / 1e9  # overhead, and float32 weights at 1 GB/s
    return load + forward_flops(width, depth, tokens, length) / flops


def score_seconds(texts: int, width: int) -> float:
    """Assumed seconds to fit and score a probe on vectors of one layer, on one CPU core."""
    return 0.02 + 1e-6 * texts * width
