"""What the nanny of a whole-node job loads before its worker starts: of the job's GPUs its worker sees one.

Which one follows from the worker's name, so that a worker that is started anew gets the same.
"""

from __future__ import annotations

import os
from typing import Any

VISIBLE = "CUDA_VISIBLE_DEVICES"


def dask_setup(nanny: Any) -> None:
    """Called by Dask with the new nanny."""
    # Dask goes on after an exception in a preload, and all workers would share one GPU
    nanny.env[VISIBLE] = own_gpu(str(nanny.name), os.environ.get(VISIBLE, ""))


def own_gpu(name: str, visible: str) -> str:
    """The GPU of the worker whose name ends in ``-i``: entry i of the job's.

    Raises
    ------
    SystemExit
        If the job has no such GPU.

    Examples
    --------
    >>> own_gpu("gpu-7-2", "4,5,6,7")
    '6'
    """
    number, gpus = name.rpartition("-")[2], [gpu for gpu in visible.split(",") if gpu]
    if not number.isdigit() or int(number) >= len(gpus):
        raise SystemExit(f"Worker {name} owns no GPU: its job's {VISIBLE} is '{visible}'.")
    return gpus[int(number)]
