"""From pooled vectors to those of an arm: layers read together, dimensions, whitening, and what an
index stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.readouts import Readout

Vectors = NDArray[np.float32]

LEVELS = 255  # steps of int8 between the smallest and the largest value of a dimension
# components with a smaller share of the largest component's standard deviation are rounding errors
FLAT = 1e-7


@dataclass(frozen=True, eq=False)
class Fitted:
    """A readout with what it took from the corpus: from joined vectors to what an index stores and
    a task sees.

    A vector is projected to ``(vector - mean) @ basis``, with ``mean`` (D,) and ``basis`` (D, n);
    with whitening alone D is the number of kept dimensions. Of ``int8`` the number -128 stands for
    ``low`` (n,), and each further one for a ``step`` (n,) more.

    >>> binary = fit(Readout(storage="binary"))
    >>> binary(np.array([[0.5, -0.1, 0.0]], np.float32))
    array([[ 1., -1., -1.]], dtype=float32)
    >>> binary.stored(np.array([[0.5, -0.1, 0.0]], np.float32))
    array([[128]], dtype=uint8)
    """

    readout: Readout
    mean: Vectors | None = None
    basis: Vectors | None = None
    low: Vectors | None = None
    step: Vectors | None = None

    def __call__(self, vectors: Vectors) -> Vectors:
        """What a task sees (texts, n) of joined vectors (texts, D)."""
        return self.seen(self.stored(vectors), vectors.shape[1])

    def projected(self, vectors: Vectors) -> Vectors:
        """The vectors (texts, n) before they are stored."""
        if (self.readout.kept or 0) > vectors.shape[1]:
            raise UndefinedError(
                f"Readout '{self.readout}' needs more than {vectors.shape[1]} dimensions."
            )
        if not self.readout.principal:
            # a task that compares lengths normalises by itself
            vectors = vectors[:, : self.readout.kept]
        if self.basis is None or self.mean is None:
            return vectors
        return np.asarray((vectors - self.mean) @ self.basis)

    def stored(self, vectors: Vectors) -> NDArray[Any]:
        """What an index stores of joined vectors (texts, D): numbers (texts, n), or packed bits for
        ``binary``.
        """
        projected = self.projected(vectors)
        match self.readout.storage:
            case "int8":
                assert self.low is not None and self.step is not None
                zeros = np.zeros_like(projected)
                levels = np.divide(projected - self.low, self.step, out=zeros, where=self.step > 0)
                return np.asarray(np.clip(np.rint(levels), 0, LEVELS) - 128).astype(np.int8)
            case "binary":
                return np.packbits(projected > 0, axis=1)
            case storage:
                # infinite values are reported where vectors are scored
                with np.errstate(over="ignore"):
                    return projected.astype(storage)

    def seen(self, stored: NDArray[Any], width: int) -> Vectors:
        """The numbers (texts, n) that stored vectors stand for; ``width`` is that of the joined
        vectors.

        Signs of ``binary`` are +1 and -1: their cosine is 1 - 2 h / n for a Hamming distance of h.
        """
        if self.readout.storage == "binary":
            bits = np.unpackbits(stored, axis=1, count=self.readout.kept or width)
            return 2 * bits.astype(np.float32) - 1
        numbers = stored.astype(np.float32)
        if self.low is None or self.step is None:
            return numbers
        return (numbers + 128) * self.step + self.low


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
    loading positive, as scikit-learn's PCA has them. The scale of ``int8`` is of each dimension and
    spans the corpus's values, as in sentence-transformers. It is fitted on the corpus and not on
    the texts of a task, so that a text has one vector, whatever else is in the index; values beyond
    the corpus's are clipped. It is an `UndefinedError` if the corpus's vectors do not vary in
    enough directions.
    """
    if not readout.is_fitted:
        return Fitted(readout)
    assert corpus is not None
    mean, basis = _projection(readout, corpus)
    projected = Fitted(readout, mean, basis).projected(corpus)
    if readout.storage != "int8":
        return Fitted(readout, mean, basis)
    low = projected.min(axis=0)
    return Fitted(readout, mean, basis, low, (projected.max(axis=0) - low) / np.float32(LEVELS))


def _projection(readout: Readout, corpus: Vectors) -> tuple[Vectors, Vectors] | tuple[None, None]:
    """The mean (D,) and the basis (D, n) of principal components; None if there is no projection."""
    if not (readout.principal or readout.whitening):
        return None, None
    kept = readout.kept or corpus.shape[1]
    wide = np.asarray(corpus if readout.principal else corpus[:, :kept], dtype=np.float64)
    mean = wide.mean(axis=0)
    _, spread, rows = np.linalg.svd(wide - mean, full_matrices=False)
    varied = int((spread > FLAT * spread[0]).sum())
    if varied < kept:
        raise UndefinedError(
            f"Readout '{readout}' needs {kept} components, but the vectors of the {len(corpus)} "
            f"texts of the corpus vary in {varied} directions."
        )
    largest = np.abs(rows).argmax(axis=1)
    basis = (rows * np.sign(rows[np.arange(len(rows)), largest])[:, None])[:kept].T
    if readout.whitening:
        basis = basis * (np.sqrt(len(corpus) - 1) / spread[:kept])
    return mean.astype(np.float32), basis.astype(np.float32)
