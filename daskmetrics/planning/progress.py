"""The plan of a run, kept in its folder, beside its course."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.events import RunFinished, RunStarted
from daskmetrics.core.files import RunFolder, atomic_write, private
from daskmetrics.core.names import Checkpoint
from daskmetrics.core.text import duration
from daskmetrics.planning.options import Interval, Option, bounded


def keep(option: Option, at: float, folder: RunFolder) -> None:
    """Write an option's prediction, made at this time, into the run's folder; `status` compares the
    run with it.
    """
    prediction = {
        "at": at,
        "option": option.offer.label,
        "profile": option.offer.profile,
        "source": option.run.source,
        "run": option.run.interval.bounds,
        "total": option.total.bounds,
        "phases": {
            phase.name: [phase.units, phase.seconds.value] for phase in option.workload.phases
        },
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
    source: str
    elapsed: float
    expected: float  # by the present progress; the true seconds if the run is finished
    finished: bool

    @property
    def text(self) -> str:
        """The prediction and its error in a sentence."""
        error = self.expected / self.predicted.value - 1
        direction = "longer" if error > 0 else "shorter"
        is_within = self.predicted.overlaps(Interval.exactly(self.expected))
        position = "within" if is_within else "outside"
        course = f"now expected {duration(self.expected)}"
        if self.finished:
            course = f"took {duration(self.expected)}"
        text = (
            f"{bounded(self.predicted)} predicted ({self.source}), {course}: {abs(error):.0%}"
            f" {direction}, {position} the bounds"
        )
        if self.finished:
            return text
        return f"{text}, {duration(max(0.0, self.expected - self.elapsed))} left"


def prediction(run: RecordedRun) -> Prediction | None:
    """The plan beside the progress; None if the run was not planned."""
    if not run.folder.plan.is_file():
        return None
    plan = json.loads(run.folder.plan.read_text(encoding="utf-8"))
    starts = [entry.at for entry in run.entries if isinstance(entry, RunStarted)]
    began = next((at for at in starts if at >= plan["at"]), None)
    if began is None:
        return None
    predicted = Interval(*plan["total"])
    ended = [entry.at for entry in run.entries if isinstance(entry, RunFinished)]
    if run.finished and ended:
        took = ended[-1] - plan["at"]
        return Prediction(predicted, plan["source"], took, took, True)
    counts: Counter[str] = Counter()
    for record in run.records:
        if record.kind == "look":  # the plan counts scores
            continue
        phase = "search"
        if record.kind not in ("score", "fresh"):
            phase = f"{record.kind} {Checkpoint.parse(record.name).model}"
        counts[phase] += 1
    phases = plan["phases"].items()
    total = sum(units * seconds for _, (units, seconds) in phases)
    work = sum(min(counts[name], units) * seconds for name, (units, seconds) in phases)
    share_left = 1 - work / total if total else 1.0
    now = time.time()
    # with progress, the pace so far, without the wait in a queue, replaces the prediction
    seconds_left = share_left * (now - began + share_left * plan["run"][1])
    elapsed = now - plan["at"]
    return Prediction(predicted, plan["source"], elapsed, elapsed + seconds_left, False)
