from __future__ import annotations

from dataclasses import replace

import pytest

from daskmetrics.answer import analysis
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import Difference
from daskmetrics.execution import Journal
from daskmetrics.report import Run
from tests.report.conftest import SUITES, scores_of


def test_the_best_arm_and_the_default_are_compared_on_their_common_tasks(finished):
    best, answer = finished.best(), finished.answer
    assert best.arm in {Arm(**top["arm"]) for top in finished.result.top}
    assert answer.default.arm == Arm("small", "step8", 3)
    assert answer.difference == Difference(
        pytest.approx(best.score - answer.default.score),
        pytest.approx(2**0.5 * 0.01 / 3**0.5),
        paired=False,
    )
    assert 0 < answer.cost.share < 1 and 0 <= answer.probability <= 1


def test_there_is_no_best_arm_before_the_end_of_the_search(a_run):
    with pytest.raises(DataError, match="run it again to resume"):
        a_run(decisions=5).best()


def test_a_run_without_tasks_has_no_best_arm(a_run):
    with pytest.raises(DataError, match="no tasks"):
        a_run(tasks=()).best()


def test_a_folder_without_a_run_and_a_run_that_never_started_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="No run in"):
        Run(tmp_path)
    with (
        Journal(tmp_path / "journal.jsonl", tmp_path / "lock"),
        pytest.raises(DataError, match="prepared by process"),
    ):
        Run(tmp_path)
    with pytest.raises(DataError, match="before it started"):
        Run(tmp_path)


def test_scores_of_another_protocol_do_not_count(a_run):
    before = a_run(suites=SUITES[:1])
    # every checkpoint is measured again, so no earlier score is comparable
    again = a_run(suites=SUITES[:1], budget=0.1, key="n" * 32)
    assert again.counts["score", "ok"] == len(again.picks) < before.counts["score", "ok"]
    assert again.counts["measure", "ok"] == 5


def test_scores_of_a_checkpoint_that_was_not_measured_again_stay_valid(a_run):
    before = a_run()
    with Journal(before.folder.journal, before.folder.lock) as journal:
        journal.append(replace(before.start, key="another budget"))
    after = Run(before.folder.path)
    assert after.result is None and not after.finished
    assert scores_of(after) == scores_of(before)
    assert analysis.metrics(after) == analysis.metrics(before)


def test_a_task_that_was_removed_is_left_out(a_run):
    before = a_run()
    with Journal(before.folder.journal, before.folder.lock) as journal:
        tasks = {"stdlib:order": before.start.tasks["stdlib:order"]}
        journal.append(replace(before.start, key="fewer tasks", tasks=tasks))
    scores = scores_of(Run(before.folder.path))
    assert {task for own in scores.values() for task in own} == {"stdlib:order"}


def test_the_leaderboard_begins_with_the_verdict_and_ends_with_arms_that_lack_tasks(finished):
    frame = finished.leaderboard().to_frame()
    complete = frame[frame["rank"].notna()]
    names = [
        str(Arm(*row)) for row in complete[["model", "checkpoint", "layer"]].itertuples(index=False)
    ]
    assert names[0] == str(finished.verdict.overall.arm)
    assert {name for name, tied in zip(names, complete["tied"], strict=True) if tied} == {
        str(arm) for arm in finished.verdict.overall.tied
    }
    assert len(frame) == len(finished.recorded) > len(complete)
    assert (
        complete.index.tolist() == list(range(len(complete)))
        and complete["mean"].is_monotonic_decreasing
    )


def test_a_running_search_has_a_leaderboard_of_what_is_scored(a_run):
    board = a_run(decisions=8).leaderboard()
    assert board.arms and board.reward == "mean"


def test_the_frame_has_a_row_for_every_scored_cell(finished):
    frame = finished.to_frame()
    assert list(frame) == [
        "model",
        "checkpoint",
        "layer",
        "task",
        "kind",
        "score",
        "stderr",
        "seconds",
    ]
    assert len(frame) == finished.counts["score", "ok"] and (frame["seconds"] > 0).all()
    row = frame.iloc[0]
    recorded = finished.recorded[Arm(row["model"], row["checkpoint"], row["layer"])][row["task"]]
    assert (row["score"], row["stderr"]) == (recorded.score, recorded.stderr)
    assert row["kind"] == finished.kinds[row["task"]]
