"""A seeded world for the loop: workers, their deaths, freezes and walltimes, late and lost
messages, driver crashes.

No process and no clock is involved, so that a thousand histories pass in a minute, and each can be
played again by its seed. While it plays, the world knows the truth, and checks what the loop does
against it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from daskmetrics.domain.events import AttemptFailed
from daskmetrics.domain.retry import Fault
from daskmetrics.execution import RetryPolicy, Settings, WorkUnit
from daskmetrics.execution.loop import (
    MOST_AHEAD,
    Failed,
    Finished,
    Joined,
    Kill,
    Left,
    Release,
    Started,
    StopRequested,
    Submit,
    Vanished,
)
from tests.execution import truths

SETTLE = 0.3
NEVER = math.inf
FAULTS = {
    "error": Fault.EXCEPTION,
    "flaky": Fault.EXCEPTION,
    "disk": Fault.DISK,
    "permanent": Fault.PERMANENT,
    "nan": Fault.UNDEFINED,
    "cuda": Fault.MEMORY,
}


@dataclass
class Run:
    """An attempt on a worker."""

    submit: Submit
    started: bool = False
    over: bool = False
    heard: bool = False  # its end reached the driver
    announced: float | None = None  # when its start did


@dataclass
class Worker:
    """A simulated worker process."""

    address: str
    name: str
    threads: int
    ends: float
    queue: list[Run] = field(default_factory=list)
    alive: bool = True
    frozen: bool = False
    greeted: bool = False
    killed: bool = False
    thaw: list[Callable[[], None]] = field(default_factory=list)

    def running(self) -> list[Run]:
        return [run for run in self.queue if run.started and not run.over]

    def seem_to_run(self, sent: Container[str]) -> list[Run]:
        """What a driver must take for running: an end that was not heard looks like none."""
        running = [run for run in self.queue if run.started and not run.heard]
        begun = [run for run in running if run.submit.task in sent]
        # two starts at once may be reported in any order
        return begun[-1:] if self.threads == 1 else begun


class World:
    """One history.

    Parameters
    ----------
    seed : int
    loop : type
        The loop under test; a mutant of it where the tests themselves are tested.
    policy : type
        Its retry policy.
    """

    def __init__(self, seed: int, loop: type, policy: type = RetryPolicy) -> None:
        self.random = random.Random(seed)
        self.make_loop = loop
        self.settings = Settings(slots=self.random.choice([None, 3, 6]), retry=policy())
        self.policy = RetryPolicy()
        # units are short in some worlds; then many may wait on a worker, and a report of a start
        # arrives before the next start, as it does where each one waits for the answer to its report
        self.ahead, self.pace, self.report = 1, 1.0, (0.001, 0.01)
        if seed % 5 == 4:
            self.ahead, self.pace, self.report = MOST_AHEAD, 1e-3, (0.0, 0.0)
        self.journal = truths.MemoryJournal()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.now = 0.0
        self.messages: list = []
        self.serial = count()
        self.walltime = self.random.choice([NEVER, NEVER, 60.0])
        self.freezing = self.random.random() < 0.3
        self.nature: dict[str, str] = {}
        self.forgiven: Counter[str] = Counter()  # of a unit's faults, so many came before a success
        # when an attempt failed that waits for the journal
        self.tried_at: dict[AttemptFailed, float] = {}
        self.calls: Counter[str] = Counter()  # of each unit, over all lives of the driver
        self.hurt: Counter[str] = Counter()  # kills from outside while it was running
        self.there: Counter[str] = Counter()  # deaths of a worker while it was running there
        self.alone: Counter[str] = Counter()  # ... alone
        self.units = self._units()
        # the source asks for no more while so many units have no record, like a search
        self.window = self.random.choice([2, 4, NEVER, NEVER])
        self.threads = [self.random.choice([1, 1, 2]) for _ in range(self.random.randint(1, 4))]
        self.stops = self.random.random() < 0.3
        self.crashes = self.random.randint(0, 3)

    # what there is to do

    def _units(self) -> list[WorkUnit]:
        weights = [8, 3, 1, 1, 1, 1, 1, 1, 2, 2]
        most = self.random.randint(0, 3)
        inputs = [self._unit(f"input{i}", "encode", weights) for i in range(most)]
        units: list[WorkUnit] = []
        for i in range(self.random.randint(6, 18)):
            given = self.random.choice([None, None, *inputs, *inputs])
            kind = "score" if given else "measure"
            units.append(self._unit(f"unit{i}", kind, weights, input=given))
        return units

    def _unit(self, key: str, kind: str, weights: list[int], **options) -> WorkUnit:
        (self.nature[key],) = self.random.choices(list(truths.NATURES), weights)
        if kind == "encode" and self.nature[key] == "nan":
            self.nature[key] = "good"
        resources = {"CPU": 1} if kind == "score" else {"GPU": 1}
        if self.random.random() < 0.3:
            resources = {}
        timeout = 20.0 if self.freezing or self.nature[key] == "hang" else None
        return WorkUnit(key, key, kind, print, resources=resources, timeout=timeout, **options)

    # time

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.order), what))

    def send(self, message, low: float = 0.001, high: float = 0.1) -> None:
        self.after(self.random.uniform(low, high), lambda: self.messages.append(message))

    def play(self) -> None:
        """All lives of the driver, to the end of the work."""
        for life in count():
            try:
                self._live(crash=life < self.crashes, stop=self.stops and life == self.crashes)
            except truths.Crash:
                continue
            if not self.loop.stopping:
                break
        truths.end(self)

    def _live(self, crash: bool, stop: bool) -> None:
        self.events, self.messages = [], []
        self.workers: dict[str, Worker] = {}
        self.sent: dict[str, Run] = {}
        self.data: set[str] = set()  # inputs whose result is alive
        self.faulted: dict[str, tuple[float, str]] = {}  # when and where an attempt failed last
        self.longest: dict[str, float] = defaultdict(float)
        self.paused_until = -NEVER
        self.journal.crash = None
        if crash:
            at = len(self.journal.entries) + self.random.randint(1, 40)
            self.journal.crash = at, self.random.random() < 0.5
        for number, threads in enumerate(self.threads):
            self.after(self.random.uniform(0, 2), partial(self._join, f"w{number}", threads))
        if stop:
            self.after(self.random.uniform(5, 60), self._ask_to_stop)
        self.after(self.random.uniform(1, 20), self._disturb)
        sweep = truths.CheckedSweep(self.units, self.journal, self.window)
        self.loop = self.make_loop(sweep, self.journal, self.settings)
        for _ in range(20_000):
            written, messages = len(self.journal.entries), self._delivered()
            actions = self.loop.step(self.now, messages)
            new = self.journal.entries[written:]
            truths.step(self, messages, [e for e in new if isinstance(e, AttemptFailed)])
            self._perform(actions)
            truths.workers(self)
            if self.loop.done:
                break
            wake = self.loop.wake
            assert wake > self.now, "it would not sleep"
            while self.events and self.events[0][0] <= wake and not self.messages:
                self.now, _, happens = heapq.heappop(self.events)
                happens()
            if not self.messages:
                self.now = max(self.now, wake)
        else:
            raise AssertionError("it does not end")

    def _delivered(self) -> list:
        messages, self.messages = self.messages, []
        for message in messages:
            match message:
                case Failed(task, Fault.DISK) if task in self.sent:
                    self.paused_until = self.now + self.settings.pause
                case Started(task) if task in self.sent:
                    self.sent[task].announced = self.now
                case Joined(address):
                    self.workers[address].greeted = True
        return messages

    def _ask_to_stop(self) -> None:
        self.messages.append(StopRequested(math.inf if self.random.random() < 0.5 else 15.0))

    # workers

    def _join(self, name: str, threads: int) -> None:
        address = f"tcp://{name}:{next(self.serial)}"
        worker = self.workers[address] = Worker(address, name, threads, self.now + self.walltime)
        self.send(Joined(address, name, threads, {"GPU": 1, "CPU": 1}, self.walltime))
        if self.walltime < NEVER:
            self.after(self.walltime, lambda: self._die(worker, blameless=True))

    def _die(
        self,
        worker: Worker,
        memory: bool = False,
        expired: dict[str, str] | None = None,
        blameless: bool = False,
    ) -> None:
        if not worker.alive:
            return
        worker.alive = False
        if not blameless and not expired:
            there = [run.submit.unit.key for run in worker.seem_to_run(self.sent)]
            self.there.update(there)
            self.alone.update(there if len(there) == 1 else [])
        self.data -= {run.submit.task for run in worker.queue}
        left = Left(worker.address, expired or {}, memory)
        self.after(SETTLE, lambda: self.messages.append(left))
        self.after(self.random.uniform(1, 4), lambda: self._join(worker.name, worker.threads))

    def _disturb(self) -> None:
        """Kill or freeze a worker from outside; a unit is hit by it less often than convicts it."""
        self.after(self.random.uniform(1, 25), self._disturb)
        alive = [worker for worker in self.workers.values() if worker.alive and not worker.frozen]
        if not alive:
            return
        worker = self.random.choice(alive)
        hit = [run.submit.unit.key for run in worker.queue if run.started and not run.heard]
        if self.freezing and self.random.random() < 0.4:
            if all(self.hurt[f"frozen {key}"] == 0 for key in hit):
                self.hurt.update(f"frozen {key}" for key in hit)
                self._freeze(worker)
        elif all(self.hurt[key] < self.policy.deaths - 1 for key in hit):
            self.hurt.update(hit)
            self._die(worker)

    def _freeze(self, worker: Worker) -> None:
        worker.frozen = True
        self.after(self.random.choice([5.0, 40.0, 200.0]), lambda: self._thaw(worker))
        # the scheduler's worker-ttl
        self.after(300.0, lambda: self._die(worker) if worker.frozen else None)

    def _thaw(self, worker: Worker) -> None:
        worker.frozen = False
        for happens in worker.thaw:
            happens()
        worker.thaw.clear()
        self._pump(worker)

    def _on(self, worker: Worker, seconds: float, what: Callable[[], None]) -> None:
        """Something happens in a worker, once it is not frozen and if it still lives."""

        def happens() -> None:
            if worker.frozen:
                worker.thaw.append(happens)
            elif worker.alive:
                what()

        self.after(seconds, happens)

    # attempts

    def _perform(self, actions) -> None:
        for action in actions:
            match action:
                case Submit():
                    self._submit(action)
                case Release(task):
                    self._release(task)
                case Kill(address):
                    worker = self.workers[address]
                    worker.killed = True
                    death = partial(self._die, worker, blameless=True)
                    self.after(self.random.uniform(0, 5), death)
        window = self.settings.slots or sum(t + self.ahead for t in self.threads)
        assert len(self.loop.units) <= max(1, window)

    def _submit(self, submit: Submit) -> None:
        truths.submission(self, submit)
        run = self.sent[submit.task] = Run(submit)
        worker = self.workers[submit.worker]

        def arrives() -> None:
            if submit.task in self.sent:
                worker.queue.append(run)
                self._pump(worker)

        self._on(worker, self.random.uniform(0.001, 0.02), arrives)

    def _release(self, task: str) -> None:
        run = self.sent.pop(task)
        self.data.discard(task)
        worker = self.workers[run.submit.worker]
        lost = worker.killed or not worker.alive or run.submit.shared
        assert lost or run.over or run.announced is None, "a running unit was thrown away"
        if not run.started:  # one that runs cannot be stopped
            run.over = True

    def _pump(self, worker: Worker) -> None:
        if worker.frozen or not worker.alive:
            return
        for run in worker.queue[:]:
            if run.started or run.over or len(worker.running()) >= worker.threads:
                continue
            used = Counter[str]()
            for other in worker.running():
                used.update(other.submit.unit.resources)
            if any(used[name] + need > 1 for name, need in run.submit.unit.resources.items()):
                continue
            if run.submit.given and run.submit.given not in self.data:
                continue
            self._start(worker, run)

    def _start(self, worker: Worker, run: Run) -> None:
        is_wanted = run.submit.task in self.sent
        assert not (is_wanted and self.loop.stopping), "begun although it was asked to stop"
        worker.queue.remove(run)
        worker.queue.append(run)  # the order of their starts
        run.started = True
        task, unit = run.submit.task, run.submit.unit
        nature = self.nature[unit.key]
        self.calls[unit.key] += 1
        self.send(Started(task), *self.report)
        shortest, longest = (1, 10) if nature in ("good", "flaky", "disk") else (0, 3)
        seconds = self.random.uniform(shortest, longest) * self.pace
        if nature == "poison":
            self._on(worker, seconds * self.random.choice([0, 1]), lambda: self._die(worker))
        elif nature == "hog":
            self._on(worker, seconds, lambda: self._die(worker, memory=True))
        elif nature == "hang":
            self._on(worker, 20.0, lambda: self._die(worker, expired={task: "traceback"}))
        else:
            self._on(worker, seconds, lambda: self._over(worker, run, seconds))

    def _over(self, worker: Worker, run: Run, seconds: float) -> None:
        run.over = True
        task, unit = run.submit.task, run.submit.unit
        nature = self.nature[unit.key]
        call = self.calls[unit.key]
        bad = nature in FAULTS and not (nature in ("flaky", "disk") and call > 2)
        run.heard = True
        if bad:
            self.send(Failed(task, FAULTS[nature], nature))
        elif self.random.random() < 0.02:
            self.send(Vanished(task))
        else:
            if run.submit.shared and task in self.sent:
                self.data.add(task)
            run.heard = False
            self._on(worker, 0.05, lambda: self._finished(run, seconds))
        self._pump(worker)

    def _finished(self, run: Run, seconds: float) -> None:
        run.heard = True
        task, unit = run.submit.task, run.submit.unit
        self.messages.append(Finished(task, None if unit.kind == "encode" else unit.key, seconds))
        if task in self.sent:
            self.faulted.pop(unit.key, None)
            attempts = truths.attempts_of(self)
            self.forgiven[unit.key] = sum(entry.key == unit.key for entry in attempts)
            self.longest[unit.kind] = max(self.longest[unit.kind], seconds)
