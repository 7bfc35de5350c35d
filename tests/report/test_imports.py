"""What a report and a text for a terminal import."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from daskmetrics.execution.journal import mark_of

HEAVY = {"torch", "transformers", "sklearn"}
ARRAYS = {"xarray", "zarr", "matplotlib", "distributed", "pandas"}
TEXTS = "from daskmetrics.report.terminal import *; status_text(run); best_text(run, in_short=True); best_text(run)"
STATUS = "from pathlib import Path; from daskmetrics.cli import _status as s; list(s.status(Path('{}')).shown)"
PAGE = "from daskmetrics.report.page import page; page(run, []); run.metrics; run.scores"


@pytest.mark.parametrize(("code", "unwanted"), [(TEXTS, HEAVY | ARRAYS), (PAGE, HEAVY)])
def test_a_view_imports_no_more_than_it_needs(finished, code, unwanted):
    load = f"from daskmetrics import report; run = report.Run({str(finished.folder.path)!r})"
    assert not imported_by(f"{load}; {code}") & unwanted


def test_a_status_imports_no_heavy_library(finished, tmp_path):
    words = f"-m daskmetrics map operator:neg --iterations 2 --serial --folder {tmp_path / 'map'}"
    subprocess.run([sys.executable, *words.split()], cwd=tmp_path, check=True)
    assert not imported_by(STATUS.format(tmp_path / "map")) & (HEAVY | ARRAYS | {"numpy"})
    run = shutil.copytree(finished.folder.path, tmp_path / "run")
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))  # interrupted
    mark_of(journal).unlink(missing_ok=True)
    assert not imported_by(STATUS.format(run)) & (HEAVY | ARRAYS)


def imported_by(code: str) -> set[str]:
    script = f"import sys; {code}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())
