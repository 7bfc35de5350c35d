"""Scores against what an arm takes, and the arms that no other beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

import numpy as np

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.sizes import ArmCost, ModelSize
from daskmetrics.core.errors import DataError
from daskmetrics.domain.names import Arm
from daskmetrics.domain.outcomes import Difference


@dataclass(frozen=True)
class TradeOff:
    """A fully scored arm, with what it takes.

    ``score`` is the weighted mean of its raw scores, ``stderr`` its standard error. ``gain`` is the
    paired difference from the next cheaper arm of the front; None for the others.
    """

    arm: Arm
    score: float
    stderr: float
    cost: ArmCost
    gain: Difference | None = None


@dataclass(frozen=True)
class TradeOffs:
    """Scores against costs.

    Attributes
    ----------
    arms : tuple of TradeOff
        Every arm that was scored on all tasks of the objective.
    front : tuple of TradeOff
        Those that no other arm beats in both score and cost, cheapest forward pass first: an arm is
        beaten by one with at least its score that needs no more bytes for a vector and no more time
        for a text. Where the run measured no times, it is one that needs no more bytes, layers,
        parameters and operations. Of equal ones, the first is here.
    sizes : mapping
        What is known of the size of every model.
    tasks : tuple of str
        The tasks that scores are means over.
    """

    arms: tuple[TradeOff, ...]
    front: tuple[TradeOff, ...]
    sizes: Mapping[str, ModelSize]
    tasks: tuple[str, ...]


def _front(arms: Sequence[TradeOff]) -> list[TradeOff]:
    """The arms that no other beats, cheapest first."""
    compared = ["bytes", "seconds"]
    if any(row.cost.seconds is None for row in arms):  # what determines the time
        compared = ["layers", "parameters", "flops", "bytes"]
    costs_of = attrgetter(*compared)
    points = np.array([(-row.score, *costs_of(row.cost)) for row in arms])
    # of those with equal scores and costs the first
    distinct, rows = np.unique(points, axis=0, return_index=True)
    front = []
    for row, point in zip(rows, distinct, strict=True):
        # another one takes at most as much of everything, and less of something (Pareto)
        is_as_good = (distinct <= point).all(axis=1)
        if is_as_good.sum() == 1:
            front.append(arms[row])
    return sorted(front, key=lambda row: (row.cost.flops, row.score))


def trade_offs_of(run: RecordedRun) -> TradeOffs:
    """The trade-offs of a run.

    `DataError` if no arm was scored on all tasks of the objective.
    """
    weights = run.weights
    means = run.means
    if not means:
        raise DataError(
            f"No candidate of the run in '{run.folder.path}' was scored on all {len(weights)} tasks"
            f" of the objective, so there is nothing to compare. {run.remedy}"
        )
    arms = [TradeOff(arm, *estimate, run.cost_of(arm)) for arm, estimate in means.items()]
    front = _front(arms)
    with_gains = front[:1]
    for cheaper, row in pairwise(front):
        gain = run.recorded.gain(row.arm, cheaper.arm, weights)
        with_gains.append(replace(row, gain=gain))
    used_sizes = {arm.model: run.sizes[arm.model] for arm in means}
    return TradeOffs(tuple(arms), tuple(with_gains), used_sizes, tuple(weights))
