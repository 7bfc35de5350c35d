"""The second source of work: the search's picks as score units; and what a search has left to pay."""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection, Iterable, Sequence
from itertools import count, product, takewhile
from pathlib import Path

import numpy as np

from daskmetrics.bandit import Learner, Outcome, Pick, Problem
from daskmetrics.bandit.recommend import confidence
from daskmetrics.checkpoints.rolling import Downloads
from daskmetrics.core.keys import Key
from daskmetrics.core.progress import TimeLeft
from daskmetrics.core.serialization import build
from daskmetrics.domain import events
from daskmetrics.domain.events import (
    Event,
    PosteriorUpdated,
    UnitAsked,
    ended_search,
    is_finished,
    standing,
)
from daskmetrics.domain.names import Cell
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.results import Scored
from daskmetrics.execution import Record, WorkUnit
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment.fresh import FINALISTS
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.experiment.problem import budget, build_problem
from daskmetrics.experiment.score import score_unit

#: bytes of encodings that are kept for further layers of their checkpoints: those in the memory of
#: workers, and those in files, which also leave three quarters of the disk free
KEPT_IN_MEMORY = 2**30
KEPT_IN_FILES = 2**34
ALWAYS_KEPT = 4  # encodings, however large


class SearchSource:
    """Converts picks into work units, and their records into outcomes.

    A resumed search returns the decisions of the interrupted search again, in order, before it
    makes new ones. ``downloads`` fetch the checkpoints of its units; those that are ``recorded`` need
    none, and no encoding.
    """

    def __init__(
        self,
        experiment: Experiment,
        learner: Learner,
        key: Key,
        scratch: Path,
        downloads: Downloads,
        recorded: Collection[Key],
    ) -> None:
        self.experiment = experiment
        self.learner = learner
        self.key = key
        self.scratch = scratch
        self._downloads = downloads
        self._recorded = recorded
        self._decided = list(learner.open)  # before an interruption
        self._running: dict[Key, tuple[Pick, Key]] = {}  # with the key of the encoding
        self._done = {"read": 0.0, "score": 0.0}  # costs of new outcomes
        self._shares: dict[Key, float] = {}  # of each encoding that is read
        self._counted = dict(self._done)  # with these shares
        self._kept: dict[Key, int] = {}  # bytes of each encoding that is kept, the latest last
        free = shutil.disk_usage(scratch.parent).free
        self._room_in_files = min(KEPT_IN_FILES, free // 4)
        plan = experiment.plan
        tasks = plan.tasks_of["score"]
        self._before = sum(
            pick.cost
            for pick in learner.open
            if plan.score_key(pick.cell.arm, tasks[pick.cell.task]) in recorded
        )
        whole = learner.problem.exhaustive_cost
        ahead = max(0.0, min(learner.budget, whole) - self._before)
        scoring = ahead * float(learner.problem.score_cost.sum()) / whole
        self._pace = TimeLeft({"read": ahead - scoring, "score": scoring})

    @property
    def percent(self) -> float:
        """How far the search is, by the costs of its decisions and what is read of their texts."""
        return min(100.0, 100 * (self._before + sum(self._counted.values())) / self.learner.budget)

    @property
    def left(self) -> float:
        """Seconds that the search still takes, at most."""
        return self._pace.left

    def ask(self, n: int) -> Sequence[WorkUnit]:
        picks = self._decided[:n]
        self._decided = self._decided[n:]
        picks += self.learner.ask(n - len(picks))
        units = []
        needed = []
        for pick in picks:
            arm = pick.cell.arm
            task = self.experiment.by_task[pick.cell.task]
            note = {"search": self.key, "seed": self.learner.seed, "pick": pick.as_dict()}
            unit = score_unit(self.experiment, arm, task, self.scratch, "score", note)
            assert unit.input
            self._running[unit.key] = pick, unit.input.key
            units.append(unit)
            if unit.key not in self._recorded:
                needed.append(self.experiment.locations[arm.checkpoint].rolling)
        self._downloads.expect(needed)
        return units

    def tell(self, record: Record) -> Sequence[Key]:
        pick, used = self._running.pop(record.key)
        outcome = Outcome(None, 0.0)
        size = self._kept.get(used, 0)
        if isinstance(record.value, Scored):
            outcome = Outcome(record.value.score, record.value.stderr, record.value.outcomes)
            size = record.value.bytes
        self.learner.tell(pick.index, outcome)
        if record.key in self._recorded:
            return []
        scoring = self._scoring(pick)
        self._done["score"] += scoring
        self._done["read"] += pick.cost - scoring
        self._kept.pop(used, None)  # the latest comes last
        self._kept[used] = size
        self._count("score")
        return self._release()

    def read(self, encoding: Key, share: float) -> None:
        """Count the share of an encoding that is done."""
        self._shares[encoding] = share
        self._count("read")

    def _count(self, kind: str) -> None:
        """Count what is done since the latest look, whose time was that of one kind of work."""
        before, self._counted = self._counted, dict(self._done)
        for pick, encoding in self._running.values():
            reading = pick.cost - self._scoring(pick)
            self._counted["read"] += self._shares.get(encoding, 0.0) * reading
        for name in sorted(before, key=lambda name: name != kind):
            self._pace.did(name, self._counted[name] - before[name])

    def _scoring(self, pick: Pick) -> float:
        problem = self.learner.problem
        return float(problem.score_cost[problem.locate(pick.cell)])

    def _release(self) -> list[Key]:
        """Remove encodings that no running unit needs; return their keys.

        The latest, of which the memory and the disk hold enough, stay.
        """
        needed = {encoding for _, encoding in self._running.values()}
        room = {"memory": KEPT_IN_MEMORY, "files": self._room_in_files}
        released = []
        for number, (key, size) in enumerate(reversed(self._kept.items())):
            place = "files" if size > worker.MEMORY else "memory"
            room[place] -= size
            if room[place] < 0 and number >= ALWAYS_KEPT and key not in needed:
                released.append(key)
        for key in released:
            worker.remove(self.scratch, key)
            del self._kept[key]
        return released


def decided(entries: Iterable[Event], key: Key) -> list[Pick]:
    """The journal's decisions of an interrupted search, without a gap.

    They end with the first that is missing.
    """
    notes = (entry.note for entry in entries if isinstance(entry, UnitAsked))
    picks = {note["pick"]["index"]: note["pick"] for note in notes if note.get("search") == key}
    without_gap = takewhile(picks.__contains__, count())
    return [build(Pick, picks[index]) for index in without_gap]


def carried_on(
    plan: Plan, problem: Problem, decided: Sequence[Pick], records: Iterable[Record]
) -> list[Pick]:
    """The decisions of a search, then the cells of earlier ones.

    These are the cells that earlier searches of a growing run have paid for, in their order. The
    search counts them as decisions of its own whose outcomes are known: it pays for none again, and
    what they cost is part of its budget.
    """
    decided_cells = {pick.cell for pick in decided}
    recorded = (
        Cell.parse(record.name) for record in plan.records(records) if record.kind == "score"
    )
    earlier = [cell for cell in recorded if cell in problem and cell not in decided_cells]
    why = {"because": "earlier"}
    picks = list(decided)
    for i, cell in enumerate(earlier, len(decided)):
        picks.append(Pick(i, cell, "search", 0.0, why, known=i))
    return picks


def posterior(plan: Plan, learner: Learner) -> PosteriorUpdated:
    """The posterior of every arm at this moment, for the dashboard."""
    state = learner.state
    scored = state.posterior.without_pending()
    best = state.recommended
    index = {arm: i for i, arm in enumerate(plan.arms)}
    columns = [index[arm] for arm in learner.problem.arms]
    values = np.full((2, len(index)), np.nan, np.float32)
    values[:, columns] = scored.mean, scored.value_sd
    return PosteriorUpdated(
        values=values.tobytes(),
        leader=str(learner.problem.arms[best]),
        loss=confidence(scored, best, state.seed, state.usable).loss,
    )


def cells_left(experiment: Experiment, entries: Sequence[Event]) -> int:
    """Number of scores that the run will still pay for.

    They are what the budget of its search allows, at the mean cost of a score, and those of the
    finalists on fresh items, less what was paid for those that it has.
    """
    if not experiment.tasks or is_finished(entries, experiment.plan.key):
        return 0
    plan = experiment.plan
    arms = set(plan.arms)
    recorded = [
        record
        for record in plan.records(events.records(entries))
        if record.kind in plan.tasks_of and Cell.parse(record.name).arm in arms
    ]
    costs = {
        entry.key: entry.pick["cost"]
        for entry in standing(entries)
        if isinstance(entry, UnitAsked) and entry.pick
    }
    if ended_search(entries, plan.key):
        # `retry` took results back: the search makes its decisions again
        done = {record.key for record in recorded}
        keys = {plan.score_key(arm, task) for arm, task in product(arms, plan.tasks)}
        return len(costs.keys() & keys - done)
    problem = build_problem(experiment)
    limits = budget(experiment.config.search, problem)
    scored = [record for record in recorded if record.kind == "score"]
    paid: float = sum(costs.get(record.key, problem.mean_cost) for record in scored)
    left = (limits.within(problem.exhaustive_cost) - paid) / problem.mean_cost
    left = min(left, (limits.cells or math.inf) - len(scored))
    finalists = min(FINALISTS, len(plan.arms)) * len(experiment.finals)
    fresh = finalists - (len(recorded) - len(scored))
    return round(max(0.0, left) + max(0, fresh))
