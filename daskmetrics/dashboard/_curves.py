"""The curves of trainings for their page: loss and tokens per second by model and rank."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

RECENT = 60.0  # seconds after which a rank that reports nothing no longer counts
MAX_POINTS = (
    1000  # points of one rank; beyond it every other point is dropped and the stride doubles
)


class RankPoint(NamedTuple):
    """A rank's report, with the time at which it was received."""

    step: int
    loss: float
    tokens_per_second: float
    time: float


class TrainingCurves:
    """Loss and tokens per second by model and rank, oldest first; ``version`` increases with every
    event.
    """

    def __init__(self) -> None:
        self.version = 0
        self.points: dict[str, list[RankPoint]] = {}
        self.last: dict[str, RankPoint] = {}  # of the latest attempts of trainings that report now
        self._models: dict[str, Any] = {}
        self._stride: Counter[str] = Counter()
        self._received: Counter[str] = Counter()

    def receive(self, event: Mapping[str, Any], now: float) -> None:
        """Add an event with ``step``, ``loss``, ``tokens_per_second``, and ``model``, ``rank`` or
        both.

        Other events are ignored: they come from other code.
        """
        model = event.get("model")
        name = " ".join(
            [*([model] if model else []), *([f"rank {event['rank']}"] if "rank" in event else [])]
        )
        if "step" not in event or not name:
            return
        loss, speed = (_number(event.get(part)) for part in ("loss", "tokens_per_second"))
        point = RankPoint(int(event["step"]), loss, speed, now)
        # perhaps with fewer ranks
        is_again = name in self.last and point.step <= self.last[name].step
        for other, latest in list(self.last.items()):
            if now - latest.time > RECENT or (is_again and self._models[other] == model):
                del self.last[other]
        self.last[name], self._models[name] = point, model
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
