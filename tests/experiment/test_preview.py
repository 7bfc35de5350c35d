from __future__ import annotations

from daskmetrics.core._events import RunFinished, UnitsRetried
from daskmetrics.core._files import RunFolder
from daskmetrics.execution import Journal, Record
from daskmetrics.experiment import _measure as measure
from daskmetrics.experiment._estimate import preview
from tests.events import started


def test_a_failure_that_was_taken_back_is_still_to_do(prepared, tmp_path):
    experiment, folder = prepared(), RunFolder(tmp_path / "run").create()
    *rest, unit = measure.units(experiment, folder, ())

    def to_do() -> str:
        return dict(preview(experiment, folder).rows)["measuring"]

    assert to_do() == f"{len(rest) + 1} units, {len(rest) + 1} to do"
    with Journal(folder.journal, folder.lock) as journal:
        for entry in (started(), Record(unit.key, unit.name, unit.kind, "oom"), RunFinished("k", 1.0)):
            journal.append(entry)
    assert to_do().endswith(f", {len(rest)} to do")
    with Journal(folder.journal, folder.lock) as journal:
        journal.append(UnitsRetried([unit.key]))
    assert to_do().endswith(f", {len(rest) + 1} to do")
