from __future__ import annotations

import shutil
from dataclasses import asdict, replace

import pytest

from daskmetrics.answer import analysis
from daskmetrics.answer.status import status_of
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.events import Record, StorePlan, UnitAsked, is_finished
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm, Cell, Checkpoint, Suite
from daskmetrics.core.results import Measured, Scored
from daskmetrics.execution import Journal
from daskmetrics.report import Run, export, frame
from daskmetrics.store import key_of
from tests.report.conftest import (
    SMALL,
    SUITES,
    TASKS,
    Story,
    make_run,
    scores_of,
    started,
    template_of,
)


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
    with pytest.raises(DataError, match="ended before its first checkpoint"):
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


def test_an_answer_is_about_the_candidates_of_the_latest_configuration(tmp_path):
    whole = replace(SMALL, budget=1.0)
    before = make_run(tmp_path / "demo", whole)
    suite = replace(SMALL.suites[0], revisions=("step0", "step4"))
    fewer = replace(whole, suites=(suite,), key="n" * 32)
    after = make_run(tmp_path / "fewer", fewer)
    with Journal(before.folder.journal, before.folder.lock) as journal:
        for entry in (StorePlan(template_of(fewer), 1, 0, {}, {}), *after.entries):
            journal.append(entry)
    run = Run(before.folder.path)
    assert before.best().arm.revision == "step8"
    answer = run.answer
    assert answer.best.arm == answer.verdict.overall.arm == run.leaderboard().arms[0].arm
    assert answer.best.score == pytest.approx(answer.verdict.overall.score)
    assert answer.scored == answer.planned == status_of(run).cells["scored"] == 12
    assert answer.verdict.overall.tested == answer.candidates == 6
    assert run.counts["measure", "ok"] == run.start.checkpoints == 2
    assert "step8" in {arm.revision for arm in run.recorded}  # figures show it


def test_a_run_that_goes_back_to_a_configuration_has_its_answer(tmp_path):
    whole = make_run(tmp_path / "demo", replace(SMALL, budget=1.0))
    less = make_run(tmp_path / "less", replace(SMALL, budget=0.5, key="n" * 32))
    with Journal(whole.folder.journal, whole.folder.lock) as journal:
        for entry in less.entries:  # it measures nothing again
            if not (isinstance(entry, Record) and entry.kind == "measure"):
                journal.append(entry)
        smaller = Run(whole.folder.path)
        journal.append(whole.start)
    again = Run(whole.folder.path)
    for run, expected in ((smaller, less), (again, whole)):
        overall, known = run.answer.verdict.overall, expected.answer.verdict.overall
        assert (overall.arm, overall.score) == (known.arm, known.score)
        assert (overall.tied, overall.worse, overall.open) == (known.tied, known.worse, known.open)
        assert (run.answer.scored, run.picks) == (expected.answer.scored, expected.picks)
    assert less.answer.scored < whole.answer.scored
    assert not is_finished(smaller.entries, whole.start.key) and again.finished


def test_records_are_those_of_the_layers_that_are_asked_for_now(tmp_path):
    folder = RunFolder(tmp_path / "demo").create()
    shutil.copy(make_run(tmp_path / "other", SMALL).folder.config, folder.config)
    checkpoint = Checkpoint("tiny", "step0")
    task = TASKS[0]

    def planned(layers: tuple[int, ...], key: str) -> StorePlan:
        suite = Suite("tiny", ("step0",), layers, 2)
        template = template_of(replace(SMALL, suites=(suite,), tasks=(task,)))
        return StorePlan(template, 1, 0, {str(checkpoint): key}, {str(checkpoint): ("encode",)})

    def record(key: str, name: object, kind: str, value: object) -> None:
        journal.append(Record(key, str(name), kind, "ok", value=value))

    with Journal(folder.journal, folder.lock) as journal:
        for number, layers in enumerate([(0, 1), (1,), (0, 1)]):
            plan = planned(layers, f"measured {layers}")
            tasks = {task: {"kind": "classification", "main_score": "accuracy"}}
            journal.append(started(f"start {number}", name="demo", tasks=tasks))
            journal.append(plan)
            if number < 2:
                ones = [[1.0]] * len(layers)
                value = Measured(layers, ("curvature",), ones, ones, [[1]] * len(layers))
                record(f"measured {layers}", checkpoint, "measure", value)
            for layer in layers:
                cell = Cell(Arm("tiny", "step0", layer), task)
                key = key_of(plan, cell)
                pick = {"index": layer, "cell": asdict(cell), "stage": "search", "cost": 1.0}
                journal.append(
                    UnitAsked(key, str(cell), {"search": plan.template.key, "pick": pick})
                )
                if number == 0:
                    record(key, cell, "score", Scored(0.5, 0.1))
            run = Run(folder.path)
            assert [arm.layer for arm in run.recorded] == list(layers)
            assert analysis.suites(run)[0].layers == layers


def test_exported_numbers_have_a_status_and_units(finished, tmp_path):
    rows = frame(finished)
    assert set(rows.status) >= {"ok", "nan"}
    assert set(rows[rows.name == "curvature"].units) == {"radians"}
    for kind in ("csv", "parquet"):
        assert export(finished, kind, tmp_path / "deep" / kind).stat().st_size > 1000
