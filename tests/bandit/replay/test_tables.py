from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.bandit.replay import ScoreRow, score_table
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Cell, grid


def test_rows_may_come_in_any_order(known):
    assert known.arms == grid(known.suites) and known.scores.shape == (30, 4)
    assert known.tasks == ("cheap", "dear", "dearest", "fair")
    cells = known.cells()
    assert len(cells) == known.known == 120
    cell = Cell(Arm("m", "step64", 3), "dear")
    assert cells[cell] == known.scores[known.arms.index(cell.arm), 1]


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
    assert np.isnan(table.seconds).all() and table.metrics is None


def test_an_empty_cell_of_the_grid_is_a_missing_score():
    rows = [ScoreRow(Arm("m", "step1", 0), "t", 0.1), ScoreRow(Arm("m", "step2", 1), "t", 0.2)]
    table = score_table(rows)
    assert table.scores.shape == (4, 1) and table.known == 2
    assert len(table.cells()) == 2


def test_fewer_tasks_keep_their_columns(known):
    some = known.of_tasks(["fair", "dear"])
    assert some.tasks == ("dear", "fair")
    np.testing.assert_array_equal(some.scores, known.scores[:, [1, 3]])
    np.testing.assert_array_equal(some.seconds, known.seconds[:, [1, 3]])
    assert some.metrics is known.metrics


def test_a_metric_missing_for_most_arms_is_left_out():
    rows = [ScoreRow(Arm("m", "main", layer), "t", 0.1) for layer in range(4)]
    metrics = {row.arm: {"often": 1.0} for row in rows[:2]} | {rows[3].arm: {"seldom": 2.0, "often": 3.0}}
    table = score_table(rows, metrics)
    assert table.metric_names == ("often",)
    np.testing.assert_array_equal(table.metrics[:, 0], [1.0, 1.0, np.nan, 3.0])


def test_a_table_without_rows_is_an_error():
    with pytest.raises(DataError, match="no scores"):
        score_table([])
