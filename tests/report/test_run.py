from __future__ import annotations

from dataclasses import replace

import pytest

from daskmetrics.answer import analysis
from daskmetrics.answer.status import status_of
from daskmetrics.bandit import Pick
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.events import RunStarted, UnitAsked, is_finished
from daskmetrics.domain.names import Arm, Cell, Suite
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Measured, Scored
from daskmetrics.execution import Journal
from daskmetrics.report import Run, export, frame
from tests.report.conftest import (
    SMALL,
    SUITES,
    TASKS,
    Story,
    make_run,
    plan_of,
    scores_of,
)


@pytest.mark.parametrize(
    ("story", "message"),
    [({"decisions": 5}, "run it again to resume"), ({"tasks": ()}, "no tasks")],
)
def test_without_a_finished_search_there_is_no_best_arm(a_run, story, message):
    with pytest.raises(DataError, match=message):
        a_run(**story).best()


def test_a_folder_without_a_started_run_is_an_error(tmp_path):
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
    again = make_run(tmp_path / "demo", replace(story, budget=0.1, weights="others"))
    assert again.counts["score", "ok"] == len(again.picks) < before.counts["score", "ok"]
    assert again.counts["measure", "ok"] == 5


def test_scores_stay_valid_while_checkpoint_and_task_stay(a_run):
    before = a_run()
    fewer_tasks = before.plan.tasks[:1]
    after = []
    for plan in (before.plan, replace(before.plan, tasks=fewer_tasks)):
        with Journal(before.folder.journal, before.folder.lock) as journal:
            journal.append(replace(plan, search=f"again {plan.search}"))
        after.append(Run(before.folder.path))
    again, fewer = after
    assert again.result is None and not again.finished
    assert scores_of(again) == scores_of(before)
    assert analysis.metrics(again.records) == analysis.metrics(before.records)
    assert set().union(*scores_of(fewer).values()) == {TASKS[0]}


def test_an_answer_is_about_the_latest_configuration(tmp_path):
    whole = replace(SMALL, budget=1.0)
    before = make_run(tmp_path / "demo", whole)
    suite = replace(SMALL.suites[0], revisions=("step0", "step4"))
    fewer = replace(whole, suites=(suite,), key="n" * 32)
    after = make_run(tmp_path / "fewer", fewer)
    with Journal(before.folder.journal, before.folder.lock) as journal:
        for entry in after.entries:
            journal.append(entry.after([before.plan]) if isinstance(entry, Plan) else entry)
    run = Run(before.folder.path)
    assert before.best().arm.revision == "step8"
    answer = run.answer
    assert answer.best.arm == answer.verdict.overall.arm == run.leaderboard().arms[0].arm
    assert answer.best.score == pytest.approx(answer.verdict.overall.score)
    assert answer.scored == answer.planned == status_of(run).cells["scored"] == 12
    assert answer.verdict.overall.tested == answer.candidates == 6
    assert run.counts["measure", "ok"] == len(run.plan.checkpoints) == 2
    assert "step8" in {arm.revision for arm in run.recorded}  # figures show it


def test_a_run_that_goes_back_to_a_configuration_has_its_answer(tmp_path):
    whole = make_run(tmp_path / "demo", replace(SMALL, budget=1.0))
    less = make_run(tmp_path / "less", replace(SMALL, budget=0.5, key="n" * 32))
    with Journal(whole.folder.journal, whole.folder.lock) as journal:
        for entry in less.entries:  # it measures nothing again
            if not (isinstance(entry, Record) and entry.kind == "measure"):
                journal.append(entry)
        smaller = Run(whole.folder.path)
        journal.append(whole.plan)
    again = Run(whole.folder.path)
    for run, expected in ((smaller, less), (again, whole)):
        overall, known = run.answer.verdict.overall, expected.answer.verdict.overall
        assert (overall.arm, overall.score) == (known.arm, known.score)
        assert (overall.tied, overall.worse, overall.open) == (known.tied, known.worse, known.open)
        assert (run.answer.scored, run.picks) == (expected.answer.scored, expected.picks)
    assert less.answer.scored < whole.answer.scored
    assert not is_finished(smaller.entries, whole.plan.key) and again.finished


def test_records_are_those_of_the_layers_that_are_asked_for_now(tmp_path):
    folder = RunFolder(tmp_path / "demo").create()
    task = TASKS[0]
    with Journal(folder.journal, folder.lock) as journal:
        for number, layers in enumerate([(0, 1), (1,), (0, 1)]):
            suite = Suite("tiny", ("step0",), layers, 2)
            plan = plan_of(replace(SMALL, suites=(suite,), tasks=(task,)))
            journal.append(plan, RunStarted(float(number), {}))
            if number < 2:
                ones = [[1.0]] * len(layers)
                value = Measured(layers, ("curvature",), ones, ones, [[1]] * len(layers))
                (key,) = plan.measure_keys.values()
                journal.append(Record(key, "tiny@step0", "measure", "ok", value=value))
            for layer in layers:
                cell = Cell(Arm("tiny", "step0", layer), task)
                key = plan.score_key(cell.arm, plan.tasks[0])
                pick = Pick(layer, cell, "search", 1.0, {"because": "rival"}).as_dict()
                journal.append(UnitAsked(key, str(cell), {"search": plan.key, "pick": pick}))
                if number == 0:
                    score = Scored(0.5, 0.1)
                    journal.append(Record(key, str(cell), "score", "ok", value=score))
            run = Run(folder.path)
            assert [arm.layer for arm in run.recorded] == list(layers)
            assert analysis.suites(run.plan, run.records)[0].layers == layers


def test_exported_numbers_have_a_status_and_units(finished, tmp_path):
    rows = frame(finished)
    assert set(rows.status) >= {"ok", "nan"}
    assert set(rows[rows.name == "curvature"].units) == {"radians"}
    for kind in ("csv", "parquet"):
        assert export(finished, kind, tmp_path / "deep" / kind).stat().st_size > 1000
