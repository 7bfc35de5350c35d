"""The plan of a run, kept in its folder, beside its course."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.costs import Interval
from daskmetrics.core.events import RunFinished, RunStarted
from daskmetrics.core.files import RunFolder, atomic_write, private
from daskmetrics.core.names import Checkpoint
from daskmetrics.core.text import duration
from daskmetrics.planning.options import Option, Workload


def keep(option: Option, workload: Workload, at: float, folder: RunFolder) -> None:
    """Write an option's prediction, made at this time, into the run's folder; `status` compares the
    run with it.
    """
    prediction = {
        "at": at,
        "option": option.offer.label,
        "profile": option.offer.profile,
        "workers": option.offer.workers,
        "source": option.run.source,
        "measured": option.run.measured,
        "wait": option.offer.wait.value,
        "run": option.run.interval.bounds,
        "total": option.total.bounds,
        "worker_hours": option.worker_hours.value,
        "cost": option.cost and option.cost.value,
        "phases": {phase.name: [phase.units, phase.seconds.value] for phase in workload.phases},
    }
    with private():
        folder.create()
        atomic_write(folder.plan, json.dumps(prediction, indent=1))


@dataclass(frozen=True)
class Prediction:
    """A plan beside the run, in seconds from submission to the last result, with the wait in the
    queue.
    """

    predicted: Interval
    expected: float  # by the present progress; the true seconds if the run is finished
    elapsed: float
    done: float  # share of the predicted work
    finished: bool
    option: str
    source: str

    @property
    def error(self) -> float:
        """Relative error: positive if the run takes longer than predicted."""
        return self.expected / self.predicted.value - 1

    @property
    def text(self) -> str:
        """The prediction and its error in a sentence."""
        low, value, high = map(duration, self.predicted.bounds)
        direction = "longer" if self.error > 0 else "shorter"
        position = "outside"
        if self.predicted.low <= self.expected <= self.predicted.high:
            position = "within"
        verb = "now expected"
        remaining = f", {duration(max(0.0, self.expected - self.elapsed))} left"
        if self.finished:
            verb = "took"
            remaining = ""
        return (
            f"{value} predicted ({low} to {high}; {self.source}), {verb} {duration(self.expected)}:"
            f" {abs(self.error):.0%} {direction}, {position} the bounds{remaining}"
        )


def prediction(run: RecordedRun, now: float | None = None) -> Prediction | None:
    """The plan beside the progress; None if the run was not planned."""
    if not run.folder.plan.is_file():
        return None
    plan = json.loads(run.folder.plan.read_text(encoding="utf-8"))
    began = [
        entry.at
        for entry in run.entries
        if isinstance(entry, RunStarted) and entry.at >= plan["at"]
    ]
    if not began:
        return None
    ended = [entry.at for entry in run.entries if isinstance(entry, RunFinished)]
    finished = run.finished and bool(ended)
    if finished:
        done = 1.0
        expected = elapsed = ended[-1] - plan["at"]
    else:
        done = _done(run, plan["phases"])
        elapsed = (now or time.time()) - plan["at"]
        # the pace is that of the time since the start, without the wait in a queue
        working = elapsed - (began[0] - plan["at"])
        expected = elapsed + left(working, done, plan["run"][1])
    option = f"{plan['profile']}: {plan['option']}"
    return Prediction(
        Interval(*plan["total"]), expected, elapsed, done, finished, option, plan["source"]
    )


def left(working: float, done: float, predicted: float) -> float:
    """Predicted seconds of the remaining work; with progress, the pace so far replaces the
    prediction.

    >>> left(working=0.0, done=0.0, predicted=100.0), left(working=100.0, done=0.5, predicted=100.0)
    (100.0, 75.0)
    """
    return (1 - done) * (working + (1 - done) * predicted)


def _done(run: RecordedRun, phases: dict[str, Sequence[float]]) -> float:
    """Share of the predicted work that has records."""
    counts: Counter[str] = Counter()
    for record in run.records:
        phase = "search"
        if record.kind not in ("score", "fresh"):
            phase = f"{record.kind} {Checkpoint.parse(record.name).model}"
        counts[phase] += 1
    total = sum(units * seconds for units, seconds in phases.values())
    work = sum(min(counts[name], units) * seconds for name, (units, seconds) in phases.items())
    return work / total if total else 0.0
