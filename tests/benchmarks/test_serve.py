from __future__ import annotations

from benchmarks.serve import measure
from tests.report.conftest import SUITES, TASKS, Story, make_run


def test_every_copy_of_a_run_is_listed(tmp_path):
    run = make_run(tmp_path / "run", Story(suites=SUITES[:1], tasks=TASKS[:1]))
    assert set(measure(run.folder.path, runs=3)) == {"first", "again", "one changed"}
