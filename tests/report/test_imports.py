"""A report does not import torch; a text for a terminal imports no xarray, no matplotlib and no
Dask cluster.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "sklearn")
TERMINAL = (*HEAVY, "xarray", "zarr", "matplotlib", "distributed")


def modules_after(code: str, path) -> set[str]:
    script = f"import sys\nimport daskmetrics.report as report\nrun = report.Run({str(path)!r})\n{code}\n"
    script += "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("text", ["status_text", "summary_text", "best_text"])
def test_a_text_needs_no_heavy_library(finished, text):
    assert not modules_after(f"print(report.{text}(run))", finished.folder.path) & set(TERMINAL)


def test_the_page_and_the_arrays_do_not_import_torch(finished):
    loaded = modules_after("report.write(run); run.metrics; run.scores", finished.folder.path)
    assert not loaded & set(HEAVY) and "xarray" in loaded
