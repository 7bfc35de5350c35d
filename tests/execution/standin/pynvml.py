"""A stand-in for NVIDIA's library, for machines without a GPU: it replays a trace that was written
by hand.

The trace has the columns that ``nvidia-smi
--query-gpu=utilization.gpu,memory.used,power.draw,temperature.gpu`` prints. A question for the
utilisation moves to its next row.
"""

from __future__ import annotations

from types import SimpleNamespace

TRACE = ((3, 512, 68.25, 31), (2, 512, 67.5, 31), (4, 640, 69.0, 32))  # %, MiB, W, degrees Celsius
TOTAL = 80 * 2**30
NVML_DEVICE_MIG_ENABLE, NVML_DEVICE_MIG_DISABLE, NVML_TEMPERATURE_GPU = 1, 0, 0


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


NVMLError_LibraryNotFound = NVMLError_DriverNotLoaded = NVMLError_Unknown = NVMLError_NotFound = (
    NVMLError_NotSupported
)
_row = [0]


def nvmlInit() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return "550.54"


def nvmlDeviceGetCount() -> int:
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetMigMode(handle: int) -> tuple[int, int]:
    return NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_DISABLE


def nvmlDeviceGetName(handle: int) -> str:
    return "a GPU of the tests"


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    _row[0] += 1
    return SimpleNamespace(gpu=_now()[0])


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(used=_now()[1] * 2**20, total=TOTAL)


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return int(_now()[2] * 1000)


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    return _now()[3]


def _now() -> tuple[int, int, float, int]:
    return TRACE[_row[0] % len(TRACE)]
