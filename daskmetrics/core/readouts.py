"""Readouts: how the vector of an arm is made of the states of its checkpoint, beyond which layer is
read.

A readout has three parts: the pooling of a text's tokens, the layers that are read together, and
the dimensions that are kept. They are applied in this order; `fitted` does it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from daskmetrics.core.errors import ConfigError, unknown

POOLINGS = ("as_shipped", "mean", "last", "cls", "weighted", "max")

_DIMENSIONS = r"(?:pca)?[1-9]\d*"
# of three parts, of which each may be missing; `Readout.parse` compares the commas between them
_NAME = re.compile(
    rf"(?P<pooling>{'|'.join(POOLINGS)})?,?(?P<layers>(?:mean|concat)\d+(?:[-+]\d+)+)?,?"
    rf"(?:(?P<dimensions>{_DIMENSIONS})d?)?"
)


@dataclass(frozen=True, order=True)
class Readout:
    """How an arm's vector is read; by default as the protocol says: one layer, all dimensions.

    A part that is not valid is a `ConfigError`.

    >>> str(Readout("last", dimensions="256"))
    'last,256d'
    >>> Readout.parse("mean3-6,pca64")
    Readout(pooling='', layers='mean3-6', dimensions='pca64')
    >>> Readout.parse("") == Readout()
    True
    """

    pooling: str = ""  # one of `POOLINGS`; empty: as the task or the protocol says
    # read together: ``mean3-6`` is the mean of the vectors of layers 3 to 6, ``concat3+7`` those of
    # layers 3 and 7 one after the other; empty: the arm's layer alone
    layers: str = ""
    # ``256`` keeps the first 256, ``pca128`` the first 128 principal components of the corpus;
    # empty: all
    dimensions: str = ""

    def __post_init__(self) -> None:
        if self.pooling and self.pooling not in POOLINGS:
            raise unknown("pooling", self.pooling, POOLINGS)
        if self.dimensions and not re.fullmatch(_DIMENSIONS, self.dimensions):
            raise ConfigError(
                f"Got dimensions '{self.dimensions}'. Write a number such as 256, or pca128."
            )
        if self.layers and self.layers != joined_name(self.join, self.together):
            raise ConfigError(
                f"Got layers '{self.layers}'. Write two or more layers in ascending order: "
                "mean3-6 or concat3+7."
            )

    def __str__(self) -> str:
        """The canonical name, empty for the default; it needs no quotes in a shell or a file
        name.
        """
        kept = self.dimensions
        if kept.isdecimal():
            kept += "d"
        return ",".join(filter(None, (self.pooling, self.layers, kept)))

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, name: str) -> Readout:
        """The readout with this name, the inverse of ``str``; `ConfigError` for a wrong or
        misplaced part.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ConfigError(
                f"'{name}' is not a readout. Write parts in this order: pooling "
                f"({', '.join(POOLINGS)}), layers (mean3-6, concat3+7), and dimensions (256d, "
                "pca128)."
            )
        readout = cls(**match.groupdict(default=""))
        if str(readout) != name:
            raise ConfigError(f"'{name}' is not the name of a readout: write '{readout}'.")
        return readout

    @property
    def join(self) -> str:
        """``mean`` or ``concat`` for layers that are read together, otherwise empty."""
        return self.layers.rstrip("0123456789+-")

    @property
    def together(self) -> tuple[int, ...]:
        """The layers that are read together, ascending; empty for one layer."""
        numbers: list[int] = []
        for run in filter(None, self.layers.removeprefix(self.join).split("+")):
            start, _, end = run.partition("-")
            if f"{start}{end}".isdecimal():
                numbers += range(int(start), int(end or start) + 1)
        return tuple(numbers)

    def layers_of(self, layer: int) -> tuple[int, ...]:
        """The layers that an arm of this layer reads."""
        return self.together or (layer,)

    @property
    def kept(self) -> int | None:
        """Number of dimensions that are kept; None for all."""
        if self.dimensions:
            return int(self.dimensions.removeprefix("pca"))
        return None

    @property
    def principal(self) -> bool:
        """Whether the dimensions are principal components, which are fitted on the corpus."""
        return self.dimensions.startswith("pca")

    def joined_width(self, width: int) -> int:
        """Dimensions before any are left out, of pooled vectors with this many."""
        return width * (len(self.together) if self.join == "concat" else 1)

    def width(self, width: int) -> int:
        """Dimensions of the arm's vectors, of pooled vectors with this many."""
        return self.kept or self.joined_width(width)

    def check(self, width: int, corpus: int) -> None:
        """Check that this is possible for pooled vectors of this width and a corpus of this many
        texts.
        """
        kept = self.width(width)
        available = self.joined_width(width)
        if kept > available:
            raise ConfigError(
                f"Readout '{self}' keeps {kept:,} dimensions, but vectors have {available:,}: keep "
                "fewer."
            )
        if self.principal and kept >= corpus:
            raise ConfigError(
                f"Readout '{self}' needs {kept:,} principal components of a corpus of {corpus:,} "
                "texts: more texts than dimensions are needed. Set corpus.prompts to "
                f"{kept + 1:,} or more."
            )


def joined_name(join: str, layers: tuple[int, ...]) -> str:
    """The name of layers that are read together; an empty text if they are not ascending, or fewer
    than two.

    >>> joined_name("mean", (3, 4, 5, 6)), joined_name("concat", (3, 7, 8))
    ('mean3-6', 'concat3+7+8')
    """
    is_ascending = list(layers) == sorted(set(layers))
    if join not in ("mean", "concat") or len(layers) < 2 or not is_ascending:
        return ""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    named = (f"{run[0]}-{run[-1]}" if len(run) > 2 else "+".join(map(str, run)) for run in runs)
    return join + "+".join(named)
