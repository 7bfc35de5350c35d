"""Training as it goes on: loss and throughput of every rank, in few enough points to draw."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

Point = tuple[int, float, float, float]
"""A rank's report: step, loss, tokens per second, and when it was heard."""

POINTS = 1000  #: of one rank; when there are more, every other one is dropped and fewer are taken in


class Curves:
    """Loss and tokens per second by rank.

    Attributes
    ----------
    version : int
        Grows with every event.
    points : mapping of str to list of Point
        By the name of a rank, oldest first.
    last : mapping of str to Point
        What each rank of the latest training said last; earlier ones, and its own earlier attempts, are left out.
    """

    def __init__(self) -> None:
        self.version = 0
        self.points: dict[str, list[Point]] = {}
        self.last: dict[str, Point] = {}
        self._model: Any = None
        self._stride: Counter[str] = Counter()
        self._heard: Counter[str] = Counter()

    def hear(self, event: Mapping[str, Any], now: float) -> None:
        """Take in ``{"rank", "step", "loss", "tokens_per_second"}``, optionally with a ``model``.

        An event that lacks its step or its rank is passed over: it comes from other code.
        """
        if "rank" not in event or "step" not in event:
            return
        name = " ".join(filter(None, (event.get("model"), f"rank {event['rank']}")))
        loss, speed = (_number(event.get(part)) for part in ("loss", "tokens_per_second"))
        point = (int(event["step"]), loss, speed, now)
        if event.get("model") != self._model or (name in self.last and point[0] <= self.last[name][0]):
            self.last.clear()  # another training, or it goes on from an older state, perhaps with fewer ranks
        self._model = event.get("model")
        self.last[name] = point
        points = self.points.setdefault(name, [])
        if points and point[0] < points[-1][0]:
            points[:] = [older for older in points if older[0] < point[0]]
        self._heard[name] += 1
        if self._heard[name] % (1 << self._stride[name]) == 0:
            points.append(point)
        if len(points) > POINTS:
            points[:] = points[::2]
            self._stride[name] += 1
        self.version += 1


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
