"""The assumed cost of a piece of work, known before any is done.

The search weighs cells by these numbers and not by measured times, so that two runs make the same decisions however
busy the machine is. Only the ratios need to be right; the journal holds the measured times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

CPU_FLOPS = 2e10  #: assumed sustained float32 operations per second of one CPU core in a forward pass
GPU_FLOPS = 5e13  #: assumed sustained operations per second of one data-centre GPU in a half-precision forward pass
CHARACTERS_PER_TOKEN = 3.0  #: assumed, for English text and a small vocabulary


def forward_flops(width: int, depth: int, tokens: float, length: float) -> float:
    """Operations of one forward pass over ``tokens`` tokens in texts of ``length`` tokens.

    12 width^2 weights per block, two operations each, and the attention scores (Kaplan et al. 2020, section 2.1).

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

    @classmethod
    def of(cls, characters: Iterable[int], max_length: int) -> TextSize:
        """Assumed size of texts with these numbers of characters.

        >>> TextSize.of([30, 60, 3000], max_length=100)
        TextSize(texts=3, tokens=130.0, length=43.333333333333336)
        """
        tokens = [min(float(max_length), max(1.0, n / CHARACTERS_PER_TOKEN)) for n in characters]
        return cls(len(tokens), sum(tokens), sum(tokens) / max(1, len(tokens)))


UNKNOWN_TASK = TextSize(texts=5_000, tokens=250_000.0, length=50.0)
"""Assumed for a task whose data is not on this machine."""


@dataclass(frozen=True)
class CostModel:
    """Assumed seconds of each kind of work unit on a CPU core (``cpu``) or a GPU, for a model's width and depth.

    >>> text = TextSize(texts=1_000, tokens=50_000.0, length=50.0)
    >>> round(CostModel("cpu").measure_seconds(512, 6, text, views=2), 1)
    192.1
    """

    device: str

    def encode_seconds(self, width: int, depth: int, text: TextSize) -> float:
        """Of loading a checkpoint and running texts through it."""
        flops = CPU_FLOPS if self.device == "cpu" else GPU_FLOPS
        load = 0.2 + 12.0 * width**2 * depth * 4 / 1e9  # a fixed overhead, and float32 weights at 1 GB/s
        return load + forward_flops(width, depth, text.tokens, text.length) / flops

    def score_seconds(self, width: int, text: TextSize) -> float:
        """Of fitting and scoring a probe on vectors of one layer, on one CPU core whatever the device."""
        return 0.02 + 1e-6 * text.texts * width

    def measure_seconds(self, width: int, depth: int, text: TextSize, views: int) -> float:
        """Of measuring a checkpoint by a number of views of each text."""
        return self.encode_seconds(width, depth, replace(text, tokens=views * text.tokens))

    def train_seconds(self, width: int, depth: int, tokens: float, length: float) -> float:
        """Of training on tokens in sequences of a length; a backward pass costs twice a forward pass."""
        return self.encode_seconds(width, depth, TextSize(0, 3.0 * tokens, length))
