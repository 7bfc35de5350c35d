"""Positions and labels of training steps along an axis, and the colours of figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from daskmetrics.core.names import step_of

AxisScale = Literal["log", "even"]
NARROWEST = 0.25  #: narrowest column of an automatic log axis, as a share of an even column


def step_label(revision: str) -> str:
    """A short label for a revision.

    >>> [step_label(name) for name in ("step512", "step143000", "step1500", "main")]
    ['512', '143k', '1500', 'main']
    """
    step = step_of(revision)
    if step is None:
        if len(revision) <= 8:
            return revision
        return revision[:7] + "…"
    if step and step % 1000 == 0:
        return f"{step // 1000}k"
    return str(step)


def spread(revisions: Sequence[str], most: int) -> tuple[str, ...]:
    """At most so many revisions, evenly chosen: the first and the last are among them.

    >>> spread([f"step{i}" for i in range(15)], 8)
    ('step0', 'step2', 'step4', 'step6', 'step8', 'step10', 'step12', 'step14')
    """
    last_index = len(revisions) - 1
    if last_index < most:
        return tuple(revisions)
    return tuple(revisions[round(i * last_index / (most - 1))] for i in range(most))


def positions(revisions: Sequence[str], scale: AxisScale) -> list[float]:
    """Position of each revision: the binary logarithm of its step, or its index.

    Step 0 and revisions without a step have no logarithm; they are one doubling apart from the
    others.

    >>> positions(["step0", "step1", "step2", "step8", "main"], "log")
    [-1.0, 0.0, 1.0, 3.0, 4.0]
    """
    if scale == "even":
        return [float(i) for i in range(len(revisions))]
    steps = list(map(step_of, revisions))
    logs = [math.log2(step) for step in steps if step]
    before = min(logs, default=0.0) - 1
    after = max(logs, default=0.0)
    result = []
    for step in steps:
        if step:
            result.append(math.log2(step))
        elif step == 0:
            result.append(before)
        else:
            after += 1
            result.append(after)
    return result


def edges(revisions: Sequence[str], scale: AxisScale) -> list[float]:
    """Borders of the columns of revisions, one more than columns: halfway between neighbours.

    >>> edges(["step1", "step2", "step8"], "log")
    [-0.5, 0.5, 2.0, 4.0]
    """
    at = positions(revisions, scale)
    if len(at) == 1:
        return [at[0] - 0.5, at[0] + 0.5]
    middle = [(a + b) / 2 for a, b in pairwise(at)]
    return [2 * at[0] - middle[0], *middle, 2 * at[-1] - middle[-1]]


def fitting(revisions: Sequence[str]) -> AxisScale:
    """The logarithmic scale if every column is wide enough on it, otherwise the even scale.

    >>> fitting([f"step{2**i}" for i in range(10)]), fitting([f"step{1000 * i}" for i in range(1, 144)])
    ('log', 'even')
    """
    borders = edges(revisions, "log")
    narrowest = min(b - a for a, b in pairwise(borders))
    is_wide = narrowest >= NARROWEST * (borders[-1] - borders[0]) / len(revisions)
    if is_wide:
        return "log"
    return "even"


def ticks(revisions: Sequence[str], scale: AxisScale, most: int) -> dict[float, str]:
    """Labels by position; neighbours are at least as far apart as on an axis with ``most`` even
    labels.
    """
    borders = edges(revisions, scale)
    distance = (borders[-1] - borders[0]) / most * (1 - 1e-9)
    labels: dict[float, str] = {}
    labelled = -math.inf
    for at, name in zip(positions(revisions, scale), revisions, strict=True):
        if at - labelled >= distance:
            labels[at] = step_label(name)
            labelled = at
    return labels
