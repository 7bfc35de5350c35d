"""Chooses the worker for each unit, from what runs where, and says why none takes it; it does not
know Dask.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from daskmetrics.core.text import plural
from daskmetrics.domain.retry import Fault
from daskmetrics.execution._units import TaskId, WorkUnit

# seconds after which a waiting unit may be moved; before, its start may not have been reported
SETTLED_AFTER = 1.0
Begun: TypeAlias = tuple[float, int]  #: when an attempt began, and the number of the report of it


@dataclass(eq=False)
class QueuedUnit:
    """The state of a unit, or of an input that units share, until it has a result.

    It waits (no `task`), is placed (`task`, on `worker`), runs (`begun`), and is then recorded or,
    an input, `held`.
    """

    unit: WorkUnit
    shared: bool = False
    faults: Counter[Fault] = field(default_factory=Counter)
    tried: int = 0  # attempts that ended in a fault
    number: int = 0  # in the order of asking
    not_before: float = 0.0
    avoid: str | None = None  # name of the worker on which the latest attempt failed
    suspect: bool = False  # it was running, with others, when a worker died
    outgrown: float = 0.0  # bytes of memory that were not enough
    task: TaskId | None = None
    worker: str | None = None
    where: str | None = None  # the name of that worker
    placed: float = 0.0  # when it was placed
    begun: Begun | None = None
    held: bool = False

    @property
    def deadline(self) -> float:
        """When the running attempt must have ended."""
        if self.begun is None or self.unit.timeout is None:
            return math.inf
        return self.begun[0] + self.unit.timeout


@dataclass(eq=False)
class WorkerState:
    """A worker with the units that are placed there and have not ended."""

    address: str
    name: str
    threads: int
    resources: Mapping[str, float]
    ends: float  # end of its walltime; infinite without one
    memory: float = math.inf  # bytes that it may use
    trains: bool = False  # a rank of a training has it until the training ends
    at_hand: str | None = None  # what the latest unit with `keeps` left in its memory
    placed: list[QueuedUnit] = field(default_factory=list)
    # attempts that were taken away while they seemed to wait here, and those of them that started
    # nevertheless: each of these occupies a thread
    removed: set[TaskId] = field(default_factory=set)
    strays: list[Begun] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The kind of the unit that runs.

        Between two units of the next one, which is on its way.
        """
        items = filter(None, (*self.running(), *self.placed))
        return next((item.unit.kind for item in items), "")

    @property
    def drained(self) -> bool:
        """Whether it will leave after its running units."""
        return bool(self.resources) and not any(self.resources.values())

    def offers(self, unit: WorkUnit) -> bool:
        """Whether the worker has the resources of the unit, free or not."""
        if self.drained or self.trains:
            return False
        return all(self.resources.get(name, 0) >= need for name, need in unit.resources.items())

    def starts(self, unit: WorkUnit) -> bool:
        """Whether the unit would start at once."""
        return len(self.placed) < self.threads and self._within(unit, 0)

    def takes(self, unit: WorkUnit, ahead: int) -> bool:
        """Whether the unit may be placed here, to start at once or to wait behind others."""
        if self.threads > 1 and any(item.suspect for item in self.placed):
            return False  # a suspect runs alone
        if self.ends < math.inf:
            return self.starts(unit)  # how long it would wait is unknown
        return len(self.placed) < self.threads + ahead and self._within(unit, ahead)

    def _within(self, unit: WorkUnit, ahead: int) -> bool:
        for name, need in unit.resources.items():
            used = sum(item.unit.resources.get(name, 0) for item in self.placed)
            if used + need > self.resources.get(name, 0) + ahead * need:
                return False
        return True

    def remove(self, item: QueuedUnit) -> None:
        """Take a unit away; one that waits may have started without a report."""
        self.placed.remove(item)
        if item.begun is None and item.task:
            self.removed.add(item.task)

    def running(self) -> list[QueuedUnit | None]:
        """The units on its threads, None for a stray.

        With more reports than threads, the older ones have ended.
        """
        reports: list[tuple[Begun, QueuedUnit | None]] = [(begun, None) for begun in self.strays]
        reports += [(item.begun, item) for item in self.placed if item.begun]
        reports.sort(key=lambda report: report[0])
        return [item for _, item in reports[-self.threads :]]


class Placement:
    """One round of choices among the workers.

    Parameters
    ----------
    workers : iterable of WorkerState
    ahead : int
        Units that may wait on a worker behind the running ones.
    now : float
    """

    def __init__(self, workers: Iterable[WorkerState], ahead: int, now: float) -> None:
        self._workers = tuple(workers)
        self._ahead = ahead
        self._now = now
        # with many workers most are full, and a round places few units: look at the full ones once
        self._open = [w for w in self._workers if len(w.placed) < w.threads + ahead]
        self._reserved: set[str] = set()
        # by the resources that no worker had free: the expected seconds, as units alike follow
        self._hopeless: dict[frozenset[tuple[str, float]], float] = {}

    def choose(
        self, item: QueuedUnit, seconds: float, holder: str | None = None
    ) -> WorkerState | None:
        """The worker for a unit, or None if no worker can take it now.

        After a failed attempt it is another worker than before, if there is one.

        Parameters
        ----------
        item : QueuedUnit
        seconds : float
            Expected duration; a worker whose walltime ends earlier is skipped.
        holder : str, optional
            The address of the worker that holds the unit's input.
        """
        unit = item.unit
        ends = self._now + seconds
        needs = frozenset(unit.resources.items())
        if not item.avoid and seconds >= self._hopeless.get(needs, math.inf):
            return None
        workers = self._workers if item.avoid else self._open
        able = [worker for worker in workers if worker.offers(unit) and ends <= worker.ends]
        if item.avoid:
            able = [worker for worker in able if worker.memory > item.outgrown]
            able = [worker for worker in able if worker.name != item.avoid] or able
        free = [
            worker
            for worker in able
            if worker.address not in self._reserved and worker.takes(unit, self._ahead)
        ]
        if item.suspect:
            free = [worker for worker in free if worker.threads == 1 or not worker.placed]
            if able and not free:  # reserve the least busy worker until it is idle
                self._reserved.add(min(able, key=_load).address)
        if not item.avoid and not free:
            self._hopeless[needs] = seconds
        return min(free, key=lambda worker: _rank(worker, unit, holder), default=None)


def movable(workers: Collection[WorkerState], ahead: int, now: float) -> list[QueuedUnit]:
    """Units that wait behind a slow one while another worker is idle.

    All but ``ahead`` on each worker; if there are none, at most one for each thread of an idle
    worker.
    """
    idle = [worker for worker in workers if not worker.placed]
    if not idle:
        return []
    wanted = []
    surplus = []
    for worker in workers:
        if len(worker.placed) < 2:
            continue
        waiting = []
        for item in worker.placed:
            # otherwise its start may not have been reported
            is_settled = item.begun is None and now - item.placed >= SETTLED_AFTER
            if is_settled and any(other.offers(item.unit) for other in idle):
                waiting.append(item)
        wanted += waiting[:ahead]
        surplus += waiting[ahead:]
    return surplus or wanted[: sum(worker.threads for worker in idle)]


def shortage(
    workers: Collection[WorkerState], item: QueuedUnit, seconds: float, asked: int = 0
) -> str:
    """Why no worker takes a unit although none has another one.

    ``asked`` are connected and have not answered yet.
    """
    unit = item.unit
    if not workers and asked:
        return f"Connected, but without an answer yet (starting or busy): {plural(asked)}."
    if not workers:
        return "No worker is left."
    if not any(worker.memory > item.outgrown for worker in workers):
        gib = item.outgrown / 2**30
        return f"No worker has more than the {gib:.1f} GiB of memory that {unit.name} has exceeded."
    if any(worker.trains for worker in workers):
        return f"Every worker for {unit.kind} {unit.name} trains."
    if not any(worker.offers(unit) for worker in workers):
        return f"No worker offers what {unit.kind} {unit.name} occupies: {dict(unit.resources)}."
    return f"No worker has the {seconds:.0f} s left that {unit.kind} {unit.name} may take."


def _rank(
    worker: WorkerState, unit: WorkUnit, holder: str | None
) -> tuple[bool, bool, bool, bool, int, str]:
    """Sort key, best first.

    It starts at once, has the input, holds what the unit keeps, and displaces nothing.
    """
    strange = unit.keeps is not None and worker.at_hand != unit.keeps
    displaces = strange and worker.at_hand is not None
    waits = not worker.starts(unit)
    lacks_input = worker.address != holder
    return waits, lacks_input, strange, displaces, *_load(worker)


def _load(worker: WorkerState) -> tuple[int, str]:
    return len(worker.placed), worker.address
