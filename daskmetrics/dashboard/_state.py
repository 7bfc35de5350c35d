"""The state of a run and of trainings for their pages, updated message by message, as arrays and
curves ready to draw.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from daskmetrics.domain import events as events
from daskmetrics.domain.failures import Failure, grouped
from daskmetrics.domain.names import Cell, arm_name
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Measured, Scored

LATEST = 60  # decisions that are listed
RECENT = 60.0  # seconds after which a rank that reports nothing no longer counts
MAX_POINTS = 1000  # of one rank; beyond it half of them stay
#: Kinds of work, and what is done when a unit of it is.
KINDS = {"train": "checkpoints trained", "measure": "checkpoints measured", "score": "scores"}
MEAN = "mean score"
SCORED = "tasks scored"
POSTERIOR_MEAN = "posterior mean"
POSTERIOR_SD = "posterior sd"
SEARCHED = [MEAN, SCORED, POSTERIOR_MEAN, POSTERIOR_SD]


@dataclass
class Decision:
    """A decision of the search.

    Its score is NaN until it is known.
    """

    name: str
    why: str  # in a word
    cost: float
    score: float = math.nan


class LiveState:
    """The state of a run, as arrays; A arms, T tasks.

    It receives the entries of the journal in order, and messages that are not in the journal:
    `UnitsPlanned`, `SearchStarted`, `PosteriorUpdated` and `HistorySent`.
    ``version`` increases with every change that a page shows.

    Parameters
    ----------
    plan : Plan
    """

    def __init__(self, plan: Plan) -> None:
        self.suites = plan.suites
        self.tasks = list(plan.kinds)
        # a quantity of both names is the score
        metrics = (metric.name for metric in plan.metrics)
        self.metrics = [name for name in metrics if name not in self.tasks]
        self.arms = plan.arms
        self.index = {str(arm): i for i, arm in enumerate(self.arms)}
        self._names = {str(arm): arm_name(arm, plan.layer_names) for arm in self.arms}
        # the arms of each layer of a checkpoint share its metrics
        self._of_layer: dict[str, list[int]] = defaultdict(list)
        for i, arm in enumerate(self.arms):
            self._of_layer[f"{arm.checkpoint}/{arm.layer}"].append(i)
        #: the names of what a map can show, by group, ...
        self.names: dict[str, list[str]] = {}
        if self.tasks:
            self.names["Search"] = SEARCHED
            self.names["Scores"] = self.tasks
        if self.metrics:
            self.names["Metrics"] = self.metrics
        #: ... and its values and standard errors (A,); NaN: no value
        names = [*self.tasks, *SEARCHED, *self.metrics]
        shape = len(names), len(self.arms)
        values = np.full(shape, np.nan, np.float32)
        self.values = dict(zip(names, values, strict=True))
        self.errors = dict(zip(names, values.copy(), strict=True))
        self.scores = values[: len(self.tasks)]  # (T, A)
        # of the tasks in the objective (T,)
        self.weights = np.array([task.weight for task in plan.tasks])
        self.name = plan.name
        self.phase = "measuring"
        self.version = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.planned = {
            "measure": len(plan.checkpoints),
            "score": len(plan.arms) * len(plan.tasks),
        }
        self.steps: Mapping[str, int] = {}  # of each training unit, by its name
        self.open: dict[str, str] = {}  # names of the units that are asked for, by key
        self.paid: set[str] = set()  # arms that the search has paid for
        self.latest: dict[int, Decision] = {}
        self.curve: list[tuple[float, float]] = []  # cost spent and best mean score, where it rises
        self.best = math.nan
        #: cost spent, and by how much the best arm was expected to exceed the leader
        self.losses: list[tuple[float, float]] = []
        self.leader = ""
        self.recent = ""  # the unit of the latest result
        self.confirmed = False  # whether the recommended arm was scored on every task
        self.spent = 0.0
        self.budget = math.nan
        self.exhaustive = math.nan
        self._units: dict[tuple[str, str], Record] = {}
        self._recorded: set[str] = set()  # the keys of these units
        self._searched: str | None = None
        self._asked = 0
        self._decisions: dict[str, Decision] = {}  # without a result, by the key of their unit
        self._began = 0.0  # when the progress of the phase was first known
        self._before = 0.0  # that progress

    def receive(self, messages: Iterable[events.LiveMessage], now: float) -> None:
        """Apply messages in order.

        ``now`` is in seconds of any steady clock.
        """
        for message in messages:
            match message:
                case events.RunStarted():
                    self.phase = "measuring"
                case events.UnitsPlanned(units=units, steps=steps):
                    self.planned.update(units)
                    self.steps = steps
                case events.HistorySent():
                    self._began = now
                    self._before = self.progress[0]
                case events.UnitAsked():
                    # a run that grows asks again for what it has recorded
                    if message.key not in self._recorded:
                        self.open[message.key] = self._named(message.name)
                    self._decide(message)
                case events.UnitsRetried(keys=keys):
                    retried = [unit for unit, record in self._units.items() if record.key in keys]
                    for unit in retried:
                        self._forget(unit)
                case Record():
                    self._record(message)
                case events.SearchStarted():
                    self.phase = "searching"
                    self.spent = message.spent
                    self.budget = message.budget
                    self.exhaustive = message.exhaustive
                    self._began = now
                    self._before = self.spent
                case events.PosteriorUpdated():
                    mean, deviation = np.frombuffer(message.values, np.float32).reshape(2, -1)
                    self.values |= {POSTERIOR_MEAN: mean, POSTERIOR_SD: deviation}
                    self.errors[POSTERIOR_MEAN] = deviation
                    self.leader = self._named(message.leader)
                    if self.losses and self.losses[-1][0] == self.spent:
                        self.losses.pop()
                    self.losses.append((self.spent, message.loss))
                case events.SearchEnded():
                    self.leader = self._named(str(message.recommendation.arm))
                    self.phase = "searched"
                    self.confirmed = message.recommendation.confirmed
                case events.RunFinished():
                    self.phase = "finished"
                case _:
                    continue
            self.version += 1

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The reasons of failures, the most frequent first."""
        failed = [record for record in self._units.values() if not record.ok]
        return grouped((unit.kind, unit.status, unit.name, unit.reason) for unit in failed)

    def done(self, kind: str) -> int:
        """The number of recorded units of a kind, failed ones included."""
        return sum(count for (recorded, _), count in self.counts.items() if recorded == kind)

    @property
    def progress(self) -> tuple[float, float]:
        """How much of the current phase is done, of all.

        Checkpoints that are trained or measured, or cost of a search. The training counts by its steps.
        """
        if self.phase == "searching":
            return self.spent, self.budget
        taken = (steps for name, steps in self.steps.items() if ("train", name) in self._units)
        trained = len(self.steps) * sum(taken) / max(1, sum(self.steps.values()))
        return trained + self.done("measure"), len(self.steps) + self.planned.get("measure", 0)

    @property
    def loss(self) -> float:
        """By how much the best arm is expected to exceed the leader; NaN if unknown."""
        return self.losses[-1][1] if self.losses else math.nan

    def left(self, now: float) -> float | None:
        """Remaining seconds of the current phase; None if unknown."""
        done, total = self.progress
        gained = done - self._before
        if self.phase not in ("measuring", "searching") or gained <= 0:
            return None
        missing = max(0.0, total - done)
        return missing * (now - self._began) / gained

    def _named(self, unit: str) -> str:
        """What a unit is called, or an arm: a score with the name of its arm."""
        arm, colon, task = unit.partition(":")
        return f"{self._names.get(arm, arm)}{colon}{task}"

    def _decide(self, ask: events.UnitAsked) -> None:
        pick = ask.pick
        if pick is None:
            return
        if ask.note.get("search") != self._searched:
            # remove the decisions of an earlier search, whose numbers would be confused with new
            # ones
            self._searched = ask.note.get("search")
            self._asked = 0
            self.spent = 0.0
            self.latest.clear()
            self.paid.clear()
            self.curve = [(0.0, self.best)]
            self.losses.clear()
        index = pick["index"] + 1
        decision = Decision(self._named(ask.name), pick["why"]["because"], pick["cost"])
        # one of an interrupted search is asked for again
        self._decisions[ask.key] = self.latest.get(index, decision)
        if index > self._asked:
            self._asked = index
            self.latest[index] = decision
            self.latest.pop(index - LATEST, None)
            self.paid.add(self._named(str(Cell.parse(ask.name).arm)))

    def _record(self, record: Record) -> None:
        unit = record.kind, record.name
        self.recent = record.name
        self.open.pop(record.key, None)
        self._forget(unit)
        self._units[unit] = replace(record, value=None)
        self._recorded.add(record.key)
        self.counts[record.kind, record.status] += 1
        decision = self._decisions.pop(record.key, None)
        if decision:
            self.spent += decision.cost
        match record.value:
            case Measured():
                self._measure(record.name, record.value)
            case Scored() if record.kind == "score":
                self._score(record.name, record.value)
                if decision:
                    decision.score = record.value.score

    def _measure(self, checkpoint: str, measured: Measured) -> None:
        for layer, row in zip(measured.layers, measured.values, strict=True):
            arms = self._of_layer.get(f"{checkpoint}/{layer}", [])
            for name, value in zip(measured.names, row, strict=True):
                if name in self.metrics and value is not None:
                    self.values[name][arms] = value

    def _score(self, name: str, scored: Scored) -> None:
        cell = Cell.parse(name)
        arm = self.index.get(str(cell.arm))
        if arm is None or cell.task not in self.tasks:
            return
        self.values[cell.task][arm] = scored.score
        self.errors[cell.task][arm] = scored.stderr
        scores = self.scores[:, arm]
        self.values[SCORED][arm] = np.isfinite(scores).sum()
        counted = self.weights > 0
        weighted = self.weights[counted] @ scores[counted]
        mean = float(weighted / self.weights.sum())
        self.values[MEAN][arm] = mean
        if not mean <= self.best and not math.isnan(mean):
            self.best = mean
            self.curve.append((self.spent, mean))

    def _forget(self, unit: tuple[str, str]) -> None:
        """Subtract the record of a repeated unit."""
        if record := self._units.pop(unit, None):
            self.counts[record.kind, record.status] -= 1
            self._recorded.remove(record.key)


class RankPoint(NamedTuple):
    """A rank's report, with the time at which it was received."""

    step: int
    loss: float
    tokens_per_second: float
    time: float


class TrainingCurves:
    """Loss and tokens per second by model and rank.

    Oldest first; ``version`` increases with every event.
    """

    def __init__(self) -> None:
        self.version = 0
        self.points: dict[str, list[RankPoint]] = {}
        self.last: dict[str, RankPoint] = {}  # of those that report now

    @property
    def speed(self) -> float:
        """Tokens per second of all that report now."""
        speeds = [point.tokens_per_second for point in self.last.values()]
        return sum(speed for speed in speeds if speed > 0)  # a program may report none

    def receive(self, event: Mapping[str, object], now: float) -> None:
        """Add an event of a training.

        It has ``step``, ``loss``, ``tokens_per_second``, and ``model``, ``rank`` or both. Other
        events are ignored: they come from other code.
        """
        name = str(event.get("model") or "")
        if (rank := event.get("rank")) is not None:
            name = f"{name} rank {rank}".strip()
        step = event.get("step")
        if not isinstance(step, int) or not name:
            return
        loss = _number(event.get("loss"))
        speed = _number(event.get("tokens_per_second"))
        point = RankPoint(step, loss, speed, now)
        self.last[name] = point
        for other, latest in list(self.last.items()):
            if now - latest.time > RECENT:
                del self.last[other]
        points = self.points.setdefault(name, [])
        while points and points[-1].step > step:
            points.pop()  # it continues from an older state
        if not points or step > points[-1].step:
            points.append(point)
        if len(points) > MAX_POINTS:
            self.points[name] = _thinned(points)
        self.version += 1


def _thinned(points: Sequence[RankPoint]) -> list[RankPoint]:
    """Half of the points, evenly spaced.

    Otherwise the beginning of a long training would be lost.
    """
    steps = [point.step for point in points]
    even_steps = np.linspace(steps[0], steps[-1], MAX_POINTS // 2)
    nearest = np.searchsorted(steps, even_steps)
    return [points[i] for i in np.unique(nearest)]


def _number(reported: object) -> float:
    if isinstance(reported, int | float):
        return reported
    return math.nan
