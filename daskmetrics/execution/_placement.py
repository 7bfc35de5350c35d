"""Chooses the worker for each unit, from what runs where; it does not know Dask.

Workers wait in heaps, so that a choice does not look at all of them. A worker enters the heaps again whenever it
changes, and what an earlier entry says is checked when it comes to the top.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from daskmetrics.execution._messages import TaskId
from daskmetrics.execution._retry import Fault
from daskmetrics.execution._units import WorkUnit

SETTLED_AFTER = 1.0  # seconds after which a waiting unit may be moved; before, its start may not have been reported


@dataclass(eq=False)
class QueuedUnit:
    """The state of a unit, or of an input that units share, until it has a result.

    It waits (no `task`), is placed (`task`, on `worker`), runs (`begun`), and is then recorded or, an input, `held`.
    """

    unit: WorkUnit
    shared: bool = False
    faults: Counter[Fault] = field(default_factory=Counter)
    tried: int = 0  # attempts that ended in a fault
    number: int = 0  # in the order of asking
    not_before: float = 0.0
    avoid: str | None = None  # name of the worker on which the last attempt failed
    suspect: bool = False  # it was running, with others, when a worker died
    outgrown: float = 0.0  # bytes of memory that were not enough
    task: TaskId | None = None
    worker: str | None = None
    where: str | None = None  # the name of that worker
    placed: float = 0.0  # when it was placed
    begun: tuple[float, int] | None = None  # when, and the number of the report of it
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
    at_hand: str | None = None  # what the last unit with `keeps` left in its memory
    placed: list[QueuedUnit] = field(default_factory=list)
    removed: set[TaskId] = field(default_factory=set)  # attempts that were taken away while they seemed to wait here
    strays: list[tuple[float, int]] = field(default_factory=list)  # when such attempts started nevertheless

    def offers(self, unit: WorkUnit) -> bool:
        """Whether the worker has the resources of the unit, free or not; one that is drained offers nothing."""
        drained = self.resources and not any(self.resources.values())
        return not drained and all(self.resources.get(name, 0) >= need for name, need in unit.resources.items())

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

    def remove(self, item: QueuedUnit) -> None:
        """Take a unit away; one that waits may have started without a report."""
        self.placed.remove(item)
        if item.begun is None and item.task:
            self.removed.add(item.task)

    def note_stray(self, task: TaskId, begun: tuple[float, int]) -> None:
        """Count an attempt that started although it was taken away here: it occupies a thread."""
        if task in self.removed:
            self.strays.append(begun)

    def change(self, resources: Mapping[str, float]) -> list[QueuedUnit]:
        """Set the resources; returns the waiting units that no longer fit. Running units are not affected."""
        self.resources = resources
        return [item for item in self.placed if item.begun is None and not self.offers(item.unit)]

    def running(self) -> list[QueuedUnit | None]:
        """The units on its threads, None for a stray; with more reports than threads, the older ones have ended."""
        begun = [(item.begun, item) for item in self.placed if item.begun] + [(begun, None) for begun in self.strays]
        return [item for _, item in sorted(begun, key=lambda pair: pair[0])[-self.threads :]]

    def is_outgrown(self, item: QueuedUnit, most: float) -> bool:
        """Whether a unit that exceeded the memory here can get more elsewhere, of which ``most`` is the largest."""
        item.outgrown = self.memory if self.memory < most else item.outgrown
        return self.memory < most

    def _within(self, unit: WorkUnit, ahead: int) -> bool:
        for name, need in unit.resources.items():
            used = sum(item.unit.resources.get(name, 0) for item in self.placed)
            if used + need > self.resources.get(name, 0) + ahead * need:
                return False
        return True


class Durations:
    """Expected seconds of units, from the longest of their kind.

    Parameters
    ----------
    margin : float
        Factor on the longest unit so far.
    """

    def __init__(self, margin: float) -> None:
        self._margin, self._longest = margin, dict[str, float]()

    def note(self, kind: str, seconds: float) -> None:
        """Add the seconds of a unit."""
        self._longest[kind] = max(self._longest.get(kind, 0.0), seconds)

    def expect(self, unit: WorkUnit) -> float:
        """Expected longest seconds; 0 before the first unit of its kind."""
        return min(self._margin * self._longest.get(unit.kind, 0.0), unit.timeout or math.inf)


Needs: TypeAlias = frozenset[tuple[str, float]]  #: the resources of a unit
Place: TypeAlias = tuple[bool, int, str]  #: whether a unit would wait there, the load and the address of a worker


class Placement:
    """The workers, in the order in which they are chosen.

    Parameters
    ----------
    workers : mapping of str to WorkerState
        By address; the owner adds and removes workers, and calls `update` for one that is new or changed.
    ahead : int
        Units that may wait on a worker behind the running ones.
    """

    def __init__(self, workers: Mapping[str, WorkerState], ahead: int) -> None:
        self.workers, self.ahead, self.now = workers, ahead, 0.0
        self._reserved: set[str] = set()
        # for each kind of needs, with a unit that has them: the workers by what they have at hand, and "" for all
        self._heaps: dict[Needs, tuple[WorkUnit, dict[str | None, list[Place]]]] = {}
        self._hopeless: dict[Needs, float] = {}  # expected seconds for which no worker was found in this round

    def begin(self, now: float) -> None:
        """Begin a round of placement."""
        self.now, self._reserved, self._hopeless = now, set(), {}

    def update(self, worker: WorkerState) -> None:
        """Sort a worker in, after any change of it."""
        for unit, heaps in self._heaps.values():
            self._add(worker, unit, heaps)

    def _add(self, worker: WorkerState, unit: WorkUnit, heaps: dict[str | None, list[Place]]) -> None:
        if not worker.offers(unit) or not worker.takes(unit, self.ahead):
            return
        for name in ("", worker.at_hand):
            heap = heaps.setdefault(name, [])
            heappush(heap, (not worker.starts(unit), *_load(worker)))
            if len(heap) > 4 * len(self.workers) + 64:  # most entries are out of date
                heap[:] = {place for place in heap if self._holds(place, unit, name)}
                heapify(heap)

    def choose(self, item: QueuedUnit, seconds: float, near: str | None = None) -> WorkerState | None:
        """The worker for a unit, or None if no worker can take it now.

        Parameters
        ----------
        item : QueuedUnit
        seconds : float
            Expected duration; a worker whose walltime ends earlier is skipped.
        near : str, optional
            The worker that holds the unit's input.
        """
        unit = item.unit
        if item.avoid:
            return self._choose_among_all(item, seconds, near)
        needs = frozenset(unit.resources.items())
        if seconds >= self._hopeless.get(needs, math.inf):
            return None
        if needs not in self._heaps:
            self._heaps[needs] = unit, {}
            for worker in self.workers.values():
                self._add(worker, *self._heaps[needs])
        found = [self._first(needs, name, seconds) for name in (("", None, unit.keeps) if unit.keeps else ("",))]
        if not found[0]:
            self._hopeless[needs] = seconds
        elif near and (holder := self.workers.get(near)) and self._is_free(holder, unit, seconds):
            found.append(holder)
        return min(filter(None, found), key=lambda worker: _rank(worker, unit, near), default=None)

    def _first(self, needs: Needs, name: str | None, seconds: float) -> WorkerState | None:
        """The first worker of a heap that is free for as long."""
        unit, heaps = self._heaps[needs]
        heap, skipped, found = heaps.get(name, []), [], None
        while heap and found is None:
            if not self._holds(heap[0], unit, name):
                heappop(heap)
            elif self._is_free(worker := self.workers[heap[0][-1]], unit, seconds):
                found = worker
            else:
                skipped.append(heappop(heap))
        for place in skipped:
            heappush(heap, place)
        return found

    def _holds(self, place: Place, unit: WorkUnit, name: str | None) -> bool:
        """Whether an entry of a heap still says what is so."""
        worker = self.workers.get(place[-1])
        if worker is None or name not in ("", worker.at_hand) or not worker.takes(unit, self.ahead):
            return False
        return worker.offers(unit) and place == (not worker.starts(unit), *_load(worker))

    def _is_free(self, worker: WorkerState, unit: WorkUnit, seconds: float) -> bool:
        if worker.address in self._reserved or not worker.offers(unit):
            return False
        return self.now + seconds <= worker.ends and worker.takes(unit, self.ahead)

    def _choose_among_all(self, item: QueuedUnit, seconds: float, near: str | None) -> WorkerState | None:
        """The worker for a unit whose last attempt failed."""
        able = [w for w in self.workers.values() if w.offers(item.unit) and self.now + seconds <= w.ends]
        able = [w for w in able if w.memory > item.outgrown]
        able = [w for w in able if w.name != item.avoid] or able  # another worker, if there is one
        free = [w for w in able if w.address not in self._reserved and w.takes(item.unit, self.ahead)]
        if item.suspect:
            free = [w for w in free if w.threads == 1 or not w.placed]
            if able and not free:  # reserve the least busy worker until it is idle
                self._reserved.add(min(able, key=_load).address)
        return min(free, key=lambda worker: _rank(worker, item.unit, near), default=None)


def movable(workers: Iterable[WorkerState], now: float) -> list[QueuedUnit]:
    """Units that wait behind a slow one while another worker is idle: at most one for each idle worker."""
    workers = tuple(workers)
    idle = [worker for worker in workers if not worker.placed]
    found: list[QueuedUnit] = []
    for worker in workers if idle else ():
        for item in worker.placed if len(worker.placed) > 1 else ():
            waits = item.begun is None and now - item.placed >= SETTLED_AFTER
            if waits and len(found) < len(idle) and any(worker.offers(item.unit) for worker in idle):
                found.append(item)
    return found


def shortage(workers: Collection[WorkerState], item: QueuedUnit, seconds: float) -> str:
    """Why no worker takes a unit although all workers are idle."""
    unit = item.unit
    if not workers:
        return "No worker is left."
    if not any(worker.memory > item.outgrown for worker in workers):
        return f"No worker has more than the {item.outgrown / 2**30:.1f} GiB of memory that {unit.name} has exceeded."
    if not any(worker.offers(unit) for worker in workers):
        return f"No worker offers what {unit.kind} {unit.name} occupies: {dict(unit.resources)}."
    return f"No worker has the {seconds:.0f} s left that {unit.kind} {unit.name} may take."


def _rank(worker: WorkerState, unit: WorkUnit, near: str | None) -> tuple[bool, bool, bool, bool, int, str]:
    """Sort key, best first: it starts at once, has the input, holds what the unit keeps, and displaces nothing."""
    strange = unit.keeps is not None and worker.at_hand != unit.keeps
    displaces = strange and worker.at_hand is not None
    return not worker.starts(unit), worker.address != near, strange, displaces, *_load(worker)


def _load(worker: WorkerState) -> tuple[int, str]:
    return len(worker.placed), worker.address
