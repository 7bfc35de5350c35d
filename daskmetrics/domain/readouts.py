"""Readouts: how the vector of a candidate is made of the states of its layer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from daskmetrics.core.errors import ConfigError, UndefinedError, unknown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Number = TypeVar("Number", bound=np.floating)

POOLINGS = ("as_shipped", "mean", "last", "cls", "weighted", "max")

# of two parts, of which each may be missing; `Readout.parse` compares the comma between them
_NAME = re.compile(rf"(?P<pooling>{'|'.join(POOLINGS)})?,?(?:(?P<dimensions>[1-9][0-9]{{0,8}})d?)?")


@dataclass(frozen=True)
class Readout:
    """The pooling of a text's tokens, and the dimensions kept.

    By default as the protocol says, with all dimensions. A part that is not valid is a
    `ConfigError`.

    >>> str(Readout("last", dimensions=256))
    'last,256d'
    >>> Readout.parse("mean,64d")
    Readout(pooling='mean', dimensions=64)
    >>> Readout.parse("") == Readout()
    True
    """

    pooling: str = ""  # one of `POOLINGS`; empty: as the task or the protocol says
    dimensions: int | None = None  # the first so many; None: all

    def __post_init__(self) -> None:
        if self.pooling and self.pooling not in POOLINGS:
            raise unknown("pooling", self.pooling, POOLINGS)
        if self.dimensions is not None and self.dimensions < 1:
            raise ConfigError(f"Got {self.dimensions} dimensions. Keep 1 or more, such as 256.")

    def __str__(self) -> str:
        """The canonical name, empty for the default.

        It needs no quotes in a shell.
        """
        kept = f"{self.dimensions}d" if self.dimensions else ""
        return ",".join(filter(None, (self.pooling, kept)))

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, name: str) -> Readout:
        """The readout with this name, the inverse of ``str``.

        A wrong or misplaced part is a `ConfigError`.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ConfigError(
                f"'{name}' is not a readout. Write parts in this order: pooling "
                f"({', '.join(POOLINGS)}), and dimensions (256d)."
            )
        dimensions = match["dimensions"]
        readout = cls(match["pooling"] or "", int(dimensions) if dimensions else None)
        if str(readout) != name:
            raise ConfigError(f"'{name}' is not the name of a readout: write '{readout}'.")
        return readout

    def width(self, width: int) -> int:
        """Dimensions of the candidate's vectors.

        Of pooled vectors with this many.
        """
        return self.dimensions or width

    def check(self, width: int) -> None:
        """Check that vectors of this width have these dimensions."""
        if self.width(width) > width:
            raise ConfigError(
                f"Readout '{self}' keeps {self.dimensions:,} dimensions, but vectors have"
                f" {width:,}: keep fewer."
            )

    def of(self, vectors: NDArray[Number]) -> NDArray[Number]:
        """What a task sees (texts, n) of vectors (texts, D).

        They are not normalised again: a task that compares lengths does that by itself. It is an
        `UndefinedError` if the vectors have fewer dimensions.
        """
        width = vectors.shape[1]
        if self.width(width) > width:
            raise UndefinedError(f"Readout '{self}' needs more than {width} dimensions.")
        return vectors[:, : self.dimensions]
