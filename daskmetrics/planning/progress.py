"""The plan of a run, kept in its folder, beside its course."""

from __future__ import annotations

import json
import time
from collections import Counter

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


def compared(run: RecordedRun) -> str | None:
    """The time that the plan of a run predicted, from its submission to the last result, beside
    the time that it took or is expected to take, in a sentence; None if the run was not planned.
    """
    if not run.folder.plan.is_file():
        return None
    plan = json.loads(run.folder.plan.read_text(encoding="utf-8"))
    starts = [entry.at for entry in run.entries if isinstance(entry, RunStarted)]
    began = next((at for at in starts if at >= plan["at"]), None)
    if began is None:
        return None
    ended = [entry.at for entry in run.entries if isinstance(entry, RunFinished)]
    if run.finished and ended:
        seconds = ended[-1] - plan["at"]
        course = f"took {duration(seconds)}"
        rest = ""
    else:
        now = time.time()
        share = _share_left(run, plan["phases"])
        # with progress, the pace so far, without the wait in a queue, replaces the prediction
        left = share * (now - began + share * plan["run"][1])
        seconds = now - plan["at"] + left
        course = f"now expected {duration(seconds)}"
        rest = f", {duration(left)} left"
    predicted = Interval(*plan["total"])
    error = seconds / predicted.value - 1
    direction = "longer" if error > 0 else "shorter"
    position = "within" if predicted.low <= seconds <= predicted.high else "outside"
    return (
        f"{bounded(predicted)} predicted ({plan['source']}), {course}: {abs(error):.0%}"
        f" {direction}, {position} the bounds{rest}"
    )


def _share_left(run: RecordedRun, phases: dict[str, tuple[int, float]]) -> float:
    """The share of the planned time, units and seconds of each by phase, whose units are not done;
    all of it if nothing was planned.
    """
    done: Counter[str] = Counter()
    for record in run.records:
        if record.kind in ("score", "fresh"):
            done["search"] += 1
        elif record.kind != "look":  # the plan counts scores
            done[f"{record.kind} {Checkpoint.parse(record.name).model}"] += 1
    total = sum(units * seconds for units, seconds in phases.values())
    work = sum(min(done[name], units) * seconds for name, (units, seconds) in phases.items())
    if total:
        return 1 - work / total
    return 1.0
