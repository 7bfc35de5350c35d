"""The assumed cost of a piece of work, known before any is done, and numbers with error bounds.

The search weighs cells by these numbers and not by measured times, so that two runs make the same
decisions however busy the machine is. Only the ratios need to be right; the journal holds the
measured times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
# two-sided 90 % points of Student's distribution for 1, 2, ... degrees of freedom; normal
# distribution beyond
STUDENT = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)
NORMAL = 1.645
ONE_SAMPLE = 1.25  #: factor, up and down, by which a single measurement is assumed to err


def pass_flops(weights: float, layers: int, attention: int, tokens: float, length: float) -> float:
    """Operations of one forward pass over ``tokens`` tokens in texts of ``length`` tokens.

    Two for each token and each weight of the blocks (Kaplan et al. 2020, section 2.1), and in each
    layer the products of queries with keys and of their weights with values, four for each pair of
    tokens and each of the ``attention`` dimensions of all heads (Hoffmann et al. 2022, appendix F,
    which also counts the softmax, left out here). Embeddings are looked up and not counted.

    >>> pass_flops(weights=12 * 64**2, layers=1, attention=64, tokens=10, length=10) == 10 * (24 * 64**2 + 4 * 10 * 64)
    True
    """
    return tokens * (2.0 * weights + 4.0 * layers * attention * length)


def weight_bytes(width: int, depth: int) -> float:
    """Assumed size of a model that is not on this machine: blocks and one embedding, two bytes for
    each weight.

    >>> [round(weight_bytes(*shape) / 1e6) for shape in ((128, 6), (512, 6), (1024, 24))]  # Pythia 14m, 70m, 410m
    [15, 89, 707]
    """
    return 2.0 * (12.0 * width**2 * depth + VOCABULARY * width)


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
    """Assumed seconds of each kind of work unit on a CPU core (``cpu``) or a GPU, for a model's
    width and depth.

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
        """Of loading a checkpoint whose weights have this many bytes: a fixed overhead, and
        reading.
        """
        return 0.2 + size / READ_RATE

    def forward_seconds(self, width: int, depth: int, text: TextSize) -> float:
        """Of running texts through a checkpoint with 12 width^2 weights in each block (Kaplan et
        al. 2020, section 2.1).
        """
        flops = CPU_FLOPS if self.device == "cpu" else GPU_FLOPS
        weights = 12.0 * width**2 * depth
        return pass_flops(weights, depth, width, text.tokens, text.length) / flops

    def reduce_seconds(self, operations: float) -> float:
        """Of this many operations of metrics."""
        if self.device == "cpu":
            return operations / CPU_EIGEN_FLOPS
        return operations / GPU_EIGEN_FLOPS

    def encode_seconds(self, width: int, depth: int, text: TextSize) -> float:
        """Of loading a checkpoint, its blocks in float32, and running texts through it."""
        return self.load_seconds(12.0 * width**2 * depth * 4) + self.forward_seconds(
            width, depth, text
        )

    def score_seconds(self, width: int, text: TextSize) -> float:
        """Of fitting and scoring a probe on vectors of one layer, on one CPU core whatever the
        device.
        """
        return 0.02 + 1e-6 * text.texts * width

    def train_seconds(self, width: int, depth: int, tokens: float, length: float) -> float:
        """Of training on tokens in sequences of a length; a backward pass costs twice a forward
        pass.
        """
        return self.encode_seconds(width, depth, TextSize(0, 3.0 * tokens, length))


@dataclass(frozen=True)
class Interval:
    """A value between two bounds.

    Examples
    --------
    >>> Interval(1, 2, 3) + 1.0
    Interval(low=2.0, value=3.0, high=4.0)
    >>> Interval(1, 2, 3).overlaps(Interval(3, 4, 5))
    True
    """

    low: float
    value: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(
                f"An interval needs low <= value <= high, got {self.low}, {self.value},"
                f" {self.high}."
            )

    @classmethod
    def exactly(cls, value: float) -> Interval:
        """A value without error."""
        return cls(value, value, value)

    @classmethod
    def around(cls, value: float, factor: float) -> Interval:
        """From ``value / factor`` to ``value * factor``."""
        return cls(value / factor, value, value * factor)

    @classmethod
    def of(cls, samples: Sequence[float]) -> Interval:
        """The geometric mean of positive samples with its 90 % interval, since durations err by
        factors.

        Examples
        --------
        >>> Interval.of([10.0, 10.0, 10.0])
        Interval(low=10.0, value=10.0, high=10.0)
        >>> Interval.of([10.0]) == Interval.around(10.0, ONE_SAMPLE)
        True
        """
        if not samples or min(samples) <= 0:
            raise ValueError(f"An interval needs positive samples, got {list(samples)}.")
        if len(samples) == 1:
            return cls.around(samples[0], ONE_SAMPLE)
        logs = np.log(samples)
        free = len(samples) - 1
        t = NORMAL
        if free <= len(STUDENT):
            t = STUDENT[free - 1]
        value = float(round(math.exp(logs.mean()), 12))
        return cls.around(value, math.exp(t * logs.std(ddof=1) / math.sqrt(len(samples))))

    @property
    def bounds(self) -> tuple[float, float, float]:
        return self.low, self.value, self.high

    def overlaps(self, other: Interval) -> bool:
        """Whether both could be the same number."""
        return self.low <= other.high and other.low <= self.high

    def __add__(self, other: Interval | float) -> Interval:
        if not isinstance(other, Interval):
            other = Interval.exactly(other)
        return Interval(self.low + other.low, self.value + other.value, self.high + other.high)

    def __mul__(self, other: Interval | float) -> Interval:
        """The product with a positive number or interval."""
        if not isinstance(other, Interval):
            other = Interval.exactly(other)
        return Interval(self.low * other.low, self.value * other.value, self.high * other.high)


@dataclass(frozen=True)
class Estimate:
    """A number with error bounds and its source.

    Attributes
    ----------
    interval : Interval
    source : str
        ``estimated``, or what was measured and where; shown to the user.
    measured : bool
        Whether the number rests on a measurement of the same or a comparable thing.
    at : float or None
        Time of the measurement in seconds since 1970; None for an assumption.
    """

    interval: Interval
    source: str = "estimated"
    measured: bool = False
    at: float | None = None

    @property
    def value(self) -> float:
        return self.interval.value

    def times(self, factor: Interval | float) -> Estimate:
        """The same estimate, scaled."""
        return replace(self, interval=self.interval * factor)


def undominated(points: ArrayLike) -> NDArray[np.bool_]:
    """Which points (n, k) of k costs no other point beats: at most as much of every cost, and less
    of one (Pareto).

    >>> undominated([[1, 9], [2, 5], [2, 6], [3, 5]]).tolist()
    [True, True, False, False]
    """
    costs = np.asarray(points, dtype=float)
    beaten = [((costs <= point).all(axis=1) & (costs < point).any(axis=1)).any() for point in costs]
    return ~np.array(beaten, dtype=bool)
