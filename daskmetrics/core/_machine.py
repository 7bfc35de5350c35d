"""Software, GPUs and workers: this process, the machine that it runs on, and the workers of a Dask client."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import ClusterLostError


def workers(client: Any) -> Mapping[str, Any]:
    """The workers that the scheduler knows now, by address; raises ClusterLostError if it does not answer.

    The client is a `distributed.Client`; this package does not import Dask. The scheduler is asked directly, because
    the cached ``scheduler_info`` of the client can miss some.
    """
    try:
        return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
    except OSError as error:
        raise ClusterLostError(f"The scheduler does not answer ({error}).") from None


def environment(*packages: str) -> dict[str, str]:
    """Versions of Python and of packages, and the kind of machine."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **{name: version(name) for name in packages},
    }


VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpu_models() -> list[str]:
    """Model names of the machine's GPUs, as NVIDIA's driver lists them; empty without a driver."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    lines = (line for file in files for line in file.read_text().splitlines())
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them; without that variable all."""
    value = os.environ.get(VISIBLE)
    if value is not None:
        return split_gpus(value)
    devices = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    count = len([name for name in devices if name.isdigit()]) or len(gpu_models())
    return [str(number) for number in range(count)]


def split_gpus(value: str) -> list[str]:
    """The entries of a value of ``CUDA_VISIBLE_DEVICES``.

    >>> split_gpus("0, MIG-a,"), split_gpus("")
    (['0', 'MIG-a'], [])
    """
    return [gpu.strip() for gpu in value.split(",") if gpu.strip()]
