"""The loop as a state machine: messages in, actions out, time passed in; it knows neither Dask nor threads nor disks.

A unit waits until it is due, is placed on a worker, reports that it has started, and ends: with a value, with a fault
of its own, or with its worker. The journal's line commits it, and only then does the source learn of it.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from daskmetrics.core._events import AttemptFailed, InputRecovered, Record, UnitAsked, WorkerJoined, to_json
from daskmetrics.core.errors import ClusterLostError
from daskmetrics.core.names import Key, content_key
from daskmetrics.execution._messages import (
    Action,
    Failed,
    Finished,
    Joined,
    Kill,
    Left,
    Message,
    Offers,
    Release,
    Say,
    Started,
    StopAsked,
    Submit,
    TaskId,
    Vanished,
)
from daskmetrics.execution._placement import Durations, Host, Item, Placement, lacking, stuck
from daskmetrics.execution._retry import Fault, GiveUp, Retry, Settings, faults_so_far
from daskmetrics.execution._units import EventLog, Source, WorkUnit

RESTLESS = 1.0  # seconds after which it wants to be woken although nothing is due
QUIET = 10.0  # seconds without a worker before the user is told


class Loop:
    """All work of a source, from its first unit to its end.

    Parameters
    ----------
    source : Source
    journal : EventLog
        What it holds already is told to the source, and faults of earlier attempts count on.
    settings : Settings
    on_record : callable
        Called with each new record, after it was journaled.

    Examples
    --------
    >>> from daskmetrics.execution._units import Sweep
    >>> class Memory(list):
    ...     entries = property(list)
    ...     append = lambda self, entry, wait=True: self.extend([entry])
    ...     records = lambda self: (entry for entry in self if isinstance(entry, Record))
    >>> loop = Loop(Sweep([WorkUnit("a", "a", "demo", print)]), Memory(), Settings(slots=1))
    >>> [submit] = loop.step(0.0, [Joined("tcp://w", "w")])
    >>> _ = loop.step(1.0, [Started(submit.task)])
    >>> _ = loop.step(2.0, [Finished(submit.task, value=3)])
    >>> loop.done, [record.value for record in loop.journal.records()]
    (True, [3])
    """

    def __init__(
        self,
        source: Source,
        journal: EventLog,
        settings: Settings,
        on_record: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self.source, self.journal, self.settings, self.on_record = source, journal, settings, on_record
        self.done = False
        self.now = 0.0
        self.hosts: dict[str, Host] = {}
        self.units: dict[Key, Item] = {}
        self.inputs: OrderedDict[Key, Item] = OrderedDict()
        self._known = {record.key: record for record in journal.records()}
        self._written = {_digest(entry) for entry in journal.entries if isinstance(entry, UnitAsked | WorkerJoined)}
        self._faults = faults_so_far(journal.entries)
        self._durations = Durations(settings.margin)
        for record in self._known.values():
            self._durations.note(record.kind, record.seconds)
        self._spoilt: dict[Key, Record] = {}  # inputs that were given up
        self._tasks: dict[TaskId, Item] = {}
        self._actions: list[Action] = []
        self._numbers = count(1)
        self._paused_until = -math.inf
        self._stop_at: float | None = None
        self._idle_since: float | None = None
        self._said_idle = False

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop_at is not None

    @property
    def wake(self) -> float:
        """When it wants its next step at the latest."""
        times = [self.now + RESTLESS, math.inf if self._stop_at is None else self._stop_at]
        times += [time for time in (self._paused_until, *self._due()) if time > self.now]
        times += [item.deadline + self.settings.grace for host in self.hosts.values() for item in host.placed]
        return min(times)

    def step(self, now: float, messages: Iterable[Message] = ()) -> Sequence[Action]:
        """Take in what happened until ``now``; what is to be done about it.

        Raises
        ------
        ClusterLostError
            If nothing could run for too long, for want of workers.
        """
        self.now, self._actions = now, []
        for message in messages:
            self._receive(message)
        self._expire()
        if self.stopping:
            self._wind_down()
        elif now >= self._paused_until:
            self._ask()
            self._place()
            self.done = not self.units
            self._watch_idleness()
        return self._actions

    # what happens

    def _receive(self, message: Message) -> None:
        match message:
            case Joined():
                self._join(message)
            case Offers(worker, resources) if worker in self.hosts:
                for waiting in self.hosts[worker].change(resources):
                    self._lift(waiting)
            case Left():
                self._leave(message)
            case StopAsked(grace):
                self._stop_at = self.now + grace
            case Started(task) | Finished(task) | Failed(task) | Vanished(task):
                # late results of an attempt that was given up are dropped
                if item := self._tasks.get(task):
                    self._hear_of(item, message)
                elif isinstance(message, Started):
                    begun = self.now, next(self._numbers)
                    for host in self.hosts.values():
                        host.hear_of_stray(task, begun)

    def _hear_of(self, item: Item, message: Started | Finished | Failed | Vanished) -> None:
        match message:
            case Started():
                item.begun = self.now, next(self._numbers)
            case Finished():
                self._finish(item, message)
            case Failed():
                self._fail(item, message)
            case Vanished():
                self._lift(item)

    def _join(self, joined: Joined) -> None:
        ends = math.inf if joined.remaining is None else self.now + joined.remaining
        self.hosts[joined.worker] = Host(joined.worker, joined.name, joined.threads, joined.resources, ends)
        if joined.about:
            self._write(joined.about)

    def _leave(self, left: Left) -> None:
        host = self.hosts.pop(left.worker, None)
        if host is None:
            return
        running = host.running()
        for item in host.placed[:]:
            self._end_with(host, item, running, left)
        for item in self.inputs.values():
            if item.held and item.worker == host.address:
                self._recall(item)

    def _end_with(self, host: Host, item: Item, running: Sequence[Item | None], left: Left) -> None:
        """Decide what the loss of its worker means for a unit; only one that was running can be to blame."""
        task, alone = item.task or "", len(running) == 1
        if task in left.expired or (item in running and item.deadline <= self.now):
            reason = f"It was stopped after its {item.unit.timeout:.1f} s."
            self._fault(item, Fault.TIMEOUT, reason, left.expired.get(task, ""))
        elif item not in running or left.expired or self.now >= host.ends or self.stopping:
            self._lift(item)
        elif left.memory:
            self._fault(item, Fault.MEMORY, "The worker took more memory than it may.", blamed=alone)
        else:
            self._fault(item, Fault.DEATH, "The worker died while it was running.", blamed=alone)

    def _recall(self, held: Item) -> None:
        """The result of an input is lost: what waits for it is placed anew; what runs has it already."""
        self._lift(held)
        for item in self.units.values():
            if item.unit.input and item.unit.input.key == held.unit.key and item.begun is None:
                self._lift(item)

    def _expire(self) -> None:
        """Give up workers that let a deadline pass: a stopped process cannot even end itself."""
        for host in list(self.hosts.values()):
            late = [item.task for item in host.placed if item.deadline + self.settings.grace <= self.now]
            if late:
                self._actions.append(Kill(host.address))
                self._leave(Left(host.address, {task: "The worker did not answer." for task in late if task}))

    # how an attempt ends

    def _finish(self, item: Item, finished: Finished) -> None:
        self._durations.note(item.unit.kind, finished.seconds)
        if item.shared:
            self.hosts[item.worker or ""].placed.remove(item)
            item.begun, item.held = None, True
            self._forgive(item)
            return
        self._commit(item, "ok", value=finished.value, attempts=item.tried + 1, seconds=finished.seconds)

    def _fail(self, item: Item, failed: Failed) -> None:
        if failed.fault is Fault.DISK:
            self._paused_until = self.now + self.settings.pause
            again = f"the run pauses and tries again every {self.settings.pause:g} s"
            self._actions.append(Say(f"Worker {item.where} has no room on its disk; {again}. ({failed.reason})"))
            self._lift(item)
        else:
            self._fault(item, failed.fault, failed.reason, failed.trace)

    def _fault(self, item: Item, fault: Fault, reason: str, trace: str = "", blamed: bool = True) -> None:
        """Journal a failed attempt and decide what follows; without blame it is tried again, alone."""
        item.tried += 1
        item.faults[fault] += blamed
        item.suspect = item.suspect or not blamed
        unit = item.unit
        self.journal.append(
            AttemptFailed(
                unit.key, unit.name, unit.kind, item.where, item.tried, fault.value, blamed, reason=reason, trace=trace
            )
        )
        policy = self.settings.retry
        decision = policy.after(fault, item.faults[fault]) if blamed else Retry(policy.delay)
        if isinstance(decision, GiveUp):
            self._give_up(item, decision.status, reason)
        else:
            item.shun, item.not_before = item.where, self.now + decision.delay
            self._lift(item)

    def _forgive(self, item: Item) -> None:
        """An input may be lost and run again, any number of times: what it did before a success is forgotten."""
        if item.faults:
            item.faults.clear()
            self._faults.pop(item.unit.key, None)
            self.journal.append(InputRecovered(item.unit.key, item.unit.name))

    def _give_up(self, item: Item, status: str, reason: str) -> None:
        if not item.shared:
            self._commit(item, status, reason=reason, attempts=item.tried)
            return
        unit = item.unit
        self._spoilt[unit.key] = Record(unit.key, unit.name, unit.kind, status, None, reason, item.tried)
        self._lift(item)
        del self.inputs[unit.key]

    def _spoil(self) -> None:
        """Give up the units that wait for an input that was given up; one that runs has it already."""
        for item in list(self.units.values()):
            given = item.unit.input
            if given and given.key in self._spoilt and item.task is None:
                bad = self._spoilt[given.key]
                self._commit(item, bad.status, reason=f"Its {bad.kind} {bad.name}: {bad.reason}", attempts=bad.attempts)

    def _commit(self, item: Item, status: str, **result: Any) -> None:
        unit = item.unit
        record = Record(unit.key, unit.name, unit.kind, status, worker=item.where, **result)
        self.journal.append(record)
        self._known[unit.key] = record
        del self.units[unit.key]
        self._lift(item)
        self.source.tell(record)
        self._spare()
        self.on_record(record)

    def _lift(self, item: Item) -> None:
        """Take an item from its worker; it waits again."""
        if item.task is None:
            return
        host = self.hosts.get(item.worker or "")
        if host and item in host.placed:
            host.remove(item)
        del self._tasks[item.task]
        self._actions.append(Release(item.task))
        item.task = item.worker = item.begun = None
        item.held = False

    def _spare(self) -> None:
        """Free inputs that no unit needs, but for the latest few."""
        needed = {item.unit.input.key for item in self.units.values() if item.unit.input}
        idle = [key for key in self.inputs if key not in needed]
        for key in idle[: max(0, len(idle) - self.settings.spare_inputs)]:
            self._lift(self.inputs.pop(key))

    # what is to be done

    def _ask(self) -> None:
        self._spoil()
        while (room := self._slots() - len(self.units)) > 0 and (units := self.source.ask(room)):
            for unit in units:
                self._take(unit)
            self._spoil()

    def _slots(self) -> int:
        if self.settings.slots is not None:
            return self.settings.slots
        return max(1, sum(host.threads + self.settings.ahead for host in self.hosts.values()))

    def _take(self, unit: WorkUnit) -> None:
        self._write(UnitAsked(unit.key, unit.name, dict(unit.note)))
        if unit.key in self._known:
            self.source.tell(self._known[unit.key])
            return
        self.units[unit.key] = self._item(unit)
        if unit.input and unit.input.key not in (*self.inputs, *self._spoilt):
            self.inputs[unit.input.key] = self._item(unit.input, shared=True)

    def _item(self, unit: WorkUnit, shared: bool = False) -> Item:
        faults, tried = self._faults.get(unit.key, (Counter(), 0))
        return Item(unit, shared, Counter(faults), tried)

    def _write(self, entry: UnitAsked | WorkerJoined) -> None:
        """Journal a decision or a worker, once; what is lost of it would come again."""
        if (key := _digest(entry)) not in self._written:
            self._written.add(key)
            self.journal.append(entry, wait=False)

    def _waiting(self) -> Iterator[Item]:
        """What could be placed but for its time: a unit, or first its input."""
        for item in list(self.units.values()):
            before = self.inputs.get(item.unit.input.key) if item.unit.input else None
            if item.task is None and before and not before.held:
                item = before
            if item.task is None:
                yield item

    def _due(self) -> Iterator[float]:
        return (item.not_before for item in self._waiting())

    def _place(self) -> None:
        self._place_due()
        for item in stuck(self.hosts.values(), self.now):
            self._lift(item)
            self._place_due()

    def _place_due(self) -> None:
        due = {id(item): item for item in self._waiting() if item.not_before <= self.now}
        placement = Placement(self.hosts.values(), self.now, self.settings.ahead)
        for item in sorted(due.values(), key=lambda item: not item.suspect):
            given = self.inputs[item.unit.input.key] if item.unit.input else None
            near = (given.worker,) if given and given.worker else ()
            if host := placement.choose(item, self._durations.expect(item.unit), near):
                self._submit(item, host, given)

    def _submit(self, item: Item, host: Host, given: Item | None) -> None:
        item.task = f"{item.unit.kind}-{item.unit.key}-{next(self._numbers)}"
        item.worker, item.where, item.placed = host.address, host.name, self.now
        host.placed.append(item)
        host.kept = item.unit.keeps or host.kept
        self._tasks[item.task] = item
        if given:
            self.inputs.move_to_end(given.unit.key)
        self._actions.append(Submit(item.task, item.unit, host.address, item.shared, given.task if given else None))

    # how it ends

    def _wind_down(self) -> None:
        """Let running units finish, and nothing else; inputs are nothing to record."""
        for host in self.hosts.values():
            for item in host.placed[:]:
                if item.shared or item.begun is None:
                    self._lift(item)
        over = self._stop_at is not None and self.now >= self._stop_at
        self.done = over or not any(host.placed for host in self.hosts.values())

    def _watch_idleness(self) -> None:
        """Nothing runs and nothing can: say so, and give up in the end."""
        if self.done or any(host.placed for host in self.hosts.values()) or any(t > self.now for t in self._due()):
            self._idle_since, self._said_idle = None, False
            return
        self._idle_since = self.now if self._idle_since is None else self._idle_since
        idle = self.now - self._idle_since
        if idle >= self.settings.patience:
            raise ClusterLostError(f"{self._want()} Nothing recorded is lost: run the same command again to resume.")
        if idle >= QUIET and not self._said_idle:
            self._said_idle = True
            self._actions.append(Say(f"{self._want()} Waiting for {self.settings.patience:.0f} s."))

    def _want(self) -> str:
        unit = next(self._waiting()).unit
        return lacking(self.hosts.values(), unit, self._durations.expect(unit))


def _digest(entry: UnitAsked | WorkerJoined) -> Key:
    return content_key(to_json(entry))
