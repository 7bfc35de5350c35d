from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray

from daskmetrics.answer import analysis
from daskmetrics.answer.comparison import known_scores
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm
from daskmetrics.execution import Journal
from daskmetrics.report import Run, export, frame
from tests.report.conftest import SUITES, TASKS, Story, make_run, scores_of


@pytest.mark.parametrize(
    ("story", "message"),
    [({"decisions": 5}, "run it again to resume"), ({"tasks": ()}, "no tasks")],
)
def test_without_a_finished_search_there_is_no_best_arm(a_run, story, message):
    with pytest.raises(DataError, match=message):
        a_run(**story).best()


def test_a_folder_without_a_run_and_a_run_that_never_started_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="No run in"):
        Run(tmp_path)
    journal = Journal(tmp_path / "journal.jsonl", tmp_path / "lock")
    with journal, pytest.raises(DataError, match="prepared by process"):
        Run(tmp_path)
    with pytest.raises(DataError, match="before it started"):
        Run(tmp_path)


def test_scores_of_another_protocol_do_not_count(tmp_path):
    story = Story(suites=SUITES[:1], budget=0.3)
    before = make_run(tmp_path / "demo", story)
    # every checkpoint is measured again, so no earlier score is comparable
    again = make_run(tmp_path / "demo", replace(story, budget=0.1, key="n" * 32))
    assert again.counts["score", "ok"] == len(again.picks) < before.counts["score", "ok"]
    assert again.counts["measure", "ok"] == 5


def test_scores_stay_valid_until_a_checkpoint_is_measured_again_or_a_task_is_removed(a_run):
    before = a_run()
    tasks = {TASKS[0]: before.start.tasks[TASKS[0]]}
    after = []
    for start in (before.start, replace(before.start, key="fewer", tasks=tasks)):
        with Journal(before.folder.journal, before.folder.lock) as journal:
            journal.append(replace(start, key=f"again {start.key}"))
        after.append(Run(before.folder.path))
    again, fewer = after
    assert again.result is None and not again.finished
    assert scores_of(again) == scores_of(before)
    assert analysis.metrics(again) == analysis.metrics(before)
    assert set().union(*scores_of(fewer).values()) == {TASKS[0]}


def test_the_frame_has_a_row_for_every_scored_cell(finished):
    rows = finished.to_frame()
    assert len(rows) == finished.counts["score", "ok"] and (rows["seconds"] > 0).all()
    row = rows.iloc[0]
    recorded = finished.recorded[Arm(row["model"], row["checkpoint"], row["layer"])][row["task"]]
    assert (row["score"], row["stderr"]) == (recorded.score, recorded.stderr)
    assert row["kind"] == finished.kinds[row["task"]]


def test_exported_numbers_are_those_of_the_journal(finished, tmp_path):
    rows = frame(finished)
    scored = rows[(rows.what == "score") & (rows.status == "ok")]
    scores = scored.set_index(["model", "revision", "layer", "name"]).value.to_dict()
    expected = {}
    for cell, score in known_scores(finished).items():
        expected[cell.arm.model, cell.arm.revision, cell.arm.layer, cell.task] = score.score
    assert scores == pytest.approx(expected)
    assert set(rows.status) >= {"ok", "nan"}
    assert set(rows[rows.name == "curvature"].units) == {"radians"}
    for kind in ("csv", "parquet", "netcdf"):
        assert export(finished, kind, tmp_path / "deep" / kind).stat().st_size > 1000
    with xarray.open_dataset(tmp_path / "deep" / "netcdf") as read:
        stored = finished.metrics["curvature"].sel(model=read.model)
        np.testing.assert_array_equal(read["metric_curvature"], stored)
        assert read["metric_curvature"].attrs["units"] == "radians"
