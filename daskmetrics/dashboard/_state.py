"""What the pages show: the journal's entries as they are told, in arrays that a page draws without a search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core._events import (
    HistorySent,
    LiveMessage,
    PosteriorUpdated,
    Record,
    RunFinished,
    RunStarted,
    SearchEnded,
    SearchStarted,
    StorePlanned,
    UnitAsked,
    UnitsPlanned,
    UnitsRetried,
)
from daskmetrics.core.names import Arm, Suite, grid
from daskmetrics.core.status import cause

Floats = NDArray[np.float32]

LATEST = 60  #: decisions that are listed
CURVE = 2000  #: points of the curve of costs, at most
KINDS = ("train", "measure", "score")
MEAN, SCORED, BELIEF, DOUBT = "mean score", "tasks scored", "posterior mean", "posterior sd"


@dataclass(frozen=True)
class Grid:
    """What a run compares, as the journal's plan has it."""

    suites: tuple[Suite, ...]
    metrics: Mapping[str, str]
    tasks: Mapping[str, str]

    @classmethod
    def of(cls, plan: StorePlanned) -> Grid:
        """From the plan of a store; units by the name of a metric or task."""
        template = plan.template
        suites = tuple(
            Suite(s["model"], tuple(s["revisions"]), tuple(s["layers"]), s["depth"]) for s in template["suites"]
        )
        named = (dict(zip(template[part]["names"], template[part]["units"], strict=True)) for part in _AXES)
        return cls(suites, *named)

    @cached_property
    def index(self) -> dict[str, int]:
        """Place of each arm, by its name."""
        return {str(arm): i for i, arm in enumerate(grid(self.suites))}

    def suite(self, model: str) -> tuple[Suite, slice]:
        """A model's suite and where its arms lie: checkpoint by checkpoint, layer by layer."""
        start = 0
        for suite in self.suites:
            count = len(suite.revisions) * len(suite.layers)
            if suite.model == model:
                return suite, slice(start, start + count)
            start += count
        raise KeyError(model)


_AXES = ("metrics", "tasks")


@dataclass
class Failures:
    """Units without a value for one reason."""

    kind: str
    status: str
    reason: str
    example: str
    count: int = 0


@dataclass(frozen=True)
class Known:
    """The record of a unit, as far as it may have to be taken back."""

    key: str
    status: str
    failed: Failures | None


@dataclass(frozen=True)
class Decision:
    """One pick of the search; its score is NaN until it is known."""

    index: int
    name: str
    stage: str
    cost: float
    score: float = math.nan


@dataclass
class Pace:
    """How quickly a phase goes: what was done when it was first looked at, and when that was."""

    since: float
    before: float

    def left(self, now: float, done: float, whole: float) -> float | None:
        """Seconds until the whole is done; None while nothing tells."""
        if whole <= done:
            return 0.0
        gained = done - self.before
        return (whole - done) * (now - self.since) / gained if gained > 0 else None


class Board:
    """A run as it goes on.

    It receives the entries of the journal in order, and a few messages that no journal holds: `UnitsPlanned`,
    `SearchStarted`, `PosteriorUpdated` and `HistorySent`.

    Parameters
    ----------
    grid : Grid
        What the run compares.

    Attributes
    ----------
    version : int
        Grows with whatever a page would show otherwise.
    metrics, scores : ndarray (M, A), (T, A)
        NaN where there is no value.
    belief : ndarray (2, A)
        Posterior mean and standard deviation of every arm, in units of the reward.
    first, last, paid : ndarray (A,)
        First and last decision for an arm, numbered from 1, and how many there were.
    curve : list of (cost spent, best mean score, how much better another arm may be)
    """

    def __init__(self, grid: Grid) -> None:
        arms = len(grid.index)
        self.grid = grid
        self.name, self.state, self.version = "", "measuring", 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.planned: dict[str, int] = {}
        self.metrics = np.full((len(grid.metrics), arms), np.nan, np.float32)
        self.scores = np.full((len(grid.tasks), arms), np.nan, np.float32)
        self.belief = np.full((2, arms), np.nan, np.float32)
        self.first, self.last, self.paid = (np.zeros(arms, int) for _ in range(3))
        self.latest: dict[int, Decision] = {}
        self.curve: list[tuple[float, float, float]] = []
        self.best = self.shortfall = math.nan
        self.leader = ""
        self.spent, self.budget, self.exhaustive = 0.0, math.nan, math.nan
        self._count, self._sum = np.zeros(arms, int), np.zeros(arms)
        self._rows = {part: {name: i for i, name in enumerate(getattr(grid, part))} for part in ("metrics", "tasks")}
        self._failures: dict[tuple[str, str, str], Failures] = {}
        self._units: dict[tuple[str, str], Known] = {}
        self._searched: str | None = None
        self._asked = 0
        self._open: dict[str, Decision] = {}
        self._pace = Pace(0.0, 0.0)

    def hear(self, messages: Iterable[LiveMessage], now: float) -> None:
        """Add what has happened; ``now`` is in seconds of any steady clock."""
        for message in messages:
            self._receive(message, now)

    def _receive(self, message: LiveMessage, now: float) -> None:
        match message:
            case RunStarted():
                self._start(message)
            case UnitsPlanned(units=units):
                self.planned.update(units)
            case HistorySent():
                self._pace = Pace(now, self.done("train") + self.done("measure"))
            case UnitAsked():
                self._ask(message)
            case UnitsRetried():
                self._retry(message)
            case Record():
                self._record(message)
            case SearchStarted():
                self.state, self.budget, self.exhaustive = "searching", message.budget, message.exhaustive
                self.spent = message.spent
                self._pace = Pace(now, self.spent)
            case PosteriorUpdated():
                self.belief = np.frombuffer(message.values, np.float32).reshape(2, -1)
                self.leader, self.shortfall = message.leader, message.shortfall
            case SearchEnded(best=best):
                self.leader, self.state = str(Arm(**best["arm"])), "searched"
            case RunFinished():
                self.state = "finished"
            case _:
                return
        self.version += 1

    # what is asked of it

    def names(self) -> dict[str, list[str]]:
        """Everything that a map can show, by group."""
        search = {"Search": [MEAN, SCORED, BELIEF, DOUBT], "Scores": list(self.grid.tasks)} if self.grid.tasks else {}
        return {**search, "Metrics": list(self.grid.metrics)}

    def units(self, name: str) -> str:
        """Of what a map shows."""
        known = {SCORED: "tasks", BELIEF: "units of the reward", DOUBT: "units of the reward", MEAN: "mean raw score"}
        return known.get(name) or self.grid.tasks.get(name) or self.grid.metrics.get(name) or ""

    def values(self, name: str) -> Floats:
        """One value per arm, NaN where there is none."""
        if name in (BELIEF, DOUBT):
            return np.asarray(self.belief[int(name == DOUBT)])
        if name == SCORED:
            return np.where(self._count > 0, self._count, np.nan).astype(np.float32)
        if name == MEAN:
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.where(self._count == len(self.grid.tasks), self._sum / self._count, np.nan).astype(np.float32)
        if name in self.grid.tasks:
            return np.asarray(self.scores[self._rows["tasks"][name]])
        return np.asarray(self.metrics[self._rows["metrics"][name]])

    @property
    def failures(self) -> list[Failures]:
        """Why units have no value, the most frequent reason first."""
        return sorted((group for group in self._failures.values() if group.count), key=lambda group: -group.count)

    def done(self, kind: str) -> int:
        """Units of a kind that have a record, whatever it says."""
        return sum(count for (of, _), count in self.counts.items() if of == kind)

    def left(self, now: float) -> float | None:
        """Seconds that the present phase will still take at its pace; None if that cannot be told."""
        if self.state == "searching":
            return self._pace.left(now, self.spent, self.budget)
        if self.state == "measuring":
            whole = sum(self.planned.get(kind, 0) for kind in ("train", "measure"))
            return self._pace.left(now, self.done("train") + self.done("measure"), whole)
        return None

    # what it is told

    def _start(self, start: RunStarted) -> None:
        self.name, self.state = start.name, "measuring"
        self.planned.setdefault("measure", start.checkpoints)
        self.planned["score"] = start.arms * len(start.tasks)

    def _ask(self, ask: UnitAsked) -> None:
        pick = ask.pick
        if pick is None:
            return
        if ask.note.get("search") != self._searched:
            self._begin_path(ask.note.get("search"))
        arm = str(Arm(**pick["cell"]["arm"]))
        decision = Decision(pick["index"] + 1, f"{arm}:{pick['cell']['task']}", pick["stage"], pick["cost"])
        self._open[ask.key] = decision
        if decision.index <= self._asked:
            return  # it was interrupted, and is asked for again
        self._asked = decision.index
        self.latest[decision.index] = decision
        if len(self.latest) > LATEST:
            del self.latest[next(iter(self.latest))]
        if (at := self.grid.index.get(arm)) is not None:
            self.first[at] = self.first[at] or decision.index
            self.last[at], self.paid[at] = decision.index, self.paid[at] + 1

    def _begin_path(self, search: str | None) -> None:
        """Decisions of an earlier search, whose numbers would be mixed up with this one's, are not shown."""
        self._searched, self._asked, self.spent = search, 0, 0.0
        self.latest.clear()
        self.curve.clear()
        for numbers in (self.first, self.last, self.paid):
            numbers[:] = 0

    def _retry(self, retry: UnitsRetried) -> None:
        keys = set(retry.keys)
        for unit in [unit for unit, known in self._units.items() if known.key in keys]:
            self._forget(unit)

    def _record(self, record: Record) -> None:
        unit = record.kind, record.name
        self._forget(unit)
        failed = None if record.ok else self._failed(record)
        self._units[unit] = Known(record.key, record.status, failed)
        self.counts[record.kind, record.status] += 1
        if record.kind == "score":
            self._scored(record)
        elif record.kind == "measure" and record.ok:
            self._measured(record)

    def _forget(self, unit: tuple[str, str]) -> None:
        """The record of a unit that has another chance, or was made anew."""
        if (known := self._units.pop(unit, None)) is not None:
            self.counts[unit[0], known.status] -= 1
            if known.failed is not None:
                known.failed.count -= 1

    def _failed(self, record: Record) -> Failures:
        reason = record.reason or "no reason was recorded"
        kind, status = record.kind, record.status
        group = self._failures.setdefault((kind, status, cause(reason)), Failures(kind, status, reason, record.name))
        group.count += 1
        return group

    def _measured(self, record: Record) -> None:
        columns = [self._rows["metrics"].get(name) for name in record.value["names"]]
        for layer, row in zip(record.value["layers"], record.value["values"], strict=True):
            at = self.grid.index.get(f"{record.name}/{layer}")
            if at is None:
                continue
            for column, value in zip(columns, row, strict=True):
                if column is not None and value is not None:
                    self.metrics[column, at] = value

    def _scored(self, record: Record) -> None:
        decision = self._open.pop(record.key, None)
        self.spent += decision.cost if decision else 0.0
        arm, _, task = record.name.partition(":")
        at, place = self.grid.index.get(arm), self._rows["tasks"].get(task)
        if at is None or place is None or not record.ok:
            return
        score = float(record.value["score"])
        known = self.scores[place, at]
        self._sum[at] += score - (0.0 if np.isnan(known) else known)
        self._count[at] += bool(np.isnan(known))
        self.scores[place, at] = score
        if decision and decision.index in self.latest:
            self.latest[decision.index] = replace(decision, score=score)
        if self._count[at] == len(self.grid.tasks):
            self.best = float(np.fmax(self.best, self._sum[at] / self._count[at]))
        self._draw()

    def _draw(self) -> None:
        """A point of the curve, if it differs from the last one by what can be seen."""
        if self.curve and self.curve[-1][0] >= self.spent and self.curve[-1][1] == self.best:
            return
        apart = 0.0 if np.isnan(self.budget) else self.budget / CURVE
        if self.curve and self.curve[-1][1] == self.best and self.spent - self.curve[-1][0] < apart:
            return
        self.curve.append((self.spent, self.best, self.shortfall))
        if len(self.curve) > 2 * CURVE:  # told before the budget was known
            self.curve = self.curve[::2]


Point = tuple[int, float, float, float]
"""A rank's report: step, loss, tokens per second, and when it was heard."""

POINTS = 1000  #: of one rank; when there are more, every other one is dropped and fewer are taken in


class Curves:
    """Loss and tokens per second by rank.

    Attributes
    ----------
    version : int
        Grows with every event.
    points : mapping of str to list of Point
        By the name of a rank, oldest first.
    last : mapping of str to Point
        What each rank of the latest training said last; earlier ones, and its own earlier attempts, are left out.
    """

    def __init__(self) -> None:
        self.version = 0
        self.points: dict[str, list[Point]] = {}
        self.last: dict[str, Point] = {}
        self._model: Any = None
        self._stride: Counter[str] = Counter()
        self._heard: Counter[str] = Counter()

    def hear(self, event: Mapping[str, Any], now: float) -> None:
        """Take in ``{"rank", "step", "loss", "tokens_per_second"}``, optionally with a ``model``.

        An event that lacks its step or its rank is passed over: it comes from other code.
        """
        if "rank" not in event or "step" not in event:
            return
        name = " ".join(filter(None, (event.get("model"), f"rank {event['rank']}")))
        loss, speed = (_number(event.get(part)) for part in ("loss", "tokens_per_second"))
        point = (int(event["step"]), loss, speed, now)
        if event.get("model") != self._model or (name in self.last and point[0] <= self.last[name][0]):
            self.last.clear()  # another training, or it goes on from an older state, perhaps with fewer ranks
        self._model = event.get("model")
        self.last[name] = point
        points = self.points.setdefault(name, [])
        if points and point[0] < points[-1][0]:
            points[:] = [older for older in points if older[0] < point[0]]
        self._heard[name] += 1
        if self._heard[name] % (1 << self._stride[name]) == 0:
            points.append(point)
        if len(points) > POINTS:
            points[:] = points[::2]
            self._stride[name] += 1
        self.version += 1


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
