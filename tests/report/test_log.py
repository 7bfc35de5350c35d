from __future__ import annotations

import json

import pytest

from daskmetrics.answer import analysis
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.events import (
    JOURNAL,
    Event,
    Record,
    StoreRepaired,
    UnitsRetried,
    UsageMeasured,
    kind_of,
    to_json,
)
from daskmetrics.execution import Journal
from daskmetrics.execution.journal import owner_file, read
from daskmetrics.report import Run, log, status_text
from tests.events import attempt_failed, joined
from tests.report.conftest import invoke


def call(*words: object) -> tuple[int, str]:
    done = invoke(*words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def add(run: Run, *entries: Event) -> Run:
    with Journal(run.folder.journal, run.folder.lock) as journal:
        for entry in entries:
            journal.append(entry)
    return Run(run.folder.path)


def test_the_journal_is_printed_line_by_line(finished):
    code, out = call("runs", "journal", finished.folder.path)
    lines = out.splitlines()
    assert code == 0 and len(lines) == len(finished.entries)
    assert lines[0].split()[:3] == ["2", "start", "demo"]
    assert lines[-1].split()[:2] == [str(len(lines) + 1), "finished"]
    assert any(
        "measure tiny@step0 error" in line and "ValueError: <script>" in line for line in lines
    )
    assert "\x1b" not in out


def test_the_journal_is_cut_to_types_and_to_its_end(finished):
    records = [entry for entry in finished.entries if isinstance(entry, Record)]
    code, out = call(
        "runs", "journal", finished.folder.path, "--type", "record", "--tail", 3, "--json"
    )
    assert code == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert [{k: v for k, v in entry.items() if k != "line"} for entry in found] == [
        to_json(record) for record in records[-3:]
    ]
    assert finished.entries[found[-1]["line"] - 2] == records[-1]
    code, out = call("runs", "journal", finished.folder.path, "--type", "recrd")
    assert code == 2 and "Did you mean 'record'?" in out


@pytest.mark.parametrize("kind", JOURNAL)
def test_the_journal_takes_every_type_that_exists_also_where_it_has_no_such_entry(finished, kind):
    code, out = call("runs", "journal", finished.folder.path, "--type", kind)
    assert code == 0
    has = any(kind_of(entry) == kind for entry in finished.entries)
    assert (f"no entry of type {kind}" not in out) == has


def test_every_type_of_entry_is_one_line_that_is_not_too_long(a_run):
    run = a_run()
    more = (
        attempt_failed(),
        UnitsRetried(["k"]),
        StoreRepaired(["tiny@step1 metrics"]),
        joined("0"),
        UsageMeasured({"x" * 1000: {}}),
    )
    out = log.journal_text(log.journal_lines(add(run, *more).folder))
    for text in ("tls://1.2.3.4:5", "the worker died", '["k"]', "tiny@step1 metrics"):
        assert text in out
    assert max(map(len, out.splitlines())) < 500


def test_the_log_of_a_unit_has_its_attempts_with_tracebacks_and_its_result(a_run):
    run = a_run(failing=("small@step8",))
    key = next(record.key for record in run.failed)
    trace = 'Traceback (most recent call last):\n  File "x.py", line 3, in f\nZeroDivisionError: no'
    run = add(
        run,
        attempt_failed(
            key,
            "small@step8",
            fault="exception",
            blamed=True,
            reason="ZeroDivisionError: no",
            trace=trace,
        ),
    )
    (run.folder.path / "logs").mkdir()
    (run.folder.path / "logs" / "worker-0.log").write_text(
        "Start worker at tls://1.2.3.4:5\nthe last thing it said\n"
    )
    (run.folder.path / "logs" / "worker-1.log").write_text("another worker\n")
    for wanted in ("small@step8", key):
        code, out = call("runs", "logs", run.folder.path, wanted)
        assert code == 0
        assert '"fault": "exception"' in out and "} ZeroDivisionError: no" in out
        assert '          File "x.py", line 3, in f' in out
        assert "measure small@step8 error" in out
        assert "the last thing it said" in out and "another worker" not in out


def test_a_unit_is_found_by_a_unique_beginning_of_its_name(finished):
    units = {"abc": "m@step1", "abd": "m@step10", "xyz": "m@step1"}
    assert list(log.find("m@step1", units)) == ["abc", "xyz"]
    assert list(log.find("abd", units)) == list(log.find("m@step10", units)) == ["abd"]
    with pytest.raises(ConfigError, match="matches 2 units: m@step1, m@step10"):
        log.find("m@", units)
    with pytest.raises(ConfigError, match="Did you mean 'm@step1"):
        log.find("m@stp1", units)
    code, out = call("runs", "logs", finished.folder.path, "smal@step4")
    assert code == 2 and "Did you mean 'small@step4'" in out


def test_failed_units_get_another_chance_by_status(a_run):
    run = a_run(failing=("tiny@step0", "small@step8"))
    before = len(run.failed)
    assert before >= 2 and run.finished
    code, out = call("runs", "retry", run.folder.path, "--only", "oom")
    assert (code, out) == (0, "No unit failed with the status oom.\n")
    code, out = call("runs", "retry", run.folder.path, "--only", "eror")
    assert (
        code == 2 and "Did you mean 'error'? Valid: error, nan, oom, quarantined, timeout." in out
    )
    code, out = call("runs", "retry", run.folder.path, "--only", "error")
    assert code == 0 and f"{before} failed units are reset" in out
    after = Run(run.folder.path)
    assert after.failed == () and not after.finished
    assert {record.key for record in after.records} == {
        record.key for record in run.records if record.ok
    }
    assert call("runs", "retry", run.folder.path) == (0, "No unit failed.\n")


def test_status_groups_failures_by_cause_and_says_what_to_do(a_run):
    run = a_run(failing=("tiny@step0", "small@step8"))
    key = next(record.key for record in run.records if record.ok)
    run = add(run, attempt_failed(key, "x"), attempt_failed(key, "x"))
    text = status_text(run)
    assert "2 x measure, error: ValueError" in text
    assert (
        f"daskmetrics runs retry {run.folder.path}" in " ".join(text.split())
        and "daskmetrics runs logs" in text
    )
    assert "2 x death in attempts whose units succeeded later" in text
    assert analysis.survived(run) == {"death": 2}


def test_unlock_removes_a_dead_machines_lock_and_never_a_living_drivers(finished):
    path, lease = finished.folder.path, owner_file(finished.folder.lock)
    assert call("runs", "unlock", path) == (0, f"No driver holds the run in '{path}'.\n")
    with Journal(finished.folder.journal, finished.folder.lock):
        code, out = call("runs", "unlock", path)
        assert code == 2 and "is alive" in out
        text = lease.read_text()
    lease.write_text(json.dumps({**json.loads(text), "host": "login2"}))
    assert "login2" in Run(path).driver
    code, out = call("runs", "retry", path)
    assert code == 2 and "on login2 since" in out and "daskmetrics runs unlock" in out
    code, out = call("runs", "unlock", path)
    assert code == 0 and "Removed the lock of process" in out and not lease.exists()
    assert list(read(finished.folder.journal)) == finished.entries
