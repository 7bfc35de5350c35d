"""What a report and a text for a terminal import."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "sklearn"}
ARRAYS = {"xarray", "zarr", "matplotlib", "distributed", "pandas"}
TEXTS = "report.status_text(run), report.best_text(run, in_short=True), report.best_text(run)"
PAGE = "from daskmetrics.report.page import page; page(run, []); run.metrics; run.scores"


@pytest.mark.parametrize(("code", "unwanted"), [(TEXTS, HEAVY | ARRAYS), (PAGE, HEAVY)])
def test_a_view_imports_no_more_than_it_needs(finished, code, unwanted):
    script = f"""
import sys
import daskmetrics.report as report
run = report.Run({str(finished.folder.path)!r})
{code}
print(*{{name.partition('.')[0] for name in sys.modules}})
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & unwanted
