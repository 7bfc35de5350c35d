from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit.tables import ScoreRow, score_table
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
    assert np.isnan(table.seconds).all() and table.metrics is None


def test_fewer_tasks_keep_their_columns(known):
    some = known.of_tasks(["fair", "expensive"])
    assert some.tasks == ("expensive", "fair")
    np.testing.assert_array_equal(some.scores, known.scores[:, [1, 3]])
    np.testing.assert_array_equal(some.seconds, known.seconds[:, [1, 3]])
    assert some.metrics is known.metrics


def test_a_metric_missing_for_most_arms_is_left_out():
    rows = [ScoreRow(Arm("m", "main", layer), "t", 0.1) for layer in range(4)]
    metrics = {row.arm: {"often": 1.0} for row in rows[:2]} | {
        rows[3].arm: {"seldom": 2.0, "often": 3.0}
    }
    table = score_table(rows, metrics)
    assert table.metric_names == ("often",)
    np.testing.assert_array_equal(table.metrics[:, 0], [1.0, 1.0, np.nan, 3.0])


def with_holes(known, share=0.05):
    """The table without a random share of its cells."""
    dropped = np.random.default_rng(3).random(known.scores.shape) < share
    return replace(known, scores=np.where(dropped, np.nan, known.scores)), dropped


def test_the_complete_part_of_a_table_with_holes(known):
    holes, dropped = with_holes(known)
    whole = holes.complete()
    kept = ~dropped.any(axis=1)
    assert 0 < kept.sum() < len(known.arms)
    assert whole.arms == tuple(
        arm for arm, is_kept in zip(known.arms, kept, strict=True) if is_kept
    )
    assert np.isfinite(whole.scores).all() and whole.known == 4 * kept.sum()
    for name in ("scores", "seconds", "encode", "metrics"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(known, name)[kept])
    np.testing.assert_array_equal(holes.is_complete(["cheap"]), ~dropped[:, 0])
    assert whole.of_tasks(["cheap"]).arms == whole.arms


def test_features_of_the_complete_part_are_those_of_its_arms(known):
    whole = with_holes(known)[0].complete()
    rows = [known.arms.index(arm) for arm in whole.arms]
    np.testing.assert_array_equal(whole.features()[:, :3], known.features()[rows, :3])
    assert whole.features().shape[1] == 3
    metrics = whole.features(metrics=True)[:, -1]
    # over the arms that are left
    assert abs(metrics.mean()) < 1e-9 and metrics.std() == pytest.approx(1)


def test_a_model_without_complete_arms_is_left_out():
    rows = [ScoreRow(Arm(model, "main", 1), task, 0.1) for model in "ab" for task in "st"][:-1]
    whole = score_table(rows).complete()
    assert [suite.model for suite in whole.suites] == ["a"] and whole.features().shape == (1, 3)
    with pytest.raises(DataError, match="None of the 1 arms has a score on each task"):
        score_table([*rows[2:], ScoreRow(Arm("b", "main", 1), "t", np.nan)]).complete()


def test_the_kind_of_a_task_is_that_of_the_rows_that_say_it():
    rows = [
        ScoreRow(Arm("a", "main", 1), "t", 0.1, kind="pairs"),
        ScoreRow(Arm("b", "main", 1), "t", 0.1),
    ]
    assert score_table(rows).kinds == score_table(rows[::-1]).kinds == {"t": "pairs"}


def test_a_table_without_rows_is_an_error():
    with pytest.raises(DataError, match="no scores"):
        score_table([])
