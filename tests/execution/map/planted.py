"""A function with planted faults, for the command line and real workers."""

from __future__ import annotations

import os
import re
import time

ITERATIONS = 150
ERRORS = {17, 103}
KILLERS = {88}
HANGS = {120}  # in a C call that never returns
STUCK = {136}  # in a C call that holds the interpreter lock
CROWDED = set(range(33, ITERATIONS, 25))  # out of memory in a batch of more than two
NOT_FINITE = {64}
STATUS = {
    **dict.fromkeys(ERRORS, "error"),
    **dict.fromkeys(KILLERS, "quarantined"),
    **dict.fromkeys(HANGS | STUCK, "timeout"),
    **dict.fromkeys(NOT_FINITE, "nan"),
}
"""The expected status of each item that must fail."""


class OutOfMemoryError(RuntimeError):
    """Has the name of the error that torch raises on a GPU."""


def step(item: int, *, seed: int, batch_size: int) -> dict[str, float]:
    time.sleep(0.005)
    if item in ERRORS:
        raise ValueError(f"planted in {item}")
    if item in KILLERS:
        os._exit(1)
    if item in HANGS:
        time.sleep(10_000)
    if item in STUCK:
        re.match(r"(a+)+b", "a" * 40)
    if item in CROWDED and batch_size > 2:
        raise OutOfMemoryError("CUDA out of memory") if item % 2 else MemoryError
    return {"loss": float("nan") if item in NOT_FINITE else item / 7, "seed": seed}
