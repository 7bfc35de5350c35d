"""Every cell in the order of the grid: the exhaustive truth that a search is compared with."""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit.policy import Choice, State


def ask(state: State) -> Choice | None:
    """Choose the first open cell: arm by arm, task by task."""
    first = int(np.argmax(state.open))
    arm, task = divmod(first, len(state.problem.tasks))
    return Choice(arm, task) if state.open[arm, task] else None
