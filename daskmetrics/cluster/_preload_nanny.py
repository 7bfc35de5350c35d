"""Preload of the nannies of a whole-node job: each worker sees one of the job's GPUs.

The GPU follows from the worker's name, so that a restarted worker gets the same one.
"""

from __future__ import annotations

import os
from typing import Any

from daskmetrics.core._machine import VISIBLE, split_gpus


def dask_setup(nanny: Any) -> None:
    """Called by Dask with the new nanny."""
    # `worker_gpu` exits: after an exception Dask would go on, and all workers would share one GPU
    nanny.env[VISIBLE] = worker_gpu(str(nanny.name), os.environ.get(VISIBLE, ""))


def worker_gpu(name: str, visible: str) -> str:
    """The GPU of the worker whose name ends in ``-i``: entry i of the job's ``CUDA_VISIBLE_DEVICES``, or SystemExit.

    >>> worker_gpu("gpu-7-2", "4,5,6,7")
    '6'
    """
    number, gpus = name.rpartition("-")[2], split_gpus(visible)
    if not number.isdigit() or int(number) >= len(gpus):
        raise SystemExit(f"Worker {name} has no GPU: its job's {VISIBLE} is '{visible}'.")
    return gpus[int(number)]
