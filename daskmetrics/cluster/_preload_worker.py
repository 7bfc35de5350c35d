"""Preload of workers in Slurm jobs: modules of the working folder can be imported, after Python's own.

Python itself would search the working folder first (it is started with ``-P``), so that a file ``queue.py`` in it would
replace the module of this name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from daskmetrics.cluster._preload_clock import keep_time


def dask_setup(worker: Any) -> None:
    """Called by Dask with the new worker."""
    keep_time()
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
