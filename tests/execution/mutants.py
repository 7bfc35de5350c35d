"""One-line faults, planted in the loop, the placement and the policy: what a good simulator must
notice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import get_args

from daskmetrics.domain import retry as retry
from daskmetrics.execution import loop as loop
from daskmetrics.execution import placement as placement


@dataclass(frozen=True)
class Mutant:
    """A replacement in a module's source."""

    module: ModuleType
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.module.__name__.rpartition('.')[2]}: {self.old.strip()} -> {self.new.strip() or 'nothing'}"

    def planted(self) -> ModuleType:
        """The module with the fault."""
        source = source_of(self.module)
        count = source.count(self.old)
        assert count == 1, f"{self}: stands {count} times in the source"
        return module_of(self.module, source.replace(self.old, self.new))

    def build(self) -> tuple[type, type]:
        """The loop and the policy with the fault."""
        changed = self.planted()
        if self.module is loop:
            return changed.Loop, retry.RetryPolicy
        bound = module_of(loop, source_of(loop))
        if self.module is placement:
            vars(bound).update({name: vars(changed)[name] for name in USED_BY_LOOP})
            return bound.Loop, retry.RetryPolicy
        # the loop tells decisions by their classes
        vars(changed).update(Fault=retry.Fault, Retry=retry.Retry, GiveUp=retry.GiveUp)
        vars(bound).update(faults_so_far=changed.faults_so_far)
        return bound.Loop, changed.RetryPolicy


USED_BY_LOOP = ("WorkerState", "QueuedUnit", "Placement", "movable")
# classes that a loop and its world must share
MESSAGES = {cls.__name__: cls for cls in (*get_args(loop.Message), *get_args(loop.Action))}


def source_of(module: ModuleType) -> str:
    return Path(module.__file__ or "").read_text(encoding="utf-8")


def module_of(original: ModuleType, source: str) -> ModuleType:
    name = f"mutant_of_{original.__name__.rpartition('.')[2]}"
    module = sys.modules[name] = ModuleType(name)  # dataclasses look their module up
    exec(compile(source, name, "exec"), vars(module))
    if original is loop:
        vars(module).update(MESSAGES)
    return module


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for module, pairs in ((loop, LOOP), (placement, PLACEMENT), (retry, RETRY)):
        for old, new in pairs:
            yield Mutant(module, old, new)


LOOP = (
    # what is known
    ("if record := self._recorded.get(unit.key):", "if False:"),
    ("                    self._tell(record)\n                    continue\n", "                    continue\n"),
    ("self._faults = faults_so_far(journal.entries)", "self._faults = {}"),
    ("                self._faults.pop(item.unit.key, None)\n", ""),
    ("QueuedUnit(unit, shared, Counter(faults), tried,", "QueuedUnit(unit, shared, Counter(faults), 0,"),
    # committing
    ("        self._add(Record(", "        str(Record("),
    ("        self._unassign(item)\n        del self.units[", "        del self.units["),
    ("del self.units[unit.key], self.unplaced[unit.key]", "del self.units[unit.key]"),
    ("            self.unplaced[item.unit.key] = item\n", "            pass\n"),
    ("        self.unplaced.pop(item.unit.key, None)\n", ""),
    ("if item.deadline < math.inf:", "if False:"),
    ("attempts=item.tried + 1", "attempts=item.tried"),
    ("                self._unassign(shared)\n\n    # asking", "                pass\n\n    # asking"),
    ("        for key in self.source.tell(record) or ():\n", "        self.source.tell(record)\n        for key in ():\n"),
    # late results
    ("if task in self._tasks:", "if True:"),
    ("        del self._tasks[item.task]\n", ""),
    ("        self._actions.append(Release(item.task))\n", ""),
    # blame
    ("item.faults[fault] += blamed", "item.faults[fault] += 1"),
    ("alone = len(running) == 1", "alone = True"),
    ("alone = len(running) == 1", "alone = False"),
    ("item not in running or left.expired", "left.expired"),
    ("item not in running or left.expired or", "item not in running or"),
    ("left.expired or self.now >= worker.ends or", "left.expired or"),
    ("self.now >= worker.ends or self.stopping:", "self.now >= worker.ends:"),
    ("if task in left.expired or (item in running and item.deadline <= self.now):", "if left.expired:"),
    ("        elif left.memory:\n", "        elif False:\n"),
    ("item.suspect = item.suspect or not blamed", "item.suspect = False"),
    ("            if item.faults:\n", "            if False:\n"),
    ("item.faults.clear()", "pass"),
    ("            item.not_before = self.now + decision.delay\n", ""),
    ("            item.avoid = item.where\n            item.not_before", "            item.not_before"),
    # inputs
    ("if self._input_of(item) is shared and item.begun is None:", "if False:"),
    ("if shared.held and shared.worker == worker.address:", "if False:"),
    ("if self._input_of(item) is shared and item.begun is None:", "if self._input_of(item) is shared:"),
    ("            if shared and not shared.held:\n", "            if False:\n"),
    ("sorted(self.unplaced.values(),", "sorted(self.units.values(),"),
    ("            item.held = True\n", "            item.held = False\n"),
    ("        self._failed_inputs[unit.key] = Record(", "        _ = self._failed_inputs.get(unit.key) or Record("),
    ("            self._fail_dependents()\n", ""),
    ("for item in list(self.unplaced.values()):", "for item in list(self.units.values()):"),
    # deadlines, walltimes, pauses, stops
    ("            self._actions.append(Kill(address))\n", "            pass\n"),
    ("                    self.now + remaining,\n", "                    math.inf,\n"),
    ("self._paused_until = self.now + pause", "pass"),
    ("        elif now >= self._paused_until:\n", "        else:\n"),
    ("case Failed(fault=Fault.DISK):", "case Failed(fault=Fault.DISK) if False:"),
    ("self._stop_at = self.now + grace", "self._stop_at = self.now"),
    ("over = self.now >= self._stop_at", "over = False"),
    ("        if self.stopping:\n            # let", "        if False:\n            # let"),
    ("if item.shared or item.begun is None:", "if True:"),
    ("if item.shared or item.begun is None:", "if False:"),
    ("over or not self._is_busy()", "over"),
    # the window
    ("(room := slots - len(self.units)) > 0", "(room := 99)"),
    ("if item.not_before <= self.now}", "}"),
    ("            self.done = not (self.units or self._entries)\n", "            self.done = False\n"),
    ("            self.done = not (self.units or self._entries)\n", "            self.done = True\n"),
    ("MARGIN * self._longest[unit.kind]", "0.0"),
    # many short units
    ("all(len(worker.placed) > worker.threads + ahead // 2", "all(len(worker.placed) > 0"),
    ("                return  # later, for several at once\n", "                pass\n"),
    ("if self.units and ample and", "if ample and"),
    ("if self.settings.slots is not None:", "if True:"),
    ("self._usual += LATEST *", "self._usual += 0 *"),
    ("max(self.settings.ahead, min(MOST_AHEAD, int(QUEUED / self._usual)))", "MOST_AHEAD"),
    # group commit
    ("(DECIDED_WITHIN if undecided else LONGEST_SLEEP)", "LONGEST_SLEEP"),
    ("            self.journal.append(*self._entries,", "            _ = dict(entries=self._entries,"),
    ("= not_durable >=", "= not_durable >"),
    ("sum(\n            not isinstance(entry", "0 * sum(\n            not isinstance(entry"),
    ("        for record in finished:\n            self._tell(record)\n", "        for record in finished:\n"),
    # what workers offer, and what they still run
    ("                worker.resources = resources  # running units stay\n", ""),
    ("if item.begun is None and not worker.offers(item.unit):", "if not worker.offers(item.unit):"),
    ("                            worker.strays.append(begun)\n", "                            pass\n"),
    ("if task in worker.removed:", "if True:"),
    # deadlines of the driver
    ("while self._deadlines and self._deadlines[0][0] <= self.now:", "while False:"),
    ("if item.task and item.worker and item.deadline + self.settings.grace == until:", "if item.task and item.worker:"),
    ("until = item.deadline + self.settings.grace", "until = item.deadline + 3 * self.settings.grace"),
)  # fmt: skip

PLACEMENT = (
    ("if self.threads > 1 and any(item.suspect for item in self.placed):", "if False:"),
    ("return self.starts(unit)  #", "return True  #"),
    ("return len(self.placed) < self.threads + ahead and", "return"),
    ("in reports[-self.threads :]]", "in reports]"),
    ("in reports[-self.threads :]]", "in reports[: self.threads]]"),
    ("        reports.sort(", "        sorted("),
    ("and ends <= worker.ends]", "]"),
    ("            able = [worker for worker in able if worker.name != item.avoid] or able\n", ""),
    ("if worker.name != item.avoid] or able", "if worker.name != item.avoid]"),
    ("free = [worker for worker in free if worker.threads == 1 or not worker.placed]", "pass"),
    ("return surplus or wanted[: sum(worker.threads for worker in idle)]", "return surplus"),
    ("return surplus or wanted[: sum(worker.threads for worker in idle)]", "return surplus or wanted[: len(idle)]"),
    ("return surplus or wanted", "return wanted"),
    ("is_settled = item.begun is None and now", "is_settled = now"),
    ("self._reserved.add(min(able, key=_load).address)", "pass"),
    ("if worker.address not in self._reserved and", "if"),
    ("        if item.avoid:\n", "        if False:\n"),
    ("        if not item.avoid and not free:\n", "        if not item.avoid:\n"),
    ("strange, displaces, *_load", "False, displaces, *_load"),
    ("strange, displaces, *_load", "strange, False, *_load"),
    ("return self.begun[0] + self.unit.timeout", "return math.inf"),
)  # fmt: skip

RETRY = (
    ("Fault.DEATH: (self.deaths,", "Fault.DEATH: (3,"),
    ("Fault.DEATH: (self.deaths,", "Fault.DEATH: (self.deaths + 99,"),
    ('Fault.DEATH: (self.deaths, "quarantined")', 'Fault.DEATH: (self.deaths, "error")'),
    ("Fault.EXCEPTION: (self.exceptions,", "Fault.EXCEPTION: (2,"),
    ("Fault.MEMORY: (self.memory,", "Fault.MEMORY: (99,"),
    ("Fault.TIMEOUT: (self.timeouts,", "Fault.TIMEOUT: (1,"),
    ('Fault.UNDEFINED: (1, "nan")', 'Fault.UNDEFINED: (1, "error")'),
    ("if faults >= budget:", "if faults > 99:"),
    ("self.delay * 2.0 ** min(faults - 1, 16)", "self.delay"),
    ("faults_of[entry.key] = faults, tried + 1", "faults_of[entry.key] = faults, tried"),
    ("if isinstance(entry, UnitsRetried):", "if False:"),
    ("elif isinstance(entry, InputRecovered):", "elif False:"),
)  # fmt: skip
