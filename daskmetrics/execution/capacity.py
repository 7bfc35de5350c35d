"""How many workers have work, and why the others do not; the driver writes it to a file that
``status`` reads.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.serialization import build, parse
from daskmetrics.core.text import duration
from daskmetrics.execution._lock import holder
from daskmetrics.execution._placement import QueuedUnit, WorkerState

OLD = 60.0  # seconds after which the age of the file is shown


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

        >>> Capacity(8, 5, 0, {"no unit is ready": 3}, at=100.0).text(now=300.0)
        '8 known: 5 busy, 3 idle (no unit is ready), 3.3 min ago'
        """
        facts = [f"{self.known:,} known: {self.busy:,} busy"]
        facts += [f"{number:,} idle ({reason})" for reason, number in self.idle.items()]
        if self.waiting:
            facts.append(f"{self.waiting:,} waiting")
        if now - self.at > OLD:
            facts.append(f"{duration(now - self.at)} ago")
        return ", ".join(facts)


def capacity(
    workers: Collection[WorkerState], waiting: Collection[QueuedUnit], now: float, stopping: bool
) -> Capacity:
    """The capacity of the workers of a loop and of the units that wait for one, at a time of its
    clock.
    """
    idle = [worker for worker in workers if not worker.placed]
    # units of equal needs are alike
    ready = {
        (frozenset(item.unit.resources.items()), item.outgrown): item
        for item in waiting
        if item.not_before <= now
    }
    reasons = Counter(_reason(worker, ready.values(), stopping) for worker in idle)
    busy = len(workers) - len(idle)
    return Capacity(len(workers), busy, len(waiting), dict(reasons.most_common()), time.time())


def _reason(worker: WorkerState, ready: Collection[QueuedUnit], stopping: bool) -> str:
    """Why a worker has no unit."""
    if stopping:
        return "the run stops"
    if worker.drained:
        return "they get no more work"
    if not ready:
        return "no unit is ready"
    fitting = [item for item in ready if worker.offers(item.unit)]
    if not fitting:
        return "no unit that is ready needs only what they offer"
    if not any(worker.memory > item.outgrown for item in fitting):
        return "the units that are ready need more memory"
    if worker.ends < math.inf:
        return "too little time is left of their jobs"
    return "they get a unit in a moment"


def write(path: Path, state: Capacity) -> None:
    """Replace the file that `status` reads."""
    atomic_write(path, json.dumps(asdict(state)), wait=False)  # it is written again in a moment


def read(folder: RunFolder) -> Capacity | None:
    """What the process that drives a run has written last; None if there is no such process, or
    nothing to read.
    """
    # a damaged file is replaced in a moment
    with suppress(FileNotFoundError, ValueError, AttributeError):
        if holder(folder.lock):
            return build(Capacity, parse(folder.workers.read_bytes()))
    return None
