"""The loop as a state machine: messages in, actions out, time passed in. It knows no Dask, no
threads and no disk, so that a simulator can play any history against it.

A unit waits until it is due, is placed on a worker, reports its start, and ends: with a value, with
a fault, or with its worker. The entries of a step are committed to the journal together; only then
does the source receive its records.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from daskmetrics.core.errors import ClusterLostError, DamageError, StorageError
from daskmetrics.core.keys import Key, content_key
from daskmetrics.domain.events import (
    AttemptFailed,
    Event,
    InputRecovered,
    UnitAsked,
    WorkerJoined,
    records,
    to_json,
)
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import result_of
from daskmetrics.domain.retry import Fault, GiveUp, Retry, faults_so_far
from daskmetrics.execution._units import Settings, Source, TaskId, WorkUnit
from daskmetrics.execution.placement import (
    Placement,
    QueuedUnit,
    WorkerState,
    movable,
    shortage,
)

if TYPE_CHECKING:
    from daskmetrics.execution.journal import Journal

LONGEST_SLEEP = 1.0  # seconds until the next step although nothing is due
BALANCE_EVERY = 0.25  # seconds between looks at all workers for units to move
DECIDED_WITHIN = 0.05  # seconds until decisions are in the journal, if no result takes them along
# while units take less than this, in seconds, as many of them wait on a worker, but no more than
# these: they are submitted together, and the worker is not idle while the driver waits for the disk
QUEUED = 0.05
MOST_AHEAD = 32
LATEST = 0.2  # weight of the latest unit in the mean of their seconds
RESUME = "No recorded result is lost: run the same command to resume."
MORE_TIME = "Raise cluster.walltime, or limit a unit with cluster.unit_minutes."
# a unit starts on a worker with a walltime only if so many times the longest of its kind still fit
MARGIN = 1.5
REPORT_IDLE_AFTER = 10.0  # seconds without a worker before the user gets a message

# messages: what happened


@dataclass(frozen=True)
class Joined:
    """A worker is ready."""

    worker: str  # its address, new after each restart
    name: str  # stays the same
    threads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    remaining: float = math.inf  # seconds until its walltime ends
    event: WorkerJoined | None = None  # versions and devices, for the journal
    memory: float = math.inf  # bytes that it may use
    trains: bool = False


@dataclass(frozen=True)
class Asked:
    """How many workers are connected and have not answered yet."""

    count: int


@dataclass(frozen=True)
class OfferChanged:
    """A worker offers other resources than before.

    It offers none if it will leave after its running units. While it trains it takes no unit.
    """

    worker: str
    resources: Mapping[str, float]
    trains: bool = False


@dataclass(frozen=True)
class Left:
    """A worker is gone."""

    worker: str
    # the attempt at whose deadline it ended, and the traceback
    expired: Mapping[TaskId, str] = field(default_factory=dict)
    memory: bool = False  # whether its nanny killed it because it used too much memory


@dataclass(frozen=True)
class Started:
    """An attempt has begun to run on its worker."""

    task: TaskId


@dataclass(frozen=True)
class Finished:
    """An attempt succeeded.

    A shared input has no value here: its result stays on the worker.
    """

    task: TaskId
    value: Any = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Failed:
    """An attempt failed, and its worker is alive."""

    task: TaskId
    fault: Fault
    reason: str
    trace: str = ""


@dataclass(frozen=True)
class Vanished:
    """An attempt or its result was lost; nothing is blamed."""

    task: TaskId


@dataclass(frozen=True)
class StopRequested:
    """The user requests a stop: running units may finish within ``grace`` seconds."""

    grace: float


Message: TypeAlias = (
    Asked | Joined | OfferChanged | Left | Started | Finished | Failed | Vanished | StopRequested
)

# actions: what to do


@dataclass(frozen=True)
class Submit:
    """Run a unit on a worker.

    Its first argument is the result of the attempt ``given``, if any.
    """

    task: TaskId
    unit: WorkUnit
    worker: str
    shared: bool = False
    given: TaskId | None = None


@dataclass(frozen=True)
class Release:
    """An attempt is no longer needed: stop it if possible, and free its result."""

    task: TaskId


@dataclass(frozen=True)
class Kill:
    """A worker does not answer: kill it."""

    worker: str


@dataclass(frozen=True)
class Notice:
    """A line for the user."""

    text: str


Action: TypeAlias = Submit | Release | Kill | Notice


class Loop:
    """Runs all units of a source.

    Parameters
    ----------
    source : Source
    journal : Journal
        Records that it already holds answer the source, and faults of earlier attempts still count.
        Of a journal the loop uses `entries` and `append` alone.
    settings : Settings
    on_record : callable
        Called with each new record, after it was journaled.
    wall_clock : callable
        Seconds since 1970, for records; it decides nothing.

    Examples
    --------
    >>> from daskmetrics.execution import Sweep
    >>> class Memory(list):
    ...     entries = property(list)
    ...     append = lambda self, *entries, wait=True: self.extend(entries)
    >>> loop = Loop(Sweep([WorkUnit("a", "a", "demo", print)]), Memory(), Settings(slots=1))
    >>> [submit] = loop.step(0.0, [Joined("tcp://w", "w")])
    >>> _ = loop.step(1.0, [Started(submit.task)])
    >>> _ = loop.step(2.0, [Finished(submit.task, value=3)])
    >>> loop.done, [record.value for record in records(loop.journal.entries)]
    (True, [3])
    """

    def __init__(
        self,
        source: Source,
        journal: Journal,
        settings: Settings,
        on_record: Callable[[Record], None] = lambda record: None,
        wall_clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.source = source
        self.journal = journal
        self.settings = settings
        self.on_record = on_record
        self._wall_clock = wall_clock
        self.done = False
        self.now = 0.0
        self.workers: dict[str, WorkerState] = {}
        self.asked = 0  # workers that have not answered yet
        self.units: dict[Key, QueuedUnit] = {}
        self.unplaced: dict[Key, QueuedUnit] = {}  # those of `units` that have no worker
        self.inputs: dict[Key, QueuedUnit] = {}
        self._failed_inputs: dict[Key, Record] = {}  # inputs that failed permanently
        self._recorded = {record.key: record for record in records(journal.entries)}
        # what waits for the next append: one append writes the entries of a step, and only then
        # does the source receive its records
        self._entries: list[Event] = []
        self._is_blocked = False  # the last append failed
        self._damage = ""  # of a file of the run
        self._not_durable = 0  # entries since the last append that waited for the disk
        self._once = {
            content_key(to_json(entry))
            for entry in journal.entries
            if isinstance(entry, UnitAsked | WorkerJoined)
        }
        self._faults = faults_so_far(journal.entries)
        self._longest: defaultdict[str, float] = defaultdict(float)  # seconds, by kind of unit
        for record in self._recorded.values():
            self._longest[record.kind] = max(self._longest[record.kind], record.seconds)
        self._tasks: dict[TaskId, QueuedUnit] = {}
        # when the driver stops waiting for each running attempt; one that ended stays until then
        self._deadlines: list[tuple[float, int, QueuedUnit]] = []
        self._actions: list[Action] = []
        self._numbers = count(1)
        self._usual = 2 * QUEUED  # seconds of a unit, the mean of the latest ones
        self._paused_until = self._balanced = -math.inf
        self._most_time = 0.0  # seconds that a worker had when it joined
        self.stopping = False  # a stop was requested
        self._stop_at = math.inf
        self._stuck_since = math.inf
        self._reported_stuck = False

    @property
    def wake(self) -> float:
        """The latest time of the next step."""
        undecided = self._entries and not self._is_blocked
        times = [self._stop_at, self.now + (DECIDED_WITHIN if undecided else LONGEST_SLEEP)]
        times += [deadline for deadline, *_ in self._deadlines[:1]]
        times += [time for time in (self._paused_until, *self._due()) if time > self.now]
        return min(times)

    def step(self, now: float, messages: Iterable[Message] = ()) -> Sequence[Action]:
        """Handle what happened until ``now``, and return the actions to take.

        Raises
        ------
        ClusterLostError
            If no unit could run for `Settings.patience`, because no worker could take one.
        DamageError
            If a unit found a file of the run damaged.
        """
        self.now = now
        self._actions = []
        for message in messages:
            self._receive(message)
        self._expire()
        self._flush()
        if self._damage:
            raise DamageError(f"{self._damage}. {RESUME}")
        if self.stopping:
            # let running units finish, and nothing else; inputs are not recorded
            for worker in self.workers.values():
                for item in worker.placed[:]:
                    if item.shared or item.begun is None:
                        self._unassign(item)
            over = self.now >= self._stop_at
            self.done = over or not self._is_busy()
        elif now >= self._paused_until:
            self._ask()
            self.done = not (self.units or self._entries)
            if not self._is_blocked:
                self._place_due()
                self._balance()
                self._watch_patience()
        return self._actions

    # messages

    def _receive(self, message: Message) -> None:
        match message:
            # one that is known was asked twice, and keeps its units
            case Joined(address, name, threads, resources, remaining) if (
                address not in self.workers
            ):
                self._most_time = max(self._most_time, remaining)
                self.workers[address] = WorkerState(
                    address,
                    name,
                    threads,
                    resources,
                    self.now + remaining,
                    message.memory,
                    message.trains,
                )
                if message.event:
                    self._add_once(message.event)
            case Asked(count):
                self.asked = count
            case OfferChanged(address, resources) if address in self.workers:
                worker = self.workers[address]
                worker.resources = resources  # running units stay
                worker.trains = message.trains
                for item in worker.placed[:]:
                    if item.begun is None and not worker.offers(item.unit):
                        self._unassign(item)
            case Left():
                self._leave(message)
            case StopRequested(grace):
                self.stopping = True
                self._stop_at = self.now + grace
            case Started(task) | Finished(task) | Failed(task) | Vanished(task):
                # late results of an abandoned attempt are dropped
                if task in self._tasks:
                    self._update(self._tasks[task], message)
                elif isinstance(message, Started):
                    begun = self.now, next(self._numbers)
                    for worker in self.workers.values():
                        if task in worker.removed:
                            worker.strays.append(begun)

    def _update(self, item: QueuedUnit, message: Message) -> None:
        match message:
            case Started():
                item.begun = self.now, next(self._numbers)
                if item.deadline < math.inf:
                    until = item.deadline + self.settings.grace
                    heappush(self._deadlines, (until, next(self._numbers), item))
            case Finished():
                self._finish(item, message)
            case Failed(fault=Fault.DISK):
                self._pause(item, message.reason)
            case Failed(fault=Fault.DAMAGE):
                self._damage = message.reason
                self._unassign(item)
            case Failed():
                self._fault(item, message.fault, message.reason, message.trace)
            case Vanished():
                self._unassign(item)

    def _leave(self, left: Left) -> None:
        """Handle the units of a lost worker.

        Only one that was running can be blamed.
        """
        worker = self.workers.pop(left.worker, None)
        if worker is None:
            return
        running = worker.running()
        for item in worker.placed[:]:
            task = item.task or ""
            alone = len(running) == 1
            if task in left.expired or (item in running and item.deadline <= self.now):
                limit = (item.unit.timeout or 0.0) - item.unit.delay
                reason = f"It was stopped after its {limit:.4g} s."
                self._fault(item, Fault.TIMEOUT, reason, left.expired.get(task, ""))
            elif item not in running or left.expired or self.now >= worker.ends or self.stopping:
                if item in running and self.now >= worker.ends:
                    self._learn_from_cut_off(item)
                self._unassign(item)
            elif left.memory:
                if alone and worker.memory < self.settings.most_memory:
                    # another worker has more
                    alone = False
                    item.outgrown = worker.memory
                reason = "The worker took more memory than it may."
                self._fault(item, Fault.MEMORY, reason, blamed=alone)
            else:
                reason = "The worker died while it was running."
                self._fault(item, Fault.DEATH, reason, blamed=alone)
        for shared in self.inputs.values():
            if shared.held and shared.worker == worker.address:
                self._unassign(shared)
                for item in self.units.values():
                    # running units have it already
                    if self._input_of(item) is shared and item.begun is None:
                        self._unassign(item)

    def _learn_from_cut_off(self, item: QueuedUnit) -> None:
        """A unit that the walltime of its job ended takes longer than it ran."""
        unit = item.unit
        began = item.begun or (self.now, 0)
        seconds = self.now - began[0]
        if seconds > self._longest[unit.kind]:
            self._longest[unit.kind] = seconds
            text = f"{unit.kind} {unit.name} was cut off after {seconds:.0f} s by the walltime"
            self._actions.append(Notice(f"{text} of its job. {MORE_TIME}"))

    def _expire(self) -> None:
        """Kill workers that miss a deadline: a stopped process cannot end itself."""
        late: defaultdict[str, dict[TaskId, str]] = defaultdict(dict)
        while self._deadlines and self._deadlines[0][0] <= self.now:
            until, _, item = heappop(self._deadlines)
            # a later attempt of the same unit has another deadline
            if item.task and item.worker and item.deadline + self.settings.grace == until:
                late[item.worker][item.task] = "The worker did not answer."
        for address, expired in late.items():
            self._actions.append(Kill(address))
            self._leave(Left(address, expired))

    # the end of an attempt

    def _finish(self, item: QueuedUnit, finished: Finished) -> None:
        kind = item.unit.kind
        self._longest[kind] = max(self._longest[kind], finished.seconds)
        if finished.seconds:
            self._usual += LATEST * (finished.seconds - self._usual)
        if item.shared:
            placed = self.workers[item.worker or ""].placed
            if item in placed:  # Dask computes a result again that a worker could not fetch
                placed.remove(item)
            item.begun = None
            item.held = True
            if item.faults:
                # it may be lost and run again any number of times
                item.faults.clear()
                self._faults.pop(item.unit.key, None)
                self._add(InputRecovered(item.unit.key, item.unit.name))
            return
        value = result_of(kind, finished.value)
        self._commit(item, "ok", value=value, attempts=item.tried + 1, seconds=finished.seconds)

    def _pause(self, item: QueuedUnit, reason: str) -> None:
        """Wait until a worker can write files of the run; nothing is blamed."""
        pause = self.settings.pause
        self._paused_until = self.now + pause
        text = f"Worker {item.where} cannot write its files: the run pauses for {pause:g} s."
        self._actions.append(Notice(f"{text} ({reason})"))
        self._unassign(item)

    def _fault(
        self, item: QueuedUnit, fault: Fault, reason: str, trace: str = "", blamed: bool = True
    ) -> None:
        """Journal a failed attempt, and retry the unit or give it up.

        A unit that is not blamed is retried alone.
        """
        item.tried += 1
        item.faults[fault] += blamed
        item.suspect = item.suspect or not blamed
        unit = item.unit
        policy = self.settings.retry
        attempt = unit.key, unit.name, unit.kind, item.where, item.tried
        self._add(AttemptFailed(*attempt, fault.value, blamed, reason, trace))
        decision: Retry | GiveUp = Retry(policy.delay)
        if blamed:
            decision = policy.after(fault, item.faults[fault])
        if isinstance(decision, Retry):
            item.avoid = item.where
            item.not_before = self.now + decision.delay
            self._unassign(item)
        elif item.shared:
            self._failed_inputs[unit.key] = Record(
                unit.key, unit.name, unit.kind, decision.status, None, reason, item.tried
            )
            self._unassign(item)
            del self.inputs[unit.key]
        else:
            self._commit(item, decision.status, reason=reason, attempts=item.tried)

    def _fail_dependents(self) -> None:
        """Give up units that wait for an input that failed permanently.

        Running units have it already.
        """
        if not self._failed_inputs:
            return
        for item in list(self.unplaced.values()):
            key = item.unit.input.key if item.unit.input else None
            if failed := self._failed_inputs.get(key or ""):
                reason = f"Its {failed.kind} {failed.name}: {failed.reason}"
                self._commit(item, failed.status, reason=reason, attempts=failed.attempts)
        self._flush()

    def _commit(self, item: QueuedUnit, status: str, **result: Any) -> None:
        unit = item.unit
        result |= {"worker": item.where, "at": round(self._wall_clock(), 2)}
        self._add(Record(unit.key, unit.name, unit.kind, status, **result))
        self._unassign(item)
        del self.units[unit.key], self.unplaced[unit.key]

    def _unassign(self, item: QueuedUnit) -> None:
        if item.task is None:
            return
        worker = self.workers.get(item.worker or "")
        if worker and item in worker.placed:
            worker.remove(item)
        if not item.shared:
            self.unplaced[item.unit.key] = item
        del self._tasks[item.task]
        self._actions.append(Release(item.task))
        item.task = item.worker = item.begun = None
        item.held = False

    def _add(self, entry: Event) -> None:
        self._entries.append(entry)
        if isinstance(entry, Record) and not self.settings.asks_once:
            self._recorded[entry.key] = entry

    def _add_once(self, entry: UnitAsked | WorkerJoined) -> None:
        identity = content_key(to_json(entry))
        if identity not in self._once:
            self._once.add(identity)
            self._add(entry)

    def _flush(self) -> None:
        """Commit what was added, and pass the records on.

        The run pauses while the journal cannot be written.

        An append waits for the disk after `Settings.commit_every` results; the earlier ones are
        committed with it.
        """
        if not self._entries:
            return
        # a lost decision is made again, and a lost worker answers again: these do not wait for the
        # disk
        not_durable = self._not_durable + sum(
            not isinstance(entry, UnitAsked | WorkerJoined) for entry in self._entries
        )
        wait = not_durable >= self.settings.commit_every
        try:
            self.journal.append(*self._entries, wait=wait)
        except StorageError as error:
            if not self._is_blocked:
                text = f"The run pauses until the journal can be written. {error}"
                self._actions.append(Notice(text))
            self._paused_until = self.now + self.settings.pause
            self._is_blocked = True
            self._stuck_since = math.inf
            return
        if self._is_blocked:
            self._actions.append(Notice("The journal can be written again: the run continues."))
        self._is_blocked = False
        self._not_durable = 0 if wait else not_durable
        entries = self._entries
        self._entries = []
        finished = [entry for entry in entries if isinstance(entry, Record)]
        for record in finished:
            self._tell(record)
            self.on_record(record)

    def _tell(self, record: Record) -> None:
        for key in self.source.tell(record) or ():
            if shared := self.inputs.pop(key, None):
                self._unassign(shared)

    # asking and placing

    def _ask(self) -> None:
        self._fail_dependents()
        slots = self.settings.slots
        if slots is None:
            ahead = self._ahead
            workers = self.workers.values()
            slots = max(1, sum(worker.threads + ahead for worker in workers))
            ample = all(len(worker.placed) > worker.threads + ahead // 2 for worker in workers)
            if self.units and ample and ahead > self.settings.ahead:
                return  # later, for several at once
        while (room := slots - len(self.units)) > 0 and (units := self.source.ask(room)):
            for unit in units:
                asked = UnitAsked(unit.key, unit.name, dict(unit.note))
                if self.settings.asks_once:
                    self._add(asked)
                else:
                    self._add_once(asked)
                if record := self._recorded.get(unit.key):
                    self._tell(record)
                    continue
                self.units[unit.key] = self.unplaced[unit.key] = self._queued(unit)
                if unit.input and unit.input.key not in (*self.inputs, *self._failed_inputs):
                    self.inputs[unit.input.key] = self._queued(unit.input, shared=True)
            self._fail_dependents()
            if self._is_blocked:
                return  # the source does not know its latest records

    @property
    def _ahead(self) -> int:
        if self.settings.slots is not None:
            return self.settings.ahead
        return max(self.settings.ahead, min(MOST_AHEAD, int(QUEUED / self._usual)))

    def _queued(self, unit: WorkUnit, shared: bool = False) -> QueuedUnit:
        faults, tried = self._faults.get(unit.key, (Counter(), 0))
        return QueuedUnit(unit, shared, Counter(faults), tried, next(self._numbers))

    def _waiting(self) -> Iterator[QueuedUnit]:
        """Units that have no worker, due or not, or their inputs where these must run before."""
        for item in sorted(self.unplaced.values(), key=lambda item: item.number):
            shared = self._input_of(item)
            if shared and not shared.held:
                item = shared
            if item.task is None:
                yield item

    def _input_of(self, item: QueuedUnit) -> QueuedUnit | None:
        if item.unit.input is None:
            return None
        return self.inputs.get(item.unit.input.key)

    def _due(self) -> Iterator[float]:
        return (item.not_before for item in self._waiting())

    def _place_due(self) -> None:
        due = {id(item): item for item in self._waiting() if item.not_before <= self.now}
        if not due:
            return
        placement = Placement(self.workers.values(), self._ahead, self.now)
        for item in sorted(due.values(), key=lambda item: not item.suspect):
            shared = self._input_of(item)
            holder = shared.worker if shared else None
            worker = placement.choose(item, self._expected_seconds(item.unit), holder)
            if worker:
                self._submit(item, worker, shared)

    def _balance(self) -> None:
        if self.now < self._balanced + BALANCE_EVERY:
            return
        self._balanced = self.now
        if moved := movable(self.workers.values(), self.settings.ahead, self.now):
            for item in moved:
                self._unassign(item)
            self._place_due()

    def _submit(self, item: QueuedUnit, worker: WorkerState, shared: QueuedUnit | None) -> None:
        item.task = f"{item.unit.kind}-{item.unit.key}-{next(self._numbers)}"
        item.worker = worker.address
        item.where = worker.name
        item.placed = self.now
        worker.placed.append(item)
        worker.at_hand = item.unit.keeps or worker.at_hand
        self.unplaced.pop(item.unit.key, None)
        self._tasks[item.task] = item
        given = shared.task if shared else None
        self._actions.append(Submit(item.task, item.unit, worker.address, item.shared, given))

    def _expected_seconds(self, unit: WorkUnit) -> float:
        """From the longest unit of its kind so far; 0 before there is one."""
        return min(MARGIN * self._longest[unit.kind], unit.timeout or math.inf)

    # the end of the run

    def _is_busy(self) -> bool:
        return any(worker.placed for worker in self.workers.values())

    def _watch_patience(self) -> None:
        """Report that no worker can take a unit; raise ClusterLostError once patience ends."""
        if self.done or self._is_busy() or any(time > self.now for time in self._due()):
            self._stuck_since = math.inf
            self._reported_stuck = False
            return
        self._stuck_since = min(self._stuck_since, self.now)
        waiting = list(self._waiting())
        seconds = min((self._expected_seconds(item.unit) for item in waiting), default=0.0)
        if seconds > self._most_time > 0:
            raise ClusterLostError(
                f"{waiting[0].unit.kind} {waiting[0].unit.name} may take {seconds:.0f} s, and no "
                f"worker had more than {self._most_time:.0f} s until the walltime of its job. "
                f"{MORE_TIME} {RESUME}"
            )
        trains = any(worker.trains for worker in self.workers.values())
        if trains and self._reported_stuck:
            self._stuck_since = self.now  # a training may take longer than a worker is awaited
        idle = self.now - self._stuck_since
        patience = self.settings.patience
        if idle < min(REPORT_IDLE_AFTER, patience) or (self._reported_stuck and idle < patience):
            return
        seconds = self._expected_seconds(waiting[0].unit)
        why = shortage(self.workers.values(), waiting[0], seconds, self.asked)
        if idle >= patience and not trains:
            raise ClusterLostError(f"{why} {RESUME}")
        self._reported_stuck = True
        until = "until the training ends" if trains else f"for {patience:.0f} s"
        self._actions.append(Notice(f"{why} Waiting {until}."))
