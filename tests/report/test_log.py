from __future__ import annotations

import json

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.domain.events import Event, StoreRepaired, UnitsRetried, UsageMeasured, to_json
from daskmetrics.domain.record import Record
from daskmetrics.execution import Journal
from daskmetrics.execution.journal import owner_file, read
from daskmetrics.report import Run, log
from daskmetrics.report.status import problem_lines
from tests.events import attempt_failed
from tests.report.conftest import invoke


def call(*words: object) -> tuple[int, str]:
    done = invoke("runs", *words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def add(run: Run, *entries: Event) -> Run:
    with Journal(run.folder.journal, run.folder.lock) as journal:
        for entry in entries:
            journal.append(entry)
    return Run(run.folder.path)


def test_the_journal_is_printed_line_by_line(finished):
    path = finished.folder.path
    code, out = call("journal", path)
    lines = out.splitlines()
    assert code == 0 and len(lines) == len(finished.entries)
    assert lines[0].split()[:4] == ["2", "plan", "demo", "35"]
    (failed,) = (line for line in lines if "measure tiny@step0 error" in line)
    assert "ValueError: <script>" in failed and "\x1b" not in out
    records = [entry for entry in finished.entries if isinstance(entry, Record)]
    _, out = call("journal", path, "--type", "record", "--tail", 3, "--json")
    shown = [json.loads(line) for line in out.splitlines()]
    assert finished.entries[shown[-1].pop("line") - 2] == records[-1]
    assert shown[-1] == to_json(records[-1]) and len(shown) == 3
    assert call("journal", path, "--type", "repair")[0] == 0  # it has none
    assert "Did you mean 'record'?" in call("journal", path, "--type", "recrd")[1]


def test_every_type_of_entry_is_one_line_that_is_not_too_long():
    usage = UsageMeasured({"x" * 1000: {}})
    entries = [attempt_failed(), UnitsRetried(["k"]), StoreRepaired(["tiny@step1"]), usage]
    lines = log.journal_text(list(enumerate(entries))).splitlines()
    facts = ("tls://1.2.3.4:5", '["k"]', "tiny@step1", "usage")
    assert all(fact in line for fact, line in zip(facts, lines, strict=True))
    assert max(map(len, lines)) < 500


def test_the_log_of_a_unit_has_its_attempts_and_its_result(a_run):
    run = a_run(failing=("small@step8",), tasks=())
    key = next(record.key for record in run.failed)
    trace = 'Traceback (most recent call last):\n  File "x.py", line 3, in f\nZeroDivisionError: no'
    about = {"fault": "exception", "blamed": True, "reason": "it is 0", "trace": trace}
    logs = add(run, attempt_failed(key, "small@step8", **about)).folder.path / "logs"
    logs.mkdir()
    (logs / "worker-0.log").write_text("Start worker at tls://1.2.3.4:5\nthe last thing it said\n")
    (logs / "worker-1.log").write_text("another worker\n")
    for wanted in ("small@step8", key):
        _, out = call("logs", run.folder.path, wanted)
        for fact in ('"fault": "exception"', "it is 0", '          File "x.py", line 3, in f'):
            assert fact in out
        assert "measure small@step8 error" in out
        assert "the last thing it said" in out and "another worker" not in out


def test_a_damaged_configuration_hides_no_log(a_run):
    run = a_run(failing=("small@step8",), tasks=())
    run.folder.config.write_text("{", encoding="utf-8")
    code, out = call("logs", run.folder.path, "small@step8")
    assert code == 0 and "measure small@step8 error" in out


def test_a_unit_is_found_by_a_unique_beginning_of_its_name(finished):
    units = {"abc": "m@step1", "abd": "m@step10", "xyz": "m@step1"}
    assert list(log.find("m@step1", units)) == ["abc", "xyz"]
    assert list(log.find("abd", units)) == list(log.find("m@step10", units)) == ["abd"]
    with pytest.raises(ConfigError, match="matches 2 units: m@step1, m@step10"):
        log.find("m@", units)
    assert "Did you mean 'small@step4'" in call("logs", finished.folder.path, "smal@step4")[1]


def test_failed_units_get_another_chance_by_status(a_run):
    run = a_run(failing=("tiny@step0", "small@step8"), tasks=())
    path = run.folder.path
    assert len(run.failed) == 2 and run.finished
    assert call("retry", path, "--only", "oom") == (0, "No unit failed with the status oom.\n")
    code, out = call("retry", path, "--only", "error")
    assert code == 0 and "2 failed units are reset" in out
    after = Run(path)
    assert after.failed == () and not after.finished
    assert after.records == tuple(record for record in run.records if record.ok)


def test_status_groups_failures_by_cause_and_says_what_to_do(a_run):
    run = a_run(failing=("tiny@step0", "small@step8"), tasks=())
    key = next(record.key for record in run.records if record.ok)
    run = add(run, attempt_failed(key, "x"), attempt_failed(key, "x"))
    rows = problem_lines(run)
    missing = next(text for label, text in rows if label == "missing")
    assert missing.startswith("2 x measure, error: ValueError")
    rows = dict(rows)
    assert f"daskmetrics runs retry {run.folder.path}" in rows["try again"]
    assert f"daskmetrics runs logs {run.folder.path}" in rows["details"]
    assert "2 x death" in rows["recovered"]


def test_unlock_removes_the_lock_of_a_dead_driver_alone(finished):
    path, lease = finished.folder.path, owner_file(finished.folder.lock)
    with Journal(finished.folder.journal, finished.folder.lock):
        code, out = call("unlock", path)
        assert code == 2 and "is alive" in out
        text = lease.read_text()
    lease.write_text(json.dumps({**json.loads(text), "host": "login2"}))
    assert "login2" in Run(path).driver
    code, out = call("retry", path)
    assert code == 2 and "on login2 since" in out and "daskmetrics runs unlock" in out
    assert call("unlock", path)[0] == 0 and not lease.exists()
    assert call("unlock", path)[0] == 0  # no one holds it
    assert list(read(finished.folder.journal)) == finished.entries
