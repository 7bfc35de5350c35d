from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.bandit.replay import ScoreRow, score_table
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm


def test_models_differ_in_depth_and_revisions():
    rows = [
        ScoreRow(Arm("a", "main", 2), "t", 0.1),
        ScoreRow(Arm("b", "step4", 0), "t", 0.2),
        ScoreRow(Arm("b", "step4", 6), "t", 0.3),
    ]
    table = score_table(rows)
    assert [(s.model, s.revisions, s.layers, s.depth) for s in table.suites] == [
        ("a", ("main",), (2,), 2),
        ("b", ("step4",), (0, 6), 6),
    ]
    assert np.isnan(table.seconds).all()


def test_fewer_tasks_keep_their_columns(known):
    some = known.of_tasks(["fair", "expensive"])
    assert some.tasks == ("expensive", "fair")
    np.testing.assert_array_equal(some.scores, known.scores[:, [1, 3]])
    np.testing.assert_array_equal(some.seconds, known.seconds[:, [1, 3]])


def test_the_kind_of_a_task_is_that_of_the_rows_that_say_it():
    rows = [
        ScoreRow(Arm("a", "main", 1), "t", 0.1, kind="pairs"),
        ScoreRow(Arm("b", "main", 1), "t", 0.1),
    ]
    assert score_table(rows).kinds == score_table(rows[::-1]).kinds == {"t": "pairs"}


def test_a_table_without_rows_is_an_error():
    with pytest.raises(DataError, match="no scores"):
        score_table([])
