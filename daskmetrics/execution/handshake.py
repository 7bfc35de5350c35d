"""The handshake with a new worker: its identity, and whether its versions are those of the
driver.
"""

from __future__ import annotations

import math
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from distributed import Worker
from distributed.diagnostics import nvml

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.machine import gpu_models
from daskmetrics.core.telemetry import GPU

PACKAGES = ("daskmetrics", "distributed", "torch")
END_OF_JOB = "SLURM_JOB_END_TIME"  # seconds since 1970, set by Slurm in every job


def question() -> str:
    """The expression that a worker evaluates.

    It is text, so that a worker without this package reports just that.
    """
    asked_by = (socket.gethostname(), os.getpgrp())
    return f"__import__('daskmetrics.execution.handshake', fromlist=['answer']).answer{asked_by!r}"


def answer(host: str, group: int) -> dict[str, Any]:
    """The identity of a worker, for a driver with this machine and process group.

    A worker of the same group gets Ctrl-C from the terminal, too: it ignores it, because the driver
    handles it.
    """
    hostname = socket.gethostname()
    same_group = hostname == host and os.getpgrp() == group
    if same_group and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for worker in Worker._instances:
        # Dask found nvidia-ml-py and a GPU, whose use it reports already
        if worker.monitor.gpu_name:
            worker.metrics.setdefault(GPU, _gpu_state)
    remaining = float(os.environ.get(END_OF_JOB, math.inf)) - time.time()
    return {"versions": versions(), "host": hostname, "gpus": gpu_models(), "remaining": remaining}


def _gpu_state(worker: Worker) -> dict[str, float]:
    """Power and temperature of the GPU of a worker.

    The worker calls this with each heartbeat and ignores its errors.
    """
    handle = nvml._pynvml_handles()
    library = nvml.pynvml
    celsius = library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)
    return {"power": library.nvmlDeviceGetPowerUsage(handle) / 1000, "temperature": float(celsius)}


def versions() -> dict[str, str]:
    """Versions that driver and workers must share.

    Builds of torch for different devices are the same version.
    """
    result = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            result[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            result[name] = "none"
    return result


def require_same(worker: str, theirs: Mapping[str, str] | BaseException) -> None:
    """Raise ConfigError for a worker whose versions are not the driver's.

    Likewise if its handshake failed.

    >>> require_same("w0", {**versions(), "daskmetrics": "0.0.9"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    daskmetrics.core.errors.ConfigError: Worker w0 has daskmetrics 0.0.9, the driver has ...
    """
    remedy = "Start workers from the driver's environment, or from one with the same packages."
    if isinstance(theirs, BaseException):
        error = f"{type(theirs).__name__}: {theirs}"
        raise ConfigError(f"Worker {worker} cannot import daskmetrics ({error}). {remedy}")
    for name, ours in versions().items():
        if theirs.get(name) != ours:
            raise ConfigError(
                f"Worker {worker} has {name} {theirs.get(name)}, the driver has {name} {ours}."
                f" {remedy}"
            )
