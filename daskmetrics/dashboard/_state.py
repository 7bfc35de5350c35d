"""The state of a run and of trainings for their pages, updated message by message, as arrays and
curves ready to draw.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core import events as events
from daskmetrics.core.names import Arm, Cell, grid
from daskmetrics.core.results import NO_REASON, Measured, Scored, cause

LATEST = 60  # decisions that are listed
RECENT = 60.0  # seconds after which a rank that reports nothing no longer counts
MAX_POINTS = 1000  # of one rank; beyond it half of them stay
#: Kinds of work, and what is done when a unit of it is.
KINDS = {"train": "checkpoints trained", "measure": "checkpoints measured", "score": "scores"}
MEAN, SCORED = "mean score", "tasks scored"
POSTERIOR_MEAN, POSTERIOR_SD = "posterior mean", "posterior sd"


@dataclass(frozen=True)
class Decision:
    """A decision of the search; its score is NaN until it is known."""

    index: int
    name: str
    stage: str
    cost: float
    score: float = math.nan


@dataclass(frozen=True)
class FailureGroup:
    """Units that failed for the same reason, and the first of them."""

    kind: str
    status: str
    reason: str
    example: str
    count: int


class LiveState:
    """The state of a run, as arrays; A arms, T tasks.

    It receives the entries of the journal in order, and messages that are not in the journal:
    `ObjectiveSet`, `UnitsPlanned`, `SearchStarted`, `PosteriorUpdated` and `HistorySent`.
    ``version`` increases with every change that a page shows.

    Parameters
    ----------
    plan : StorePlan
        It has the suites, metrics and tasks that the run compares, with their units.
    """

    def __init__(self, plan: events.StorePlan) -> None:
        self.suites = plan.template.suites
        self.tasks = {name: row for row, name in enumerate(plan.template.tasks.names)}
        self.arms = grid(self.suites)
        self.index = {str(arm): i for i, arm in enumerate(self.arms)}
        # the arms of each layer of a checkpoint share its metrics
        self._of_layer: dict[str, list[int]] = {}
        for i, arm in enumerate(self.arms):
            self._of_layer.setdefault(f"{arm.checkpoint}/{arm.layer}", []).append(i)
        count = len(self.arms)
        # (A,); NaN: no value
        self.metrics = {
            name: np.full(count, np.nan, np.float32) for name in plan.template.metrics.names
        }
        self.scores = np.full((len(self.tasks), count), np.nan, np.float32)  # (T, A)
        self.errors = np.full_like(self.scores, np.nan)  # standard errors of the scores
        self.posterior = np.full((2, count), np.nan, np.float32)  # mean and standard deviation
        self.weights = np.ones(len(self.tasks))  # of the tasks in the objective (T,)
        self.name, self.phase, self.version = "", "measuring", 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.planned: dict[str, int] = {}
        self.open: dict[str, str] = {}  # names of the units that are asked for, by key
        self.paid: set[str] = set()  # arms that the search has paid for
        self.latest: dict[int, Decision] = {}
        self.curve: list[tuple[float, float]] = []  # cost spent and best mean score, where it rises
        self.best = self.shortfall = math.nan
        self.leader = self.recent = ""  # the leading arm, and the unit of the latest result
        self.confirmed = False  # whether the recommended arm was scored on every task
        self.spent, self.budget, self.exhaustive = 0.0, math.nan, math.nan
        self._units: dict[tuple[str, str], events.Record] = {}
        self._searched: str | None = None
        self._asked = 0
        self._decisions: dict[str, Decision] = {}  # without a result, by the key of their unit
        self._began = self._before = 0.0  # when the progress of the phase was first known

    def receive(self, messages: Iterable[events.LiveMessage], now: float) -> None:
        """Apply messages in order; ``now`` is in seconds of any steady clock."""
        for message in messages:
            self._apply(message, now)

    def _apply(self, message: events.LiveMessage, now: float) -> None:
        match message:
            case events.RunStarted():
                self.name, self.phase = message.name, "measuring"
                self.planned.setdefault("measure", message.checkpoints)
                self.planned["score"] = message.arms * len(message.tasks)
            case events.ObjectiveSet(weights=weights):
                self.weights = np.array([weights.get(task, 0.0) for task in self.tasks])
            case events.UnitsPlanned(units=units):
                self.planned.update(units)
            case events.HistorySent():
                self._began, self._before = now, self.progress[0]
            case events.UnitAsked():
                self.open[message.key] = message.name
                self._decide(message)
            case events.UnitsRetried():
                for unit, record in list(self._units.items()):
                    if record.key in message.keys:
                        self._forget(unit)
            case events.Record():
                self._record(message)
            case events.SearchStarted():
                self.phase, self.spent = "searching", message.spent
                self.budget, self.exhaustive = message.budget, message.exhaustive
                self._began, self._before = now, self.spent
            case events.PosteriorUpdated():
                self.posterior = np.frombuffer(message.values, np.float32).reshape(2, -1)
                self.leader, self.shortfall = message.leader, message.shortfall
            case events.SearchEnded():
                self.leader, self.phase = str(message.best_arm), "searched"
                self.confirmed = message.confirmed
            case events.RunFinished():
                self.phase = "finished"
            case _:
                return
        self.version += 1

    def names(self) -> dict[str, list[str]]:
        """All quantities that a heat map can show, by group."""
        groups = {}
        if self.tasks:
            searched = [MEAN, SCORED, POSTERIOR_MEAN, POSTERIOR_SD]
            groups = {"Search": searched, "Scores": list(self.tasks)}
        if self.metrics:
            groups["Metrics"] = list(self.metrics)
        return groups

    def values(self, name: str) -> NDArray[np.float32]:
        """A quantity for each arm; NaN where there is no value."""
        if name == SCORED:
            count = np.isfinite(self.scores).sum(axis=0)
            return np.where(count > 0, count, np.nan).astype(np.float32)
        if name == MEAN:
            return self._means(self.scores)
        arrays = self.metrics | dict(zip(self.tasks, self.scores, strict=True))
        arrays |= {POSTERIOR_MEAN: self.posterior[0], POSTERIOR_SD: self.posterior[1]}
        return arrays[name]

    def errors_of(self, name: str) -> NDArray[np.float32]:
        """The standard error of a quantity for each arm; NaN where none is known."""
        if name == POSTERIOR_MEAN:
            return np.asarray(self.posterior[1])
        if name in self.tasks:
            return np.asarray(self.errors[self.tasks[name]])
        return np.full(len(self.arms), np.nan, np.float32)

    def _means(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """The objective of arms, from their scores (T, ...); NaN for an arm that lacks one of its
        tasks.
        """
        counted = self.weights > 0
        weights = self.weights[counted] / self.weights[counted].sum()
        return np.asarray(np.tensordot(weights, scores[counted], axes=1), np.float32)

    @property
    def failures(self) -> list[FailureGroup]:
        """The reasons of failures, the most frequent first."""
        failed: dict[tuple[str, str, str], list[events.Record]] = {}
        for record in self._units.values():
            if not record.ok:
                group = record.kind, record.status, cause(record.reason or NO_REASON)
                failed.setdefault(group, []).append(record)
        groups = [
            FailureGroup(kind, status, alike[0].reason or NO_REASON, alike[0].name, len(alike))
            for (kind, status, _), alike in failed.items()
        ]
        return sorted(groups, key=lambda group: -group.count)

    def done(self, kind: str) -> int:
        """The number of recorded units of a kind, failed ones included."""
        return sum(count for (recorded, _), count in self.counts.items() if recorded == kind)

    @property
    def progress(self) -> tuple[float, float]:
        """How much of the current phase is done, and of how much; units, or cost of a search."""
        if self.phase == "searching":
            return self.spent, self.budget
        done = self.done("train") + self.done("measure")
        return done, sum(self.planned.get(kind, 0) for kind in ("train", "measure"))

    def left(self, now: float) -> float | None:
        """Remaining seconds of the current phase, by its progress so far; None if not known."""
        done, total = self.progress
        gained = done - self._before
        if self.phase not in ("measuring", "searching") or gained <= 0:
            return None
        return max(0.0, total - done) * (now - self._began) / gained

    def _decide(self, ask: events.UnitAsked) -> None:
        pick = ask.pick
        if pick is None:
            return
        if ask.note.get("search") != self._searched:
            # remove the decisions of an earlier search, whose numbers would be confused with new
            # ones
            self._searched, self._asked, self.spent = ask.note.get("search"), 0, 0.0
            self.latest.clear()
            self.paid.clear()
            self.curve = [(0.0, self.best)]
        arm = str(Arm(**pick["cell"]["arm"]))
        name = f"{arm}:{pick['cell']['task']}"
        decision = Decision(pick["index"] + 1, name, pick["stage"], pick["cost"])
        self._decisions[ask.key] = decision
        if decision.index <= self._asked:
            return  # a decision of an interrupted search, asked for again
        self._asked = decision.index
        self.latest[decision.index] = decision
        self.latest.pop(decision.index - LATEST, None)
        self.paid.add(arm)

    def _record(self, record: events.Record) -> None:
        unit = record.kind, record.name
        self.recent = record.name
        self.open.pop(record.key, None)
        self._forget(unit)
        self._units[unit] = replace(record, value=None)
        self.counts[record.kind, record.status] += 1
        if record.kind == "score":
            self._scored(record)
        elif isinstance(record.value, Measured):
            self._measured(record.name, record.value)

    def _forget(self, unit: tuple[str, str]) -> None:
        """Subtract the record of a unit that is reset or computed again."""
        if record := self._units.pop(unit, None):
            self.counts[record.kind, record.status] -= 1

    def _measured(self, checkpoint: str, measured: Measured) -> None:
        for layer, row in zip(measured.layers, measured.values, strict=True):
            arms = self._of_layer.get(f"{checkpoint}/{layer}", [])
            for name, value in zip(measured.names, row, strict=True):
                if name in self.metrics and value is not None:
                    self.metrics[name][arms] = value

    def _scored(self, record: events.Record) -> None:
        decision = self._decisions.pop(record.key, None)
        if decision:
            self.spent += decision.cost
        cell = Cell.parse(record.name)
        i, row = self.index.get(str(cell.arm)), self.tasks.get(cell.task)
        if i is None or row is None or not isinstance(record.value, Scored):
            return
        score = record.value.score
        self.scores[row, i], self.errors[row, i] = score, record.value.stderr
        if decision and decision.index in self.latest:
            self.latest[decision.index] = replace(decision, score=score)
        mean = float(self._means(self.scores[:, i]))
        if not mean <= self.best and not math.isnan(mean):
            self.best = mean
            self.curve.append((self.spent, mean))


class RankPoint(NamedTuple):
    """A rank's report, with the time at which it was received."""

    step: int
    loss: float
    tokens_per_second: float
    time: float


class TrainingCurves:
    """Loss and tokens per second by model and rank, oldest first; ``version`` increases with every
    event.
    """

    def __init__(self) -> None:
        self.version = 0
        self.points: dict[str, list[RankPoint]] = {}
        self.last: dict[str, RankPoint] = {}  # of those that report now

    @property
    def speed(self) -> float:
        """Tokens per second of all that report now."""
        return sum(p.tokens_per_second for p in self.last.values() if p.tokens_per_second > 0)

    def receive(self, event: Mapping[str, object], now: float) -> None:
        """Add an event with ``step``, ``loss``, ``tokens_per_second``, and ``model``, ``rank`` or
        both.

        Other events are ignored: they come from other code.
        """
        named = {key: event[key] for key in ("model", "rank") if event.get(key) is not None}
        name = str(named.get("model", ""))
        if "rank" in named:
            name = f"{name} rank {named['rank']}".strip()
        step = event.get("step")
        if not isinstance(step, int) or not name:
            return
        numbers = [event.get("loss"), event.get("tokens_per_second")]
        loss, speed = (x if isinstance(x, int | float) else math.nan for x in numbers)
        point = RankPoint(step, loss, speed, now)
        self.last = {
            other: latest for other, latest in self.last.items() if now - latest.time <= RECENT
        } | {name: point}
        points = self.points.setdefault(name, [])
        while points and points[-1].step > step:
            points.pop()  # it continues from an older state
        if not points or step > points[-1].step:
            points.append(point)
        if len(points) > MAX_POINTS:
            # evenly spaced steps, or the beginning of a long training would be lost
            steps = [kept.step for kept in points]
            even = np.linspace(steps[0], steps[-1], MAX_POINTS // 2)
            points[:] = [points[i] for i in np.unique(np.searchsorted(steps, even))]
        self.version += 1
