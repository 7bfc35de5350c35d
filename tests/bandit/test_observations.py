from __future__ import annotations

import numpy as np

from daskmetrics.bandit import Outcome
from daskmetrics.bandit._problem import OutcomeArrays, OutcomeHistory

CELLS = [(2, 1), (0, 0), (2, 0), (1, 1)]
OUTCOMES = [Outcome(0.5, 0.1, 3.0), Outcome(None, seconds=1.0), Outcome(0.4), Outcome(0.3, 0.2)]


def equal(left: OutcomeArrays, right: OutcomeArrays) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name), equal_nan=True) for name in vars(left))


def test_scores_leave_out_failures_and_keep_the_order():
    scores = OutcomeArrays.of(zip(CELLS, OUTCOMES, strict=True)).scores
    assert scores.arm.tolist() == [2, 2, 1]
    assert scores.score.tolist() == [0.5, 0.4, 0.3]
    assert scores.by_cell().arm.tolist() == [1, 2, 2]


def test_a_history_that_grew_shrank_or_restarted_equals_one_read_at_once():
    history = OutcomeHistory()
    other = [Outcome(0.9), *OUTCOMES[1:]]
    for cells, outcomes in (
        (CELLS[:2], OUTCOMES[:1]),
        (CELLS, OUTCOMES[:3]),
        (CELLS, OUTCOMES),
        (CELLS, OUTCOMES[:2]),  # fewer than before
        (CELLS, OUTCOMES),
        (CELLS, other),
        (CELLS[::-1], other),
        ([], []),
        (CELLS, OUTCOMES),
    ):
        assert equal(history.read(cells, outcomes), OutcomeArrays.of(zip(cells, outcomes, strict=False)))
