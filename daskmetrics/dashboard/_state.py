"""The state of a run and of trainings for their pages, updated message by message, as arrays and
curves ready to draw.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core import events as events
from daskmetrics.core.names import Arm, Cell, Suite, grid
from daskmetrics.core.results import Measured, Scored
from daskmetrics.core.serialization import build
from daskmetrics.core.status import cause

LATEST = 60  # decisions that are listed
MAX_CURVE = 2000  # points of the curve of costs
RECENT = 60.0  # seconds after which a rank that reports nothing no longer counts
# points of one rank; beyond it every other point is dropped and the stride doubles
MAX_POINTS = 1000
KINDS = ("train", "measure", "score")
MEAN, SCORED = "mean score", "tasks scored"
POSTERIOR_MEAN, POSTERIOR_SD = "posterior mean", "posterior sd"
REWARD = "units of the reward"
UNITS = {MEAN: "mean raw score", SCORED: "tasks", POSTERIOR_MEAN: REWARD, POSTERIOR_SD: REWARD}


@dataclass(frozen=True)
class Grid:
    """The suites, metrics and tasks that a run compares; metrics and tasks with their units."""

    suites: tuple[Suite, ...]
    metrics: Mapping[str, str]
    tasks: Mapping[str, str]

    @classmethod
    def of(cls, plan: events.StorePlanned) -> Grid:
        """From the plan of a store."""
        metrics, tasks = plan.template["metrics"], plan.template["tasks"]
        return cls(
            tuple(build(Suite, suite) for suite in plan.template["suites"]),
            dict(zip(metrics["names"], metrics["units"], strict=True)),
            dict(zip(tasks["names"], tasks["units"], strict=True)),
        )

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each arm, by its name."""
        return {str(arm): i for i, arm in enumerate(grid(self.suites))}

    @cached_property
    def of_layer(self) -> dict[str, list[int]]:
        """Indices of the arms of each layer of a checkpoint, which share its metrics."""
        indices: dict[str, list[int]] = {}
        for i, arm in enumerate(grid(self.suites)):
            indices.setdefault(f"{arm.checkpoint}/{arm.layer}", []).append(i)
        return indices

    def suite(self, model: str) -> tuple[Suite, slice]:
        """A model's suite and the slice of its arms: checkpoint by checkpoint, layer by layer."""
        start = 0
        for suite in self.suites:
            count = len(suite.revisions) * len(suite.rows)
            if suite.model == model:
                return suite, slice(start, start + count)
            start += count
        raise KeyError(model)


@dataclass
class FailureGroup:
    """Units that failed for the same reason."""

    kind: str
    status: str
    reason: str
    example: str
    count: int = 0


@dataclass(frozen=True)
class UnitRecord:
    """What must be subtracted when the record of a unit is replaced or reset."""

    key: str
    status: str
    failed: FailureGroup | None


@dataclass(frozen=True)
class Decision:
    """A decision of the search; its score is NaN until it is known."""

    index: int
    name: str
    stage: str
    cost: float
    score: float = math.nan


@dataclass
class PhaseTimer:
    """Estimates the remaining time of a phase from its progress since a first measurement."""

    since: float
    before: float

    def left(self, now: float, done: float, total: float) -> float | None:
        """Seconds until the phase is done; None without any progress."""
        if total <= done:
            return 0.0
        gained = done - self.before
        if gained <= 0:
            return None
        return (total - done) * (now - self.since) / gained


class LiveState:
    """The state of a run, as arrays; A arms, M metrics, T tasks.

    It receives the entries of the journal in order, and messages that are not in the journal:
    `ObjectiveSet`, `UnitsPlanned`, `SearchStarted`, `PosteriorUpdated` and `HistorySent`.
    ``version`` increases with every change that a page shows.
    """

    def __init__(self, grid: Grid) -> None:
        arms = len(grid.index)
        self.grid = grid
        self.name, self.phase, self.version = "", "measuring", 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.planned: dict[str, int] = {}
        # (M, A); NaN: no value
        self.metrics = np.full((len(grid.metrics), arms), np.nan, np.float32)
        self.scores = np.full((len(grid.tasks), arms), np.nan, np.float32)  # (T, A)
        self.posterior = np.full((2, arms), np.nan, np.float32)  # mean and standard deviation
        # first and last decision for an arm, numbered from 1, and the number of its decisions
        self.first, self.last, self.paid = (np.zeros(arms, int) for _ in range(3))
        self.latest: dict[int, Decision] = {}
        # cost spent, best mean score, possible regret
        self.curve: list[tuple[float, float, float]] = []
        self.best = self.shortfall = math.nan
        self.leader = ""
        self.confirmed = False  # whether the recommended arm was scored on every task
        self.spent, self.budget, self.exhaustive = 0.0, math.nan, math.nan
        self.weights = np.ones(len(grid.tasks))  # of the tasks in the objective (T,)
        self._metric_rows = {name: i for i, name in enumerate(grid.metrics)}
        self._task_rows = {name: i for i, name in enumerate(grid.tasks)}
        self._failures: dict[tuple[str, str, str], FailureGroup] = {}
        self._units: dict[tuple[str, str], UnitRecord] = {}
        self._searched: str | None = None
        self._asked = 0
        self._open: dict[str, Decision] = {}
        self._timer = PhaseTimer(0.0, 0.0)

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
                self.weights = np.array([weights.get(task, 0.0) for task in self.grid.tasks])
            case events.UnitsPlanned(units=units):
                self.planned.update(units)
            case events.HistorySent():
                self._timer = PhaseTimer(now, self.done("train") + self.done("measure"))
            case events.UnitAsked():
                self._ask(message)
            case events.UnitsRetried():
                for unit, record in list(self._units.items()):
                    if record.key in message.keys:
                        self._forget(unit)
            case events.Record():
                self._record(message)
            case events.SearchStarted():
                self.phase, self.spent = "searching", message.spent
                self.budget, self.exhaustive = message.budget, message.exhaustive
                self._timer = PhaseTimer(now, self.spent)
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
        if self.grid.tasks:
            groups = {"Search": list(UNITS), "Scores": list(self.grid.tasks)}
        if self.grid.metrics:
            groups["Metrics"] = list(self.grid.metrics)
        return groups

    def units(self, name: str) -> str:
        """The unit of a quantity."""
        return {**self.grid.metrics, **self.grid.tasks, **UNITS}.get(name, "")

    def values(self, name: str) -> NDArray[np.float32]:
        """A quantity for each arm; NaN where there is no value."""
        if name in (POSTERIOR_MEAN, POSTERIOR_SD):
            return np.asarray(self.posterior[int(name == POSTERIOR_SD)])
        if name == SCORED:
            count = np.isfinite(self.scores).sum(axis=0)
            return np.where(count > 0, count, np.nan).astype(np.float32)
        if name == MEAN:
            return self._means(self.scores)
        if name in self.grid.tasks:
            return np.asarray(self.scores[self._task_rows[name]])
        return np.asarray(self.metrics[self._metric_rows[name]])

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
        groups = [group for group in self._failures.values() if group.count]
        return sorted(groups, key=lambda group: -group.count)

    def done(self, kind: str) -> int:
        """The number of recorded units of a kind, failed ones included."""
        return sum(count for (recorded, _), count in self.counts.items() if recorded == kind)

    def left(self, now: float) -> float | None:
        """Remaining seconds of the current phase; None if they are not known."""
        if self.phase == "searching":
            return self._timer.left(now, self.spent, self.budget)
        if self.phase == "measuring":
            total = sum(self.planned.get(kind, 0) for kind in ("train", "measure"))
            return self._timer.left(now, self.done("train") + self.done("measure"), total)
        return None

    def _ask(self, ask: events.UnitAsked) -> None:
        pick = ask.pick
        if pick is None:
            return
        if ask.note.get("search") != self._searched:
            # remove the decisions of an earlier search, whose numbers would be confused with new
            # ones
            self._searched, self._asked, self.spent = ask.note.get("search"), 0, 0.0
            self.latest.clear()
            self.curve.clear()
            for numbers in (self.first, self.last, self.paid):
                numbers[:] = 0
        arm = str(Arm(**pick["cell"]["arm"]))
        name = f"{arm}:{pick['cell']['task']}"
        decision = Decision(pick["index"] + 1, name, pick["stage"], pick["cost"])
        self._open[ask.key] = decision
        if decision.index <= self._asked:
            return  # a decision of an interrupted search, asked for again
        self._asked = decision.index
        self.latest[decision.index] = decision
        if len(self.latest) > LATEST:
            del self.latest[next(iter(self.latest))]
        if (i := self.grid.index.get(arm)) is not None:
            self.first[i] = self.first[i] or decision.index
            self.last[i], self.paid[i] = decision.index, self.paid[i] + 1

    def _record(self, record: events.Record) -> None:
        unit = record.kind, record.name
        self._forget(unit)
        failed = None
        if not record.ok:
            reason = record.reason or "no reason was recorded"
            group = FailureGroup(record.kind, record.status, reason, record.name)
            failed = self._failures.setdefault((record.kind, record.status, cause(reason)), group)
            failed.count += 1
        self._units[unit] = UnitRecord(record.key, record.status, failed)
        self.counts[record.kind, record.status] += 1
        if record.kind == "score":
            self._scored(record)
        elif isinstance(record.value, Measured):
            self._measured(record.name, record.value)

    def _forget(self, unit: tuple[str, str]) -> None:
        """Subtract the record of a unit that is reset or computed again."""
        if (record := self._units.pop(unit, None)) is not None:
            self.counts[unit[0], record.status] -= 1
            if record.failed is not None:
                record.failed.count -= 1

    def _measured(self, checkpoint: str, measured: Measured) -> None:
        columns = [self._metric_rows.get(name) for name in measured.names]
        for layer, row in zip(measured.layers, measured.values, strict=True):
            arms = self.grid.of_layer.get(f"{checkpoint}/{layer}", [])
            for column, value in zip(columns, row, strict=True):
                if column is not None and value is not None:
                    self.metrics[column, arms] = value

    def _scored(self, record: events.Record) -> None:
        decision = self._open.pop(record.key, None)
        self.spent += decision.cost if decision else 0.0
        cell = Cell.parse(record.name)
        i, row = self.grid.index.get(str(cell.arm)), self._task_rows.get(cell.task)
        if i is None or row is None or not isinstance(record.value, Scored):
            return
        score = record.value.score
        self.scores[row, i] = score
        if decision and decision.index in self.latest:
            self.latest[decision.index] = replace(decision, score=score)
        self.best = float(np.fmax(self.best, self._means(self.scores[:, i])))
        self._extend_curve()

    def _extend_curve(self) -> None:
        """Add a point to the curve, if it differs visibly from the last one."""
        if self.curve and self.curve[-1][1] == self.best:
            gained = self.spent - self.curve[-1][0]
            if gained <= 0 or gained < np.nan_to_num(self.budget) / MAX_CURVE:
                return
        self.curve.append((self.spent, self.best, self.shortfall))
        if len(self.curve) > 2 * MAX_CURVE:  # received before the budget was known
            self.curve = self.curve[::2]


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
        self.last: dict[str, RankPoint] = {}  # of the latest attempts of trainings that report now
        self._models: dict[str, object] = {}
        self._stride: Counter[str] = Counter()
        self._received: Counter[str] = Counter()

    def receive(self, event: Mapping[str, object], now: float) -> None:
        """Add an event with ``step``, ``loss``, ``tokens_per_second``, and ``model``, ``rank`` or
        both.

        Other events are ignored: they come from other code.
        """
        model = event.get("model")
        name = str(model or "")
        if "rank" in event:
            name = f"{name} rank {event['rank']}".strip()
        step = event.get("step")
        if not isinstance(step, int) or not name:
            return
        loss, speed = (_number(event.get(column)) for column in ("loss", "tokens_per_second"))
        point = RankPoint(step, loss, speed, now)
        # perhaps with fewer ranks
        is_again = name in self.last and point.step <= self.last[name].step
        for other, latest in list(self.last.items()):
            if now - latest.time > RECENT or (is_again and self._models[other] == model):
                del self.last[other]
        self.last[name], self._models[name] = point, model
        points = self.points.setdefault(name, [])
        if points and point.step < points[-1].step:
            points[:] = [older for older in points if older.step < point.step]
        self._received[name] += 1
        if self._received[name] % (1 << self._stride[name]) == 0:
            points.append(point)
        if len(points) > MAX_POINTS:
            points[:] = points[::2]
            self._stride[name] += 1
        self.version += 1


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
