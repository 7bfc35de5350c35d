"""Assumed memory and speed of GPUs that were not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskmetrics.core._estimate import Interval

SPEED_FACTOR = 1.5
"""Factor, up and down, by which the ratio of two datasheets may miss the ratio of two runs."""


@dataclass(frozen=True)
class Device:
    """A GPU's datasheet."""

    memory_gib: float
    tflops: float  # of dense bfloat16 operations; only ratios are used
    bandwidth: float  # of its memory in GB/s, which bounds small models


DEVICES: Mapping[str, Device] = {
    "a40": Device(45, 150, 696),
    "a100": Device(80, 312, 2039),
    "a100_40": Device(40, 312, 1555),
    "b200": Device(180, 2250, 8000),
    "h100": Device(80, 989, 3350),
    "h200": Device(141, 989, 4800),
    "l4": Device(22.5, 121, 300),
    "l40": Device(45, 181, 864),
    "l40s": Device(45, 362, 864),
    "rtx6000": Device(24, 130, 672),
    "v100": Device(32, 125, 900),
}
"""Datasheets of NVIDIA; V100 and Quadro RTX 6000 in float16."""


def speed(device: str, reference: str) -> Interval | None:
    """Assumed speed of a GPU relative to another one; None if either is unknown.

    The geometric mean of the ratios of operations and of memory bandwidth, since either can bound small models.

    Examples
    --------
    >>> round(speed("h200", "l40s").value, 1)
    3.9
    >>> speed("a100", "a100").low
    1.0
    """
    if device == reference:
        return Interval.exactly(1.0)
    if device not in DEVICES or reference not in DEVICES:
        return None
    one, other = DEVICES[device], DEVICES[reference]
    ratio = (one.tflops / other.tflops * one.bandwidth / other.bandwidth) ** 0.5
    return Interval.around(ratio, SPEED_FACTOR)
