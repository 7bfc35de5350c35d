"""What is known of an arm before any score: its position in training and depth, its model, and its
metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from daskmetrics.bandit.problem import Floats
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Checkpoint, Suite
from daskmetrics.core.readouts import Readout


def arm_features(suites: Sequence[Suite], metrics: Floats | None = None) -> Floats:
    """Features of every arm that are known before any score: its position and its label-free
    metrics.

    Parameters
    ----------
    suites : sequence of Suite
        The rows of the result are in the order of `daskmetrics.core.names.grid`.
    metrics : ndarray (A, M) or None
        NaN where a metric is missing.

    Returns
    -------
    ndarray (A, 2 + number of suites + metrics kept)
        Training step, log2(step + 1) scaled to [0, 1] within the suite; relative depth in [0, 1],
        the mean of layers that are read together; one-hot model; the metrics with mean 0 and sd 1
        over all arms, missing ones 0 (the mean), constant ones dropped.

    Examples
    --------
    >>> arm_features([Suite("m", ("step0", "step1", "step3", "main"), (2,), 4)])
    array([[0. , 0.5, 1. ],
           [0.5, 0.5, 1. ],
           [1. , 0.5, 1. ],
           [1. , 0.5, 1. ]])
    """
    rows: list[list[float]] = []
    for suite in suites:
        models = [float(suite is other) for other in suites]
        depths = [
            fmean(Readout.parse(name).layers_of(layer)) / suite.depth for layer, name in suite.rows
        ]
        for time in _training_times(suite):
            rows += [[time, depth, *models] for depth in depths]
    position = np.array(rows, dtype=float)
    if metrics is None:
        return position
    if len(metrics) != len(position):
        raise DataError(
            f"metrics must have a row for each of {len(position)} arms, got {len(metrics)}."
        )
    return np.hstack([position, _standardised(metrics)])


def metrics_of_arms(suites: Sequence[Suite], by_layer: Floats) -> Floats:
    """Metrics of every arm (A, M), from those of every layer of every checkpoint: readouts of a
    layer share them.

    Layers that are read together have those of the deepest.
    """
    rows: list[int] = []
    start = 0
    for suite in suites:
        for _ in suite.revisions:
            rows += [start + suite.layers.index(layer) for layer, _ in suite.rows]
            start += len(suite.layers)
    return np.asarray(by_layer[rows])


def measured(
    suites: Sequence[Suite], values: Mapping[Checkpoint, Sequence[Sequence[float | None]]]
) -> tuple[list[Suite], Floats]:
    """The suites with those of their checkpoints that have values, layer by layer, and the metrics
    of their arms.
    """
    kept, blocks = [], []
    for suite in suites:
        checkpoints = [checkpoint for checkpoint in suite.checkpoints() if checkpoint in values]
        if checkpoints:
            revisions = tuple(checkpoint.revision for checkpoint in checkpoints)
            kept.append(replace(suite, revisions=revisions))
            blocks += [np.array(values[checkpoint], dtype=float) for checkpoint in checkpoints]
    if not kept:
        return [], np.empty((0, 0))
    return kept, metrics_of_arms(kept, np.concatenate(blocks))


def _training_times(suite: Suite) -> list[float]:
    steps = [checkpoint.step for checkpoint in suite.checkpoints()]
    last_step = max(filter(None, steps), default=1)
    return [
        1.0 if step is None else float(np.log2(step + 1) / np.log2(last_step + 1)) for step in steps
    ]


def _standardised(columns: Floats) -> Floats:
    present = np.isfinite(columns)
    count = np.maximum(present.sum(axis=0), 1)
    filled = np.where(present, columns, 0.0)
    centred = np.where(present, columns - filled.sum(axis=0) / count, 0.0)
    sd = np.sqrt((centred**2).sum(axis=0) / count)
    # a constant column has a tiny spread from rounding
    varies = sd > 1e-9 * np.abs(filled).max(axis=0, initial=0.0)
    return np.asarray(centred[:, varies] / sd[varies])
