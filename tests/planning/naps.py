"""A function whose time does not depend on how busy the machine is."""

from __future__ import annotations

import time


def nap(item: int) -> int:
    time.sleep(0.05)
    return item


def fail(item: int) -> int:
    raise ValueError("as planned")
