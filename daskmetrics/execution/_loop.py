"""The loop as a state machine: messages in, actions out, time passed in. It knows no Dask, no threads and no disk.

A unit waits until it is due, is placed on a worker, reports its start, and ends: with a value, with a fault, or with
its worker. The entries of a step are committed to the journal together; only then does the source receive its records.
A step costs time for what happened in it, not for all units and workers that there are.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from daskmetrics.core._events import AttemptFailed, InputRecovered, Record, UnitAsked
from daskmetrics.core.names import Key
from daskmetrics.execution._messages import (
    Action,
    Failed,
    Finished,
    Joined,
    Kill,
    Left,
    Message,
    Notice,
    OfferChanged,
    Release,
    Started,
    StopRequested,
    Submit,
    TaskId,
    Vanished,
)
from daskmetrics.execution._placement import Durations, Placement, QueuedUnit, WorkerState, movable, shortage
from daskmetrics.execution._recorder import Recorder
from daskmetrics.execution._retry import Fault, GiveUp, Retry, Settings, faults_so_far
from daskmetrics.execution._timers import AttemptTimers, Patience
from daskmetrics.execution._units import EventLog, Source, WorkUnit

LONGEST_SLEEP = 1.0  # seconds until the next step although nothing is due
BALANCE_EVERY = 0.25  # seconds between looks at all workers for units to move


class Loop:
    """Runs all units of a source.

    Parameters
    ----------
    source : Source
    journal : EventLog
        Records that it already holds answer the source, and faults of earlier attempts still count.
    settings : Settings
    on_record : callable
        Called with each new record, after it was journaled.

    Examples
    --------
    >>> from daskmetrics.execution._units import Sweep
    >>> class Memory(list):
    ...     entries = property(list)
    ...     append = lambda self, *entries, wait=True: self.extend(entries)
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
        self.source, self.journal, self.settings = source, journal, settings
        self.done = False
        self.now = 0.0
        self.workers: dict[str, WorkerState] = {}
        self.units: dict[Key, QueuedUnit] = {}
        self.inputs: OrderedDict[Key, QueuedUnit] = OrderedDict()
        self._recorder = Recorder(journal, source, on_record, settings.commit_every)
        self._faults = faults_so_far(journal.entries)
        self._durations = Durations(settings.margin)
        for record in self._recorder.known.values():
            self._durations.note(record.kind, record.seconds)
        self._failed_inputs: dict[Key, Record] = {}  # inputs that failed permanently
        self.unplaced: dict[Key, QueuedUnit] = {}  # those of `units` that have no worker
        self._tasks: dict[TaskId, QueuedUnit] = {}
        self._deadlines, self._patience = AttemptTimers(settings.grace), Patience(settings.patience)
        self._placement = Placement(self.workers, settings.ahead)
        self._capacity: int | None = None  # units that the workers can hold; None if they changed
        self._actions: list[Action] = []
        self._numbers = count(1)
        self._paused_until = self._balanced = -math.inf
        self._stop_at: float | None = None

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stop_at is not None

    @property
    def wake(self) -> float:
        """The latest time of the next step."""
        times = [self.now + LONGEST_SLEEP, self._deadlines.next, math.inf if self._stop_at is None else self._stop_at]
        times += [time for time in (self._paused_until, *self._due()) if time > self.now]
        return min(times)

    def step(self, now: float, messages: Iterable[Message] = ()) -> Sequence[Action]:
        """Handle what happened until ``now``, and return the actions to take.

        Raises
        ------
        ClusterLostError
            If no unit could run for `Settings.patience`, because no worker could take one.
        """
        self.now, self._actions = now, []
        for message in messages:
            self._receive(message)
        self._expire()
        self._flush()
        if self.stopping:
            self._wind_down()
        elif now >= self._paused_until:
            self._ask()
            self._place()
            self.done = not self.units
            busy = self.done or any(worker.placed for worker in self.workers.values())
            stuck = not busy and not any(time > now for time in self._due())
            self._actions += self._patience.watch(now, stuck, self._shortage)
        return self._actions

    # messages

    def _receive(self, message: Message) -> None:
        match message:
            case Joined():
                self._join(message)
            case OfferChanged(address, resources) if address in self.workers:
                for waiting in self.workers[address].change(resources):
                    self._unassign(waiting)
                self._placement.update(self.workers[address])
            case Left():
                self._leave(message)
            case StopRequested(grace):
                self._stop_at = self.now + grace
            case Started(task) | Finished(task) | Failed(task) | Vanished(task):
                # late results of an abandoned attempt are dropped
                if item := self._tasks.get(task):
                    self._update(item, message)
                elif isinstance(message, Started):
                    begun = self.now, next(self._numbers)
                    for worker in self.workers.values():
                        worker.note_stray(task, begun)

    def _update(self, item: QueuedUnit, message: Started | Finished | Failed | Vanished) -> None:
        match message:
            case Started():
                item.begun = self.now, next(self._numbers)
                self._deadlines.start(item)
            case Finished():
                self._finish(item, message)
            case Failed():
                self._fail(item, message)
            case Vanished():
                self._unassign(item)

    def _join(self, joined: Joined) -> None:
        ends = math.inf if joined.remaining is None else self.now + joined.remaining
        worker = WorkerState(joined.worker, joined.name, joined.threads, joined.resources, ends, joined.memory)
        self.workers[joined.worker], self._capacity = worker, None
        self._placement.update(worker)
        if joined.about:
            self._recorder.add_once(joined.about)

    def _leave(self, left: Left) -> None:
        worker = self.workers.pop(left.worker, None)
        if worker is None:
            return
        self._capacity = None
        running = worker.running()
        for item in worker.placed[:]:
            self._lose(worker, item, running, left)
        for item in self.inputs.values():
            if item.held and item.worker == worker.address:
                self._invalidate_input(item)

    def _lose(self, worker: WorkerState, item: QueuedUnit, running: Sequence[QueuedUnit | None], left: Left) -> None:
        """Handle a unit whose worker is lost; only a unit that was running can be blamed."""
        task, alone = item.task or "", len(running) == 1
        if task in left.expired or (item in running and item.deadline <= self.now):
            reason = f"It was stopped after its {item.unit.timeout:.1f} s."
            self._fault(item, Fault.TIMEOUT, reason, left.expired.get(task, ""))
        elif item not in running or left.expired or self.now >= worker.ends or self.stopping:
            self._unassign(item)
        elif left.memory:
            counts = alone and not worker.is_outgrown(item, self.settings.most_memory)
            self._fault(item, Fault.MEMORY, "The worker took more memory than it may.", blamed=counts)
        else:
            self._fault(item, Fault.DEATH, "The worker died while it was running.", blamed=alone)

    def _invalidate_input(self, held: QueuedUnit) -> None:
        """The result of an input is lost: units that wait for it are placed again; running units have it already."""
        self._unassign(held)
        for item in self.units.values():
            if item.unit.input and item.unit.input.key == held.unit.key and item.begun is None:
                self._unassign(item)

    def _expire(self) -> None:
        """Kill workers that miss a deadline: a stopped process cannot end itself."""
        for address, tasks in self._deadlines.late(self.now).items():
            self._actions.append(Kill(address))
            self._leave(Left(address, dict.fromkeys(tasks, "The worker did not answer.")))

    # the end of an attempt

    def _finish(self, item: QueuedUnit, finished: Finished) -> None:
        self._durations.note(item.unit.kind, finished.seconds)
        if item.shared:
            worker = self.workers[item.worker or ""]
            worker.placed.remove(item)
            self._placement.update(worker)
            item.begun, item.held = None, True
            self._reset_faults(item)
            return
        self._commit(item, "ok", value=finished.value, attempts=item.tried + 1, seconds=finished.seconds)

    def _fail(self, item: QueuedUnit, failed: Failed) -> None:
        if failed.fault is Fault.DISK:
            self._paused_until = self.now + self.settings.pause
            again = f"the run pauses and tries again every {self.settings.pause:g} s"
            self._actions.append(Notice(f"Worker {item.where} has no room on its disk; {again}. ({failed.reason})"))
            self._unassign(item)
        else:
            self._fault(item, failed.fault, failed.reason, failed.trace)

    def _fault(self, item: QueuedUnit, fault: Fault, reason: str, trace: str = "", blamed: bool = True) -> None:
        """Journal a failed attempt, and retry the unit or give it up; a unit that is not blamed is retried alone."""
        item.tried += 1
        item.faults[fault] += blamed
        item.suspect = item.suspect or not blamed
        unit = item.unit
        attempt = unit.key, unit.name, unit.kind, item.where, item.tried
        self._recorder.add(AttemptFailed(*attempt, fault.value, blamed, reason, trace))
        policy = self.settings.retry
        decision = policy.after(fault, item.faults[fault]) if blamed else Retry(policy.delay)
        if isinstance(decision, GiveUp):
            self._give_up(item, decision.status, reason)
        else:
            item.avoid, item.not_before = item.where, self.now + decision.delay
            self._unassign(item)

    def _reset_faults(self, item: QueuedUnit) -> None:
        """Forget the faults of an input that succeeded: it may be lost and run again any number of times."""
        if item.faults:
            item.faults.clear()
            self._faults.pop(item.unit.key, None)
            self._recorder.add(InputRecovered(item.unit.key, item.unit.name))

    def _give_up(self, item: QueuedUnit, status: str, reason: str) -> None:
        if not item.shared:
            self._commit(item, status, reason=reason, attempts=item.tried)
            return
        unit = item.unit
        self._failed_inputs[unit.key] = Record(unit.key, unit.name, unit.kind, status, None, reason, item.tried)
        self._unassign(item)
        del self.inputs[unit.key]

    def _fail_dependents(self) -> None:
        """Give up units that wait for an input that failed permanently; running units have it already."""
        for item in list(self.unplaced.values()) if self._failed_inputs else ():
            given = item.unit.input
            if given and given.key in self._failed_inputs:
                bad = self._failed_inputs[given.key]
                self._commit(item, bad.status, reason=f"Its {bad.kind} {bad.name}: {bad.reason}", attempts=bad.attempts)
        self._flush()

    def _commit(self, item: QueuedUnit, status: str, **result: Any) -> None:
        unit = item.unit
        self._recorder.add(Record(unit.key, unit.name, unit.kind, status, worker=item.where, **result))
        self._unassign(item)
        del self.units[unit.key], self.unplaced[unit.key]

    def _unassign(self, item: QueuedUnit) -> None:
        """Take a unit from its worker, so that it waits again."""
        if item.task is None:
            return
        worker = self.workers.get(item.worker or "")
        if worker and item in worker.placed:
            worker.remove(item)
            self._placement.update(worker)
        if not item.shared:
            self.unplaced[item.unit.key] = item
        del self._tasks[item.task]
        self._actions.append(Release(item.task))
        item.task = item.worker = item.begun = None
        item.held = False

    def _flush(self) -> None:
        if self._recorder.flush():
            self._evict_inputs()

    def _evict_inputs(self) -> None:
        """Free the inputs that no unit needs, except the latest few."""
        if len(self.inputs) <= self.settings.spare_inputs:
            return
        needed = {item.unit.input.key for item in self.units.values() if item.unit.input}
        idle = [key for key in self.inputs if key not in needed]
        for key in idle[: max(0, len(idle) - self.settings.spare_inputs)]:
            self._unassign(self.inputs.pop(key))

    # asking and placing

    def _ask(self) -> None:
        self._fail_dependents()
        while (room := self._slots() - len(self.units)) > 0 and (units := self.source.ask(room)):
            for unit in units:
                self._accept(unit)
            self._fail_dependents()
        self._recorder.flush()

    def _slots(self) -> int:
        if self.settings.slots is not None:
            return self.settings.slots
        if self._capacity is None:
            self._capacity = sum(worker.threads + self.settings.ahead for worker in self.workers.values())
        return max(1, self._capacity)

    def _accept(self, unit: WorkUnit) -> None:
        self._recorder.add_once(UnitAsked(unit.key, unit.name, dict(unit.note)))
        if record := self._recorder.known.get(unit.key):
            self.source.tell(record)
            return
        self.units[unit.key] = self.unplaced[unit.key] = self._queued(unit)
        if unit.input and unit.input.key not in (*self.inputs, *self._failed_inputs):
            self.inputs[unit.input.key] = self._queued(unit.input, shared=True)

    def _queued(self, unit: WorkUnit, shared: bool = False) -> QueuedUnit:
        faults, tried = self._faults.get(unit.key, (Counter(), 0))
        return QueuedUnit(unit, shared, Counter(faults), tried, next(self._numbers))

    def _waiting(self) -> Iterator[QueuedUnit]:
        """Units that have no worker, or their inputs where these must run first; due or not."""
        for item in sorted(self.unplaced.values(), key=lambda item: item.number):
            before = self.inputs.get(item.unit.input.key) if item.unit.input else None
            if before and not before.held:
                item = before
            if item.task is None:
                yield item

    def _due(self) -> Iterator[float]:
        return (item.not_before for item in self._waiting())

    def _place(self) -> None:
        self._place_due()
        if self.now >= self._balanced + BALANCE_EVERY:
            self._balanced = self.now
            for item in movable(self.workers.values(), self.now):
                self._unassign(item)
                self._place_due()

    def _place_due(self) -> None:
        due = {id(item): item for item in self._waiting() if item.not_before <= self.now}
        self._placement.begin(self.now)
        for item in sorted(due.values(), key=lambda item: not item.suspect):
            given = self.inputs[item.unit.input.key] if item.unit.input else None
            near = given.worker if given else None
            if worker := self._placement.choose(item, self._durations.expect(item.unit), near):
                self._submit(item, worker, given)

    def _submit(self, item: QueuedUnit, worker: WorkerState, given: QueuedUnit | None) -> None:
        item.task = f"{item.unit.kind}-{item.unit.key}-{next(self._numbers)}"
        item.worker, item.where, item.placed = worker.address, worker.name, self.now
        worker.placed.append(item)
        worker.at_hand = item.unit.keeps or worker.at_hand
        self._placement.update(worker)
        self.unplaced.pop(item.unit.key, None)
        self._tasks[item.task] = item
        if given:
            self.inputs.move_to_end(given.unit.key)
        self._actions.append(Submit(item.task, item.unit, worker.address, item.shared, given.task if given else None))

    # the end of the run

    def _wind_down(self) -> None:
        """Let running units finish, and nothing else; inputs are not recorded."""
        for worker in self.workers.values():
            for item in worker.placed[:]:
                if item.shared or item.begun is None:
                    self._unassign(item)
        over = self._stop_at is not None and self.now >= self._stop_at
        self.done = over or not any(worker.placed for worker in self.workers.values())

    def _shortage(self) -> str:
        item = next(self._waiting())
        return shortage(self.workers.values(), item, self._durations.expect(item.unit))
