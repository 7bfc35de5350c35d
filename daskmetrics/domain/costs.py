"""The assumed cost of a piece of work, known before any is done.

The search weighs cells by these numbers and not by measured times, so that two runs make the same
decisions however busy the machine is. Only the ratios need to be right; the journal holds the
measured times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: assumed sustained float32 operations per second of one CPU core in a forward pass
CPU_FLOPS = 2e10
#: assumed sustained operations per second of one data-centre GPU in a half-precision forward pass
GPU_FLOPS = 5e13
#: the same in products and eigenvalues of matrices of a few hundred rows, in float64
CPU_EIGEN_FLOPS = 1e10
GPU_EIGEN_FLOPS = 1e12
READ_RATE = 1e9  #: assumed bytes per second at which weights are read
DOWNLOAD_RATE = 5e7  #: assumed bytes per second from the hub, 400 Mbit/s
VOCABULARY = 50_304  #: assumed tokens of a model that is not on this machine
CHARACTERS_PER_TOKEN = 3.0  #: assumed, for English text and a small vocabulary


def pass_flops(weights: float, layers: int, attention: int, tokens: float, length: float) -> float:
    """Operations of one forward pass over ``tokens`` tokens.

    Texts have ``length`` tokens.

    The texts have ``tokens`` tokens in all. Two for each token and each weight of the blocks
    (Kaplan et al. 2020, section 2.1), and in each layer the products of queries with keys and of
    their weights with values, four for each pair of tokens and each of the ``attention`` dimensions
    of all heads (Hoffmann et al. 2022, appendix F, which also counts the softmax, left out here).
    Embeddings are looked up and not counted.

    >>> pass_flops(weights=12 * 64**2, layers=1, attention=64, tokens=10, length=10) == 10 * (24 * 64**2 + 4 * 10 * 64)
    True
    """
    return tokens * (2.0 * weights + 4.0 * layers * attention * length)


def block_weights(width: int, depth: int) -> float:
    """Assumed weights of the blocks: 12 width² in each.

    Kaplan et al. (2020), section 2.1.
    """
    return 12.0 * width**2 * depth


def weight_bytes(width: int, depth: int) -> float:
    """Assumed size of a model that is not on this machine.

    It has blocks and one embedding, with two bytes for each weight.

    >>> [round(weight_bytes(*shape) / 1e6) for shape in ((128, 6), (512, 6), (1024, 24))]  # Pythia 14m, 70m, 410m
    [15, 89, 707]
    """
    embedding = VOCABULARY * width
    return 2.0 * (block_weights(width, depth) + embedding)


@dataclass(frozen=True)
class TextSize:
    """How much text there is."""

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
        texts = len(tokens)
        total = sum(tokens)
        return cls(texts, total, total / max(1, texts))


UNKNOWN_TASK = TextSize(texts=5_000, tokens=250_000.0, length=50.0)
"""Assumed for a task whose data is not on this machine."""


@dataclass(frozen=True)
class CostModel:
    """Assumed seconds of work on a CPU core (``cpu``) or a GPU.

    They depend on the model's width and depth.

    >>> text = TextSize(texts=1_000, tokens=50_000.0, length=50.0)
    >>> round(CostModel("cpu").encode_seconds(512, 6, text), 1)
    96.2
    """

    device: str
    download_rate: float = DOWNLOAD_RATE  # bytes per second from the hub

    def download_seconds(self, size: float) -> float:
        """Of downloading this many bytes."""
        return size / self.download_rate

    def load_seconds(self, size: float) -> float:
        """Of loading a checkpoint of this many bytes."""
        return 0.2 + size / READ_RATE

    def forward_seconds(self, width: int, depth: int, text: TextSize) -> float:
        """Of running texts through a checkpoint."""
        weights = block_weights(width, depth)
        operations = pass_flops(weights, depth, width, text.tokens, text.length)
        if self.device == "cpu":
            return operations / CPU_FLOPS
        return operations / GPU_FLOPS

    def reduce_seconds(self, operations: float) -> float:
        """Of this many operations of metrics."""
        if self.device == "cpu":
            return operations / CPU_EIGEN_FLOPS
        return operations / GPU_EIGEN_FLOPS

    def encode_seconds(self, width: int, depth: int, text: TextSize) -> float:
        """Of loading a checkpoint in float32, and running texts through it."""
        loading = self.load_seconds(4 * block_weights(width, depth))
        return loading + self.forward_seconds(width, depth, text)

    def score_seconds(self, width: int, text: TextSize) -> float:
        """Of a probe on vectors of one layer, on one CPU core."""
        return 0.02 + 1e-6 * text.texts * width

    def train_seconds(self, width: int, depth: int, tokens: float, length: float) -> float:
        """Of training; a backward pass costs twice a forward pass."""
        passes = TextSize(0, 3.0 * tokens, length)
        return self.encode_seconds(width, depth, passes)
