"""Numbers with error bounds and a source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

# two-sided 90 % points of Student's distribution for 1, 2, ... degrees of freedom; normal distribution beyond
STUDENT = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)
NORMAL = 1.645
ONE_SAMPLE = 1.25  #: factor, up and down, by which a single measurement is assumed to err


def undominated(points: ArrayLike) -> NDArray[np.bool_]:
    """Which points (n, k) of k costs no other point beats: at most as much of every cost, and less of one (Pareto).

    >>> undominated([[1, 9], [2, 5], [2, 6], [3, 5]]).tolist()
    [True, True, False, False]
    """
    costs = np.asarray(points, dtype=float)
    return np.array([not ((costs <= own).all(axis=1) & (costs < own).any(axis=1)).any() for own in costs], dtype=bool)


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
            raise ValueError(f"An interval needs low <= value <= high, got {self.low}, {self.value}, {self.high}.")

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
        """The geometric mean of positive samples with its 90 % interval, since durations err by factors.

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
        t = STUDENT[free - 1] if free <= len(STUDENT) else NORMAL
        value = float(round(math.exp(logs.mean()), 12))
        return cls.around(value, math.exp(t * logs.std(ddof=1) / math.sqrt(len(samples))))

    @property
    def bounds(self) -> tuple[float, float, float]:
        return self.low, self.value, self.high

    def overlaps(self, other: Interval) -> bool:
        """Whether both could be the same number."""
        return self.low <= other.high and other.low <= self.high

    def __add__(self, other: Interval | float) -> Interval:
        other = other if isinstance(other, Interval) else Interval.exactly(other)
        return Interval(self.low + other.low, self.value + other.value, self.high + other.high)

    def __mul__(self, other: Interval | float) -> Interval:
        """The product with a positive number or interval."""
        other = other if isinstance(other, Interval) else Interval.exactly(other)
        return Interval(self.low * other.low, self.value * other.value, self.high * other.high)


@dataclass(frozen=True)
class Estimate:
    """A number with error bounds and its source.

    Attributes
    ----------
    interval : Interval
    source : str
        ``assumed``, or what was measured and where; shown to the user.
    measured : bool
        Whether the number rests on a measurement of the same or a comparable thing.
    at : float or None
        Time of the measurement in seconds since 1970; None for an assumption.
    """

    interval: Interval
    source: str = "assumed"
    measured: bool = False
    at: float | None = None

    @property
    def value(self) -> float:
        return self.interval.value

    def times(self, factor: Interval | float) -> Estimate:
        """The same estimate, scaled."""
        return replace(self, interval=self.interval * factor)
