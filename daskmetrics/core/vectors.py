"""From pooled vectors to those of a candidate: layers read together, and the dimensions that are
kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.readouts import Readout

Vectors = NDArray[np.float32]


def read_out(readout: Readout, vectors: Mapping[int, Vectors], layer: int) -> Vectors:
    """The vectors (texts, n) of an arm, from the pooled vectors (texts, D) of the layers it reads.

    >>> read_out(Readout(dimensions="2"), {1: np.array([[0.5, -0.1, 0.0]], np.float32)}, 1)
    array([[ 0.5, -0.1]], dtype=float32)
    """
    read = [vectors[number] for number in readout.layers_of(layer)]
    joined = read[0]
    if readout.join == "mean":
        joined = np.asarray(np.mean(read, axis=0, dtype=np.float32))
    elif readout.join:
        joined = np.concatenate(read, axis=1)
    if (readout.kept or 0) > joined.shape[1]:
        raise UndefinedError(f"Readout '{readout}' needs more than {joined.shape[1]} dimensions.")
    # a task that compares lengths normalises by itself
    return joined[:, : readout.kept]
