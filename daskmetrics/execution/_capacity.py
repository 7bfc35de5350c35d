"""How many workers have work, and why the others do not; the driver writes it to a file that ``status`` reads."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from daskmetrics.core._files import RunFolder, atomic_write
from daskmetrics.core._json import build, parse
from daskmetrics.core._text import duration, plural
from daskmetrics.execution._lock import holder
from daskmetrics.execution._placement import QueuedUnit, WorkerState

OLD = 60.0  # seconds after which it is said how old the file is


@dataclass(frozen=True)
class Capacity:
    """The workers of a run at one moment."""

    known: int  # workers that have joined and not left
    busy: int  # of these, with at least one unit
    waiting: int  # units without a worker
    idle: Mapping[str, int] = field(default_factory=dict)  # the number of idle workers by reason
    at: float = 0.0  # seconds since 1970

    def text(self, now: float) -> str:
        """In one sentence.

        >>> Capacity(8, 5, 0, {"no unit is ready": 2, "they get no more work": 1}, at=100.0).text(now=300.0)
        '8 known: 5 busy, 2 idle (no unit is ready), 1 idle (they get no more work), 3.3 min ago'
        """
        idle = (f"{number:,} idle ({reason})" for reason, number in self.idle.items())
        waiting = [f"{plural(self.waiting, 'unit')} waiting"] if self.waiting else []
        age = [f"{duration(now - self.at)} ago"] if now - self.at > OLD else []
        return f"{self.known:,} known: {', '.join([f'{self.busy:,} busy', *idle, *waiting, *age])}"


def capacity(workers: Collection[WorkerState], waiting: Collection[QueuedUnit], now: float, stopping: bool) -> Capacity:
    """The capacity of the workers of a loop and of the units that wait for one, at a time of its clock."""
    idle = [worker for worker in workers if not worker.placed]
    # units of equal needs that are ready are alike
    ready = {
        (frozenset(each.unit.resources.items()), each.outgrown): each for each in waiting if each.not_before <= now
    }
    reasons = Counter(_reason(worker, tuple(ready.values()), stopping) for worker in idle)
    return Capacity(len(workers), len(workers) - len(idle), len(waiting), dict(reasons.most_common()), time.time())


def _reason(worker: WorkerState, ready: Collection[QueuedUnit], stopping: bool) -> str:
    """Why a worker has no unit."""
    if stopping:
        return "the run stops"
    if worker.resources and not any(worker.resources.values()):
        return "they get no more work"
    if not ready:
        return "no unit is ready"
    if not any(worker.offers(each.unit) for each in ready):
        offered = ", ".join(name for name, amount in worker.resources.items() if amount)
        return f"no unit that is ready needs {offered or 'nothing'} alone"
    if not any(worker.offers(each.unit) and worker.memory > each.outgrown for each in ready):
        return "the units that are ready need more memory"
    return "too little time is left of their jobs" if worker.ends < math.inf else "they get a unit in a moment"


def write(path: Path, state: Capacity) -> None:
    atomic_write(path, json.dumps(asdict(state)), wait=False)  # it is written again in a moment


def read(folder: RunFolder) -> Capacity | None:
    """What the process that drives a run has written last; None if there is no such process, or nothing to read."""
    with suppress(FileNotFoundError, ValueError, AttributeError):  # a damaged file is replaced in a moment
        return build(Capacity, parse(folder.workers.read_bytes())) if holder(folder.lock) else None
    return None
