"""A report does not import torch; a text for a terminal imports no xarray, no matplotlib and no
Dask cluster.
"""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "transformers", "sklearn")
TERMINAL = (*HEAVY, "xarray", "zarr", "matplotlib", "distributed")


def modules_after(code: str, path) -> set[str]:
    script = f"import sys\nimport daskmetrics.report as report\nrun = report.Run({str(path)!r})\n{code}\n"
    script += "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_texts_need_no_heavy_library(finished):
    code = "print(report.status_text(run), report.best_text(run, in_short=True), report.best_text(run))"
    assert not modules_after(code, finished.folder.path) & set(TERMINAL)


def test_the_page_and_the_arrays_do_not_import_torch(finished):
    loaded = modules_after("report.write(run); run.metrics; run.scores", finished.folder.path)
    assert not loaded & set(HEAVY) and "xarray" in loaded
