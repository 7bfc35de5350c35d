from __future__ import annotations

from daskmetrics.core._events import RunFinished, UnitsRetried
from daskmetrics.core._files import RunFolder
from daskmetrics.execution import Journal, Record
from daskmetrics.planning.doctor._collect import history
from tests.events import started


def test_a_run_that_was_enlarged_and_interrupted_is_not_finished(tmp_path):
    folder = RunFolder(tmp_path)
    with Journal(folder.journal, folder.lock) as journal:
        for entry in (started("small"), RunFinished("small", 1.0)):
            journal.append(entry)
    assert history(folder).finished
    with Journal(folder.journal, folder.lock) as journal:
        journal.append(started("large"))
    assert not history(folder).finished


def test_a_run_with_failures_taken_back_is_not_finished_and_has_no_failed_record(tmp_path):
    folder = RunFolder(tmp_path)
    with Journal(folder.journal, folder.lock) as journal:
        for entry in (started(), Record("a", "a", "demo", "oom"), RunFinished("k", 1.0), UnitsRetried(["a"])):
            journal.append(entry)
    assert not history(folder).finished and history(folder).records == ()
