"""Which worker takes which work: decided from what runs where, without Dask."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from daskmetrics.execution._messages import TaskId
from daskmetrics.execution._retry import Fault
from daskmetrics.execution._units import WorkUnit

PATIENCE = 1.0  # seconds after which what waits may be moved; sooner it may have begun without our knowledge


@dataclass
class Item:
    """A unit, or an input that units share, on its way to a result: all that is known of it, in one place.

    It waits (no `task`), is placed (`task`, on `worker`), runs (`begun`), and then is recorded or, an input, `held`.
    """

    unit: WorkUnit
    shared: bool = False
    faults: Counter[Fault] = field(default_factory=Counter)
    tried: int = 0  # attempts that ended in a fault
    not_before: float = 0.0
    shun: str | None = None  # name of the worker on which the last attempt failed
    suspect: bool = False  # was running, not alone, when a worker died
    task: TaskId | None = None
    worker: str | None = None
    where: str | None = None  # that worker's name
    placed: float = 0.0  # when
    begun: tuple[float, int] | None = None  # when, and as which of all attempts
    held: bool = False

    @property
    def deadline(self) -> float:
        """When its running attempt should have ended."""
        if self.begun is None or self.unit.timeout is None:
            return math.inf
        return self.begun[0] + self.unit.timeout


@dataclass
class Host:
    """A worker as the loop sees it, with what was placed there and has not ended."""

    address: str
    name: str
    threads: int
    resources: Mapping[str, float]
    ends: float  # infinite without a walltime
    kept: str | None = None  # what it has at hand from the last unit that keeps anything
    placed: list[Item] = field(default_factory=list)
    taken_away: set[TaskId] = field(default_factory=set)  # while they seemed to wait here
    strays: list[tuple[float, int]] = field(default_factory=list)  # when such began all the same

    def offers(self, unit: WorkUnit) -> bool:
        """Whether it has what the unit occupies at all."""
        return all(self.resources.get(name, 0) >= need for name, need in unit.resources.items())

    def starts(self, unit: WorkUnit) -> bool:
        """Whether the unit would begin at once."""
        return len(self.placed) < self.threads and self._within(unit, 0)

    def takes(self, unit: WorkUnit, ahead: int) -> bool:
        """Whether the unit may be placed here, were it only to wait behind others."""
        if self.threads > 1 and any(item.suspect for item in self.placed):
            return False  # a suspect runs alone
        if self.ends < math.inf:
            return self.starts(unit)  # how long it would wait is not known
        return len(self.placed) < self.threads + ahead and self._within(unit, ahead)

    def remove(self, item: Item) -> None:
        """Take away what was placed here; what waits may have begun without our knowledge."""
        self.placed.remove(item)
        if item.begun is None and item.task:
            self.taken_away.add(item.task)

    def hear_of_stray(self, task: TaskId, begun: tuple[float, int]) -> None:
        """An attempt has started that belongs to nobody any more; if it is one of ours it occupies a thread."""
        if task in self.taken_away:
            self.strays.append(begun)

    def change(self, resources: Mapping[str, float]) -> list[Item]:
        """Offer this from now on; what waits here for something else. What runs is not disturbed."""
        self.resources = resources
        return [item for item in self.placed if item.begun is None and not self.offers(item.unit)]

    def running(self) -> list[Item | None]:
        """What runs on its threads, None for a stray: of more reports than threads the older have ended unheard."""
        begun = [(item.begun, item) for item in self.placed if item.begun] + [(begun, None) for begun in self.strays]
        return [item for _, item in sorted(begun, key=lambda pair: pair[0])[-self.threads :]]

    def _within(self, unit: WorkUnit, ahead: int) -> bool:
        for name, need in unit.resources.items():
            used = sum(item.unit.resources.get(name, 0) for item in self.placed)
            if used + need > self.resources.get(name, 0) + ahead * need:
                return False
        return True


class Durations:
    """How long units take, by the longest of their kind.

    Parameters
    ----------
    margin : float
        Factor on the longest seen.
    """

    def __init__(self, margin: float) -> None:
        self._margin, self._longest = margin, dict[str, float]()

    def note(self, kind: str, seconds: float) -> None:
        """Take in what one took."""
        self._longest[kind] = max(self._longest.get(kind, 0.0), seconds)

    def expect(self, unit: WorkUnit) -> float:
        """Seconds at most; 0 while nothing is known of its kind."""
        return min(self._margin * self._longest.get(unit.kind, 0.0), unit.timeout or math.inf)


class Placement:
    """One round of placing work.

    Parameters
    ----------
    hosts : iterable of Host
    now : float
    ahead : int
        Units that may wait on a worker behind the running ones.
    """

    def __init__(self, hosts: Iterable[Host], now: float, ahead: int) -> None:
        self.hosts, self.now, self.ahead = tuple(hosts), now, ahead
        self._reserved: set[str] = set()

    def choose(self, item: Item, seconds: float, near: Collection[str] = ()) -> Host | None:
        """The worker for a unit that will take so many seconds, or None for now.

        Parameters
        ----------
        item : Item
        seconds : float
            Expected duration; a worker whose walltime ends before is passed over.
        near : collection of str
            Workers that hold the unit's input.
        """
        able = [host for host in self.hosts if host.offers(item.unit) and self.now + seconds <= host.ends]
        able = [host for host in able if host.name != item.shun] or able  # elsewhere, where there is an elsewhere
        free = [host for host in able if host.address not in self._reserved and host.takes(item.unit, self.ahead)]
        if item.suspect:
            free = [host for host in free if host.threads == 1 or not host.placed]
            if able and not free:  # the least busy worker takes nothing else until it is idle
                self._reserved.add(min(able, key=_load).address)
        return min(free, key=lambda host: _rank(host, item.unit, near), default=None)


def stuck(hosts: Iterable[Host], now: float) -> list[Item]:
    """What waits behind a straggler although another worker is idle: at most one for each of those."""
    hosts = tuple(hosts)
    idle = [host for host in hosts if not host.placed]
    found: list[Item] = []
    for item in (item for host in hosts if len(host.placed) > 1 for item in host.placed):
        waits = item.begun is None and now - item.placed >= PATIENCE
        if waits and len(found) < len(idle) and any(host.offers(item.unit) for host in idle):
            found.append(item)
    return found


def lacking(hosts: Collection[Host], unit: WorkUnit, seconds: float) -> str:
    """Why no worker takes a unit that may take so many seconds, although none has anything to do."""
    if not hosts:
        return "No worker is left."
    if not any(host.offers(unit) for host in hosts):
        return f"No worker offers what {unit.kind} {unit.name} occupies: {dict(unit.resources)}."
    return f"No worker has the {seconds:.0f} s left that {unit.kind} {unit.name} may take."


def _rank(host: Host, unit: WorkUnit, near: Collection[str]) -> tuple[bool, bool, bool, bool, int, str]:
    """Best first: where it begins at once, has its input, finds at hand what it keeps, and drives nothing out."""
    strange = unit.keeps is not None and host.kept != unit.keeps
    return not host.starts(unit), host.address not in near, strange, strange and host.kept is not None, *_load(host)


def _load(host: Host) -> tuple[int, str]:
    return len(host.placed), host.address
