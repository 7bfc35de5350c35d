"""The readouts that a configuration compares: a product of poolings and dimensions."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from daskmetrics.config.section import AS_LIST, Section, matching
from daskmetrics.domain.readouts import Readout

Pooling = Literal["protocol", "as_shipped", "mean", "last", "cls", "weighted", "max"]
All = Annotated[str, matching("all", "'all', or a number such as 256")]
Count = Annotated[int, Field(ge=1, strict=True)]


class Readouts(Section):
    """How vectors are read from the states: a candidate is a layer with one of each list. All share
    one forward pass.
    """

    pooling: Annotated[tuple[Pooling, ...], AS_LIST] = Field(("protocol",), min_length=1)
    """How token states become one vector: as the task or the protocol says, as a folder of
    sentence-transformers says, their mean, the last or the first token, a mean weighted by
    position, or the maximum.
    Example: `["mean", "last", "cls", "weighted", "max"]`
    """
    dimensions: Annotated[tuple[Count | All, ...], AS_LIST] = Field(("all",), min_length=1)
    """Which dimensions are kept: `all`, or the first so many.
    Example: `["all", 256]`
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the readouts.

        The first listed value of each part comes first.

        Examples
        --------
        >>> Readouts(pooling=["mean", "last"], dimensions=["all", 64]).names
        ('mean', 'mean,64d', 'last', 'last,64d')
        """
        names = []
        for pooling, dimensions in product(self.pooling, self.dimensions):
            named = "" if pooling == "protocol" else pooling
            kept = None if isinstance(dimensions, str) else dimensions
            names.append(str(Readout(named, kept)))
        return tuple(dict.fromkeys(names))
