"""The metrics of a checkpoint: one value per layer and metric, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Reduced:
    """Metrics of every layer of one checkpoint; L layers, M metrics.

    Parameters
    ----------
    layers : tuple of int
        Layers of the rows.
    metrics : tuple of str
        Names of the columns.
    values : array (L, M) of float64
        In the units of the metric; NaN if there is no value.
    stderr : array (L, M) of float64
        Standard error over prompts: for token metrics of the mean, for metrics marked ``jackknife`` from leaving out
        each prompt in turn. NaN for functions of a spectrum, and for a single prompt.
    counts : array (L, M) of int64
        Number of prompts in the value: a prompt of one token has no curvature, for instance.
    status : array (L, M) of uint8
        `Status.OK` or `Status.NAN`; `Status.NOT_APPLICABLE` if a metric needs a next layer and there is none.
    reasons : mapping of (layer, metric name) to str
        Why a value is NaN.
    """

    layers: tuple[int, ...]
    metrics: tuple[str, ...]
    values: NDArray[np.float64]
    stderr: NDArray[np.float64]
    counts: NDArray[np.int64]
    status: NDArray[np.uint8]
    reasons: Mapping[tuple[int, str], str]
