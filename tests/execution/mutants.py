"""One-line faults, planted in the loop, the placement and the policy: what a good simulator must notice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from daskmetrics.execution import _loop as loop
from daskmetrics.execution import _placement as placement
from daskmetrics.execution import _recorder as recorder
from daskmetrics.execution import _retry as retry
from daskmetrics.execution import _timers as timers


@dataclass(frozen=True)
class Mutant:
    """A replacement in a module's source."""

    module: ModuleType
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.module.__name__.rpartition('.')[2]}: {self.old.strip()} -> {self.new.strip() or 'nothing'}"

    def build(self) -> tuple[type, type]:
        """The loop and the policy with the fault."""
        source = _source(self.module)
        assert source.count(self.old) == 1, f"{self}: stands {source.count(self.old)} times in the source"
        changed = _module(self.module, source.replace(self.old, self.new))
        if self.module is loop:
            return changed.Loop, retry.RetryPolicy
        if self.module in USED_BY_LOOP:
            bound = _module(loop, _source(loop))
            vars(bound).update({name: vars(changed)[name] for name in USED_BY_LOOP[self.module]})
            return bound.Loop, retry.RetryPolicy
        # the loop tells decisions by their classes
        vars(changed).update(Fault=retry.Fault, Retry=retry.Retry, GiveUp=retry.GiveUp)
        bound = _module(loop, _source(loop))
        vars(bound).update(faults_so_far=changed.faults_so_far)
        return bound.Loop, changed.RetryPolicy


USED_BY_LOOP = {
    placement: ("Durations", "WorkerState", "QueuedUnit", "Placement", "movable"),
    recorder: ("Recorder",),
    timers: ("AttemptTimers", "Patience"),
}


def _source(module: ModuleType) -> str:
    return Path(module.__file__ or "").read_text(encoding="utf-8")


def _module(original: ModuleType, source: str) -> ModuleType:
    name = f"mutant_of_{original.__name__.rpartition('.')[2]}"
    module = sys.modules[name] = ModuleType(name)  # dataclasses look their module up
    exec(compile(source, name, "exec"), vars(module))
    return module


def mutants() -> Iterator[Mutant]:
    """All of them."""
    planted = {loop: LOOP, placement: PLACEMENT, recorder: RECORDER, retry: RETRY, timers: TIMERS}
    for module, pairs in planted.items():
        for old, new in pairs:
            yield Mutant(module, old, new)


LOOP = (
    # what is known
    ("if record := self._recorder.known.get(unit.key):", "if False:"),
    ("            self.source.tell(record)\n", ""),
    ("self._faults = faults_so_far(journal.entries)", "self._faults = {}"),
    ("            self._faults.pop(item.unit.key, None)\n", ""),
    ("QueuedUnit(unit, shared, Counter(faults), tried,", "QueuedUnit(unit, shared, Counter(faults), 0,"),
    # committing
    ("        self._recorder.add(Record(", "        _ = (Record("),
    ("        self._unassign(item)\n        del self.units[", "        del self.units["),
    ("del self.units[unit.key], self.unplaced[unit.key]", "del self.units[unit.key]"),
    ("            self.unplaced[item.unit.key] = item\n", "            pass\n"),
    ("        self.unplaced.pop(item.unit.key, None)\n", ""),
    ("        self._deadlines.start(item)\n", "        pass\n"),
    ("self._capacity = worker, None", "self._capacity = worker, self._capacity"),
    ("        self._capacity = None\n", ""),
    ("                self._placement.update(self.workers[address])\n", ""),
    (
        "            worker.remove(item)\n            self._placement.update(worker)\n",
        "            worker.remove(item)\n",
    ),
    (
        "            worker.placed.remove(item)\n            self._placement.update(worker)\n",
        "            worker.placed.remove(item)\n",
    ),
    ("worker, None\n        self._placement.update(worker)\n", "worker, None\n"),
    ("attempts=item.tried + 1", "attempts=item.tried"),
    ("            self._evict_inputs()\n", "            pass\n"),
    ("len(idle) - self.settings.spare_inputs", "0"),
    # late results
    ("if item := self._tasks.get(task):", "item = self._tasks[task]\n                if True:"),
    ("        del self._tasks[item.task]\n", ""),
    ("        self._actions.append(Release(item.task))\n", ""),
    # blame
    ("item.faults[fault] += blamed", "item.faults[fault] += 1"),
    ('item.task or "", len(running) == 1', 'item.task or "", True'),
    ('item.task or "", len(running) == 1', 'item.task or "", False'),
    ("item not in running or left.expired", "left.expired"),
    ("item not in running or left.expired or", "item not in running or"),
    ("left.expired or self.now >= worker.ends or", "left.expired or"),
    ("self.now >= worker.ends or self.stopping:", "self.now >= worker.ends:"),
    ("if task in left.expired or (item in running and item.deadline <= self.now):", "if left.expired:"),
    ("        elif left.memory:\n", "        elif False:\n"),
    ("item.suspect = item.suspect or not blamed", "item.suspect = False"),
    ("            self._reset_faults(item)\n", ""),
    ("item.faults.clear()", "pass"),
    ("item.avoid, item.not_before = item.where, self.now + decision.delay", "item.avoid = item.where"),
    ("item.avoid, item.not_before = item.where, self.now", "item.not_before = self.now"),
    # inputs
    ("                self._invalidate_input(item)\n", "                self._unassign(item)\n"),
    ("                self._invalidate_input(item)\n", "                pass\n"),
    ("item.unit.input.key == held.unit.key and item.begun is None", "item.unit.input.key == held.unit.key"),
    ("            if before and not before.held:\n", "            if False:\n"),
    ("sorted(self.unplaced.values(),", "sorted(self.units.values(),"),
    ("            item.begun, item.held = None, True\n", "            item.begun, item.held = None, False\n"),
    ("        self._failed_inputs[unit.key] = Record(", "        _ = self._failed_inputs.get(unit.key) or Record("),
    ("            self._fail_dependents()\n", ""),
    ("list(self.unplaced.values()) if self._failed_inputs", "list(self.units.values()) if self._failed_inputs"),
    # deadlines, walltimes, pauses, stops
    ("            self._actions.append(Kill(address))\n", "            pass\n"),
    ("math.inf if joined.remaining is None else self.now + joined.remaining", "math.inf"),
    ("self._paused_until = self.now + self.settings.pause", "pass"),
    ("        elif now >= self._paused_until:\n", "        else:\n"),
    ("if failed.fault is Fault.DISK:", "if False:"),
    ("self._stop_at = self.now + grace", "self._stop_at = self.now"),
    ("over = self._stop_at is not None and self.now >= self._stop_at", "over = False"),
    ("        if self.stopping:\n            self._wind_down()\n        elif", "        if"),
    ("if item.shared or item.begun is None:", "if True:"),
    ("if item.shared or item.begun is None:", "if False:"),
    ("not any(worker.placed for worker in self.workers.values())\n\n", "False\n\n"),
    # the window
    ("(room := self._slots() - len(self.units)) > 0", "(room := 99)"),
    ("if item.not_before <= self.now}", "}"),
    ("            self.done = not self.units\n", "            self.done = False\n"),
    ("            self.done = not self.units\n", "            self.done = True\n"),
)

PLACEMENT = (
    ("        self.resources = resources\n", ""),
    ("if item.begun is None and not self.offers(item.unit)]", "if not self.offers(item.unit)]"),
    ("if self.threads > 1 and any(item.suspect for item in self.placed):", "if False:"),
    ("return self.starts(unit)  #", "return True  #"),
    ("len(self.placed) < self.threads + ahead and", "True and"),
    ("key=lambda pair: pair[0])[-self.threads :]]", "key=lambda pair: pair[0])]"),
    ("key=lambda pair: pair[0])[-self.threads :]]", "key=lambda pair: pair[0])[: self.threads]]"),
    ("            self.strays.append(begun)\n", "            pass\n"),
    ("if task in self.removed:", "if True:"),
    ("self._margin * self._longest.get(unit.kind, 0.0)", "0.0"),
    ("and self.now + seconds <= w.ends", ""),
    ("able = [w for w in able if w.name != item.avoid] or able", "pass"),
    (
        "able = [w for w in able if w.name != item.avoid] or able",
        "able = [w for w in able if w.name != item.avoid]",
    ),
    ("free = [w for w in free if w.threads == 1 or not w.placed]", "pass"),
    ("        if waits and len(found)", "        if False and len(found)"),
    ("waits = item.begun is None and", "waits ="),
    ("self._reserved.add(min(able, key=_load).address)", "pass"),
    ('name not in ("", worker.at_hand)', "False"),
    ("return self.now + seconds <= worker.ends and", "return"),
    ("if worker.address in self._reserved or", "if"),
    ("        if item.avoid:\n", "        if False:\n"),
    ("set(), {}\n", "set(), self._hopeless\n"),
    ("strange, displaces, *_load", "False, displaces, *_load"),
    ("strange, displaces, *_load", "strange, False, *_load"),
    ("return self.begun[0] + self.unit.timeout", "return math.inf"),
)

RECORDER = (
    ("        self.journal.append(*entries,", "        _ = dict(entries=entries,"),
    ("= self._not_durable >=", "= self._not_durable >"),
    ("sum(not isinstance(entry", "0 * sum(not isinstance(entry"),
    ("            self.source.tell(record)\n", ""),
)

TIMERS = (
    ("while self.next <= now:", "while False:"),
    ("if item.task and item.worker and item.deadline + self._grace == until:", "if item.task and item.worker:"),
    ("item.deadline + self._grace, next", "item.deadline + 3 * self._grace, next"),
)

RETRY = (
    ("Fault.DEATH: (self.deaths,", "Fault.DEATH: (3,"),
    ("Fault.DEATH: (self.deaths,", "Fault.DEATH: (self.deaths + 99,"),
    ('Fault.DEATH: (self.deaths, "quarantined")', 'Fault.DEATH: (self.deaths, "error")'),
    ("Fault.EXCEPTION: (self.exceptions,", "Fault.EXCEPTION: (2,"),
    ("Fault.MEMORY: (self.memory,", "Fault.MEMORY: (99,"),
    ("Fault.TIMEOUT: (self.timeouts,", "Fault.TIMEOUT: (1,"),
    ('Fault.UNDEFINED: (1, "nan")', 'Fault.UNDEFINED: (1, "error")'),
    ("if faults >= budget:", "if faults > 99:"),
    ("self.delay * 2 ** min(faults - 1, 16)", "self.delay"),
    ("faults_of[entry.key] = faults, tried + 1", "faults_of[entry.key] = faults, tried"),
    ("if isinstance(entry, UnitsRetried):", "if False:"),
    ("elif isinstance(entry, InputRecovered):", "elif False:"),
)

#: Replacements that change nothing which could be seen, and why.
EQUIVALENT = {
    "self.known[entry.key] = entry": "a source of ours asks for a unit once in a life; at_hand for others' sources",
    "sorted(due.values(), key=lambda item: not item.suspect)": "a suspect placed later has reserved its worker already",
    "min(self.now + LONGEST_SLEEP, ...)": "how often it wakes for nothing",
}
