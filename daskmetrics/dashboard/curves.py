"""Training as it goes on: loss and throughput of every rank, in few enough points to draw."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

POINTS = 1000  #: of one rank; when there are more, every other one is dropped and fewer are taken in


class Curves:
    """Loss and tokens per second by rank.

    Attributes
    ----------
    version : int
        Grows with every event.
    points : mapping of str to list of (step, loss, tokens per second, time)
        By the name of a rank, oldest first.
    """

    def __init__(self) -> None:
        self.version = 0
        self.points: dict[str, list[tuple[int, float, float, float]]] = {}
        self._stride: Counter[str] = Counter()
        self._heard: Counter[str] = Counter()

    def hear(self, event: Mapping[str, Any], now: float) -> None:
        """Take in ``{"rank", "step", "loss", "tokens_per_second"}``, optionally with a ``model``.

        An event that lacks its step or its rank is passed over: it comes from other code.
        """
        if "rank" not in event or "step" not in event:
            return
        name = " ".join(filter(None, (event.get("model"), f"rank {event['rank']}")))
        points = self.points.setdefault(name, [])
        if points and event["step"] < points[-1][0]:
            points[:] = [point for point in points if point[0] < event["step"]]  # it goes on from an older state
        self._heard[name] += 1
        if self._heard[name] % (1 << self._stride[name]) == 0:
            loss, speed = (_number(event.get(part)) for part in ("loss", "tokens_per_second"))
            points.append((int(event["step"]), loss, speed, now))
        if len(points) > POINTS:
            points[:] = points[::2]
            self._stride[name] += 1
        self.version += 1


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
