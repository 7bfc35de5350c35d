from __future__ import annotations

import numpy as np

from daskmetrics.bandit import Outcome
from daskmetrics.bandit._observations import Answers, Book

CELLS = [(2, 1), (0, 0), (2, 0), (1, 1)]
OUTCOMES = [Outcome(0.5, 0.1, 3.0), Outcome(None, seconds=1.0), Outcome(0.4), Outcome(0.3, 0.2)]


def equal(left: Answers, right: Answers) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name), equal_nan=True) for name in vars(left))


def test_scores_leave_out_failures_and_keep_the_order():
    scores = Answers.of(zip(CELLS, OUTCOMES, strict=True)).scores
    assert scores.arm.tolist() == [2, 2, 1]
    assert scores.score.tolist() == [0.5, 0.4, 0.3]
    assert scores.by_cell().arm.tolist() == [1, 2, 2]


def test_a_book_that_grew_or_looks_back_or_begins_anew_tells_what_one_made_at_once_does():
    book = Book()
    other = [Outcome(0.9), *OUTCOMES[1:]]
    for cells, outcomes in (
        (CELLS[:2], OUTCOMES[:1]),
        (CELLS, OUTCOMES[:3]),
        (CELLS, OUTCOMES),
        (CELLS, OUTCOMES[:2]),  # looking back
        (CELLS, OUTCOMES),
        (CELLS, other),
        (CELLS[::-1], other),
        ([], []),
        (CELLS, OUTCOMES),
    ):
        assert equal(book.answers(cells, outcomes), Answers.of(zip(cells, outcomes, strict=False)))
