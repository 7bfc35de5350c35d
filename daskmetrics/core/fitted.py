"""From pooled vectors to those of a candidate: layers read together, and the dimensions that are
kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.readouts import Readout

Vectors = NDArray[np.float32]

# components with a smaller share of the largest component's standard deviation are rounding errors
FLAT = 1e-7


@dataclass(frozen=True, eq=False)
class Fitted:
    """A readout with what it took from the corpus: from joined vectors to what a task sees.

    A vector is projected to ``(vector - mean) @ basis``, with ``mean`` (D,) and ``basis`` (D, n),
    if principal components are kept.

    >>> fit(Readout(dimensions="2"))(np.array([[0.5, -0.1, 0.0]], np.float32))
    array([[ 0.5, -0.1]], dtype=float32)
    """

    readout: Readout
    mean: Vectors | None = None
    basis: Vectors | None = None

    def __call__(self, vectors: Vectors) -> Vectors:
        """What a task sees (texts, n) of joined vectors (texts, D)."""
        if (self.readout.kept or 0) > vectors.shape[1]:
            raise UndefinedError(
                f"Readout '{self.readout}' needs more than {vectors.shape[1]} dimensions."
            )
        if self.basis is None or self.mean is None:
            # a task that compares lengths normalises by itself
            return vectors[:, : self.readout.kept]
        return np.asarray((vectors - self.mean) @ self.basis)


def joined(readout: Readout, vectors: Mapping[int, Vectors], layer: int) -> Vectors:
    """The vectors (texts, `joined_width`) of an arm, from the pooled vectors (texts, D) of the
    layers it reads.
    """
    read = [vectors[number] for number in readout.layers_of(layer)]
    if readout.join == "mean":
        return np.asarray(np.mean(read, axis=0, dtype=np.float32))
    if readout.join:
        return np.concatenate(read, axis=1)
    return read[0]


def fit(readout: Readout, corpus: Vectors | None = None) -> Fitted:
    """The readout with what it takes from the corpus's joined vectors (texts, D), which may be None
    if nothing.

    Principal components are those of the centred vectors, each with the sign that makes its largest
    loading positive, as scikit-learn's PCA has them. They are fitted on the corpus and not on the
    texts of a task, so that a text has one vector, whatever else is in the index. It is an
    `UndefinedError` if the corpus's vectors do not vary in enough directions.
    """
    if not readout.principal:
        return Fitted(readout)
    assert corpus is not None
    kept = readout.kept or corpus.shape[1]
    wide = np.asarray(corpus, dtype=np.float64)
    mean = wide.mean(axis=0)
    _, spread, rows = np.linalg.svd(wide - mean, full_matrices=False)
    varied = int((spread > FLAT * spread[0]).sum())
    if varied < kept:
        raise UndefinedError(
            f"Readout '{readout}' needs {kept} components, but the vectors of the {len(corpus)} "
            f"texts of the corpus vary in {varied} directions."
        )
    largest = np.abs(rows).argmax(axis=1)
    signs = np.sign(rows[np.arange(len(rows)), largest])
    basis = (rows * signs[:, None])[:kept].T
    return Fitted(readout, mean.astype(np.float32), basis.astype(np.float32))
