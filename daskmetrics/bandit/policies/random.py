"""Any open cell with equal probability: what a cleverer policy has to beat."""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit.policy import Choice, State


def ask(state: State) -> Choice | None:
    """Choose uniformly among the open cells, seeded by the search and the decision's number."""
    cells = np.argwhere(state.open)
    if not len(cells):
        return None
    arm, task = cells[state.random().integers(len(cells))]
    return Choice(int(arm), int(task))
