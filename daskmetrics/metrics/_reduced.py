"""What is left of a checkpoint's hidden states: one value per layer and metric, and why where there is none."""

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
        What the rows are.
    metrics : tuple of str
        What the columns are.
    values : array (L, M) of float64
        In the metric's units; NaN where there is none.
    stderr : array (L, M) of float64
        Standard error over prompts: of token metrics that of the mean, of the metrics marked ``jackknife`` from
        leaving out each prompt in turn. NaN for the others, which are functions of a spectrum, and for a single prompt.
    counts : array (L, M) of int64
        Prompts that the value rests on: a prompt of one token has no curvature and is left out.
    status : array (L, M) of uint8
        `Status.OK` or `Status.NAN`; `Status.NOT_APPLICABLE` where the deepest layer has no next one.
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
