"""The scheduler's side: a desk that hears of a run, and lends its board to pages and to ``/metrics``."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from daskmetrics.core._events import StorePlanned, message_from_json
from daskmetrics.core._topics import CLUSTER, TRAIN
from daskmetrics.dashboard._state import Board, Curves, Grid

NAME = "daskmetrics"
LOOK_EVERY = 2.0  # seconds between looks at how busy workers are
REMEMBERED = 900  # such looks: half an hour


@dataclass(frozen=True)
class Busy:
    """How busy the workers were at a moment: shares of what they offer, NaN for what none offers or tells."""

    time: float
    workers: int
    gpu_slots: float
    cpu_slots: float
    cpu: float
    gpu: float


class Desk(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """What a scheduler knows of the run that it works for.

    Attributes
    ----------
    board : Board or None
        Of the latest run that was told of.
    training : Curves
        Of the latest training.
    busy : deque of Busy
    cluster : str
        A line about queue and machines, as `CLUSTER` told it last.
    closed : bool
        Whether the scheduler has ended.
    """

    name = NAME

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.board: Board | None = None
        self.training = Curves()
        self.busy: deque[Busy] = deque(maxlen=REMEMBERED)
        self.cluster = ""
        self.closed = False
        self._looking = PeriodicCallback(self.look, LOOK_EVERY * 1000)

    def open(self) -> None:
        """Begin to listen."""
        self.scheduler.handlers["daskmetrics_hear"] = self.hear
        self.scheduler.add_plugin(self)
        self._looking.start()

    async def close(self) -> None:
        """Called by Dask when the scheduler ends."""
        self.closed = True
        self._looking.stop()

    def hear(self, news: Iterable[Mapping[str, Any]]) -> None:
        """Entries of a journal, and further messages of the driver, in order."""
        messages = [message_from_json(plain) for plain in news]
        for message in messages:
            if isinstance(message, StorePlanned):
                self.board = Board(Grid.of(message))
        if self.board is not None:
            self.board.hear(messages, time.monotonic())

    def log_event(self, topic: str, msg: Any) -> None:
        """Called by Dask for every event that anyone logs."""
        if topic == TRAIN and isinstance(msg, dict):
            self.training.hear(msg, time.time())
        elif topic == CLUSTER and isinstance(msg, dict):
            self.cluster = str(msg.get("text", ""))

    def look(self) -> None:
        """Remember how busy the workers are now."""
        self.busy.append(busy(self.scheduler.workers.values(), time.time()))


def desk_of(scheduler: Any) -> Desk:
    """The desk of a scheduler; an empty one where another scheduler of this process has brought our pages."""
    desk = scheduler.extensions.get(NAME)
    return desk if isinstance(desk, Desk) else Desk(scheduler)


def busy(workers: Iterable[Any], now: float) -> Busy:
    """How busy these workers are, as the scheduler knows them.

    Parameters
    ----------
    workers : iterable of distributed.scheduler.WorkerState
    now : float
        Seconds since 1970.
    """
    workers = list(workers)
    processors = sum(worker.nthreads for worker in workers)
    cpu = sum(worker.metrics.get("cpu", 0.0) for worker in workers)
    told = [worker.metrics["gpu_utilization"] for worker in workers if "gpu_utilization" in worker.metrics]
    return Busy(
        time=now,
        workers=len(workers),
        gpu_slots=_held(workers, "GPU"),
        cpu_slots=_held(workers, "CPU"),
        cpu=cpu / 100 / processors if processors else math.nan,
        gpu=sum(told) / len(told) / 100 if told else math.nan,
    )


def _held(workers: Sequence[Any], slot: str) -> float:
    """Share of the slots of a name that are held; what waits at a worker holds them too, and counts once."""
    offered = sum(worker.resources.get(slot, 0.0) for worker in workers)
    held = sum(min(worker.used_resources.get(slot, 0.0), worker.resources.get(slot, 0.0)) for worker in workers)
    return held / offered if offered else math.nan
