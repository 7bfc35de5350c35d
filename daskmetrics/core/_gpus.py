"""The GPUs of this machine and of this process, read without starting CUDA: torch may not be imported yet."""

from __future__ import annotations

import os
from pathlib import Path

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

    Examples
    --------
    >>> split_gpus("0, MIG-a,"), split_gpus("")
    (['0', 'MIG-a'], [])
    """
    return [gpu.strip() for gpu in value.split(",") if gpu.strip()]
