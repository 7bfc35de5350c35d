"""The readouts that a configuration compares: a product of poolings, layers and dimensions."""

from __future__ import annotations

import re
from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from daskmetrics.config.section import AS_LIST, Section, matching
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.readouts import Readout, joined_name

EACH = "each"
_JOIN = re.compile(r"(mean|concat)\( *(?:(-?\d+)? *: *(-?\d+)?|(-?\d+(?: *, *-?\d+)+)) *\)")

Pooling = Literal["protocol", "as_shipped", "mean", "last", "cls", "weighted", "max"]
Joined = Annotated[
    str,
    matching(
        f"{EACH}|{_JOIN.pattern}",
        "'each', or layers that are read together: 'mean(-4:)', 'concat(3, 7)'",
    ),
]
Components = Annotated[
    str, matching(r"all|pca[1-9]\d*", "'all', a number such as 256, or components such as pca128")
]
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
    layers: Annotated[tuple[Joined, ...], AS_LIST] = Field((EACH,), min_length=1)
    """Which layers are read: `each` alone, or several together, by their mean or one after the
    other. As in Python, `3:6` leaves out 6, and -1 is the last layer.
    Example: `["each", "mean(-4:)", "concat(3, 7)"]`
    """
    dimensions: Annotated[tuple[Count | Components, ...], AS_LIST] = Field(("all",), min_length=1)
    """Which dimensions are kept: `all`, the first so many, or so many principal components,
    `pca128`, fitted on the corpus.
    Example: `["all", 256, "pca128"]`
    """

    @property
    def is_fitted(self) -> bool:
        """Whether a readout is fitted on the corpus: principal components."""
        return any(str(kept).startswith("pca") for kept in self.dimensions)

    def names(self, depth: int) -> tuple[str, ...]:
        """Names of the readouts of a model with this many blocks; the first listed value of each
        part comes first.

        Raises
        ------
        ConfigError
            If layers that are read together do not exist.

        Examples
        --------
        >>> Readouts(layers=["each", "mean(-2:)"], dimensions=["all", 64]).names(depth=6)
        ('', '64d', 'mean5+6', 'mean5+6,64d')
        """
        choices = product(self.layers, self.pooling, self.dimensions)
        return tuple(
            dict.fromkeys(
                str(
                    Readout(
                        "" if pooling == "protocol" else pooling,
                        "" if layers == EACH else _together(layers, depth),
                        "" if dimensions == "all" else str(dimensions),
                    )
                )
                for layers, pooling, dimensions in choices
            )
        )


def _together(text: str, depth: int) -> str:
    """The name of layers that are read together, such as ``mean(-4:)``, of a model with this many
    blocks.

    >>> _together("mean(-4:)", 12), _together("mean(3:6)", 12), _together("concat(3, -1)", 12)
    ('mean9-12', 'mean3-5', 'concat3+12')
    """
    match = _JOIN.fullmatch(text)
    assert match is not None  # the section checks it
    join, start, end, listed = match.groups()
    numbers = [int(start or 0), int(end or depth + 1)]
    if listed is not None:
        numbers = list(map(int, listed.split(",")))
    chosen = [number + depth + 1 if number < 0 else number for number in numbers]
    if listed is None:
        chosen = list(range(*chosen))
    name = joined_name(join, tuple(sorted(chosen)))
    if not name or chosen[0] < 0 or not all(0 <= layer <= depth for layer in chosen):
        problem = f"'{text}' in readouts.layers is not two or more different layers of 0...{depth}"
        if chosen:
            problem += f", but {', '.join(map(str, chosen))}"
        raise ConfigError(f"{problem}. Write others, or give the model 'readouts' of its own.")
    return name
