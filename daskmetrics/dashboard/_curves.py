"""The curves of a training for its page: loss and tokens per second by rank."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_POINTS = 1000  # points of one rank; beyond it every other point is dropped and the stride doubles


class RankPoint(NamedTuple):
    """A rank's report, with the time at which it was received."""

    step: int
    loss: float
    tokens_per_second: float
    time: float


class TrainingCurves:
    """Loss and tokens per second by rank, oldest first; ``version`` increases with every event."""

    def __init__(self) -> None:
        self.version = 0
        self.points: dict[str, list[RankPoint]] = {}
        self.last: dict[str, RankPoint] = {}  # of the latest attempt of the latest training only
        self._model: Any = None
        self._stride: Counter[str] = Counter()
        self._received: Counter[str] = Counter()

    def receive(self, event: Mapping[str, Any], now: float) -> None:
        """Add an event with ``rank``, ``step``, ``loss``, ``tokens_per_second`` and optionally ``model``.

        An event without a step or a rank is ignored: it comes from other code.
        """
        if "rank" not in event or "step" not in event:
            return
        name = " ".join(filter(None, (event.get("model"), f"rank {event['rank']}")))
        loss, speed = (_number(event.get(part)) for part in ("loss", "tokens_per_second"))
        point = RankPoint(int(event["step"]), loss, speed, now)
        if event.get("model") != self._model or (name in self.last and point.step <= self.last[name].step):
            self.last.clear()  # another training, or a restart from an older state, perhaps with fewer ranks
        self._model = event.get("model")
        self.last[name] = point
        points = self.points.setdefault(name, [])
        if points and point.step < points[-1].step:
            points[:] = [older for older in points if older.step < point.step]
        self._received[name] += 1
        if self._received[name] % (1 << self._stride[name]) == 0:
            points.append(point)
        if len(points) > MAX_POINTS:
            points[:] = points[::2]
            self._stride[name] += 1
        self.version += 1


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
