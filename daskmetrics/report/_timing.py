"""The plan of a run beside its course, and how busy its workers were."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daskmetrics.core._estimate import Interval
from daskmetrics.core._events import RunFinished, RunStarted, UsageMeasured, WorkerJoined
from daskmetrics.core._table import Table
from daskmetrics.core._text import duration
from daskmetrics.core.names import Checkpoint
from daskmetrics.report._run import Run


@dataclass(frozen=True)
class Prediction:
    """A plan beside the run, in seconds from submission to the last result, with the wait in the queue."""

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
        bounds = f"{duration(self.predicted.low)} to {duration(self.predicted.high)}"
        now = "took" if self.finished else "now expected"
        later = f"{abs(self.error):.0%} {'longer' if self.error > 0 else 'shorter'}"
        inside = "within" if self.predicted.low <= self.expected <= self.predicted.high else "outside"
        left = "" if self.finished else f", {duration(max(0.0, self.expected - self.elapsed))} left"
        return (
            f"{duration(self.predicted.value)} predicted ({bounds}; {self.source}), {now} {duration(self.expected)}: "
            f"{later}, {inside} the bounds{left}"
        )


def prediction(run: Run, now: float | None = None) -> Prediction | None:
    """The plan beside the progress; None if the run was not planned."""
    if not run.folder.plan.is_file():
        return None
    plan = json.loads(run.folder.plan.read_text(encoding="utf-8"))
    began = [entry.at for entry in run.entries if isinstance(entry, RunStarted) and entry.at >= plan["at"]]
    if not began:
        return None
    ended = [entry.at for entry in run.entries if isinstance(entry, RunFinished)]
    finished = run.finished and bool(ended)
    elapsed = (ended[-1] if finished else now or time.time()) - plan["at"]
    done = 1.0 if finished else _done(run, plan["phases"])
    # the pace is that of the time since the start, without the wait in a queue
    working = elapsed - (began[0] - plan["at"])
    expected = elapsed if finished else elapsed + left(working, done, plan["run"][1])
    option = f"{plan['profile']}: {plan['option']}"
    return Prediction(Interval(*plan["total"]), expected, elapsed, done, finished, option, plan["source"])


def left(working: float, done: float, predicted: float) -> float:
    """Predicted seconds of the remaining work; with progress, the pace so far replaces the prediction.

    >>> left(working=0.0, done=0.0, predicted=100.0), left(working=100.0, done=0.5, predicted=100.0)
    (100.0, 75.0)
    """
    return (1 - done) * (working + (1 - done) * predicted)


def _done(run: Run, phases: dict[str, Sequence[float]]) -> float:
    """Share of the predicted work that has records."""
    counts: Counter[str] = Counter()
    for record in run.records:
        counts[
            "search" if record.kind in ("score", "fresh") else f"{record.kind} {Checkpoint.parse(record.name).model}"
        ] += 1
    total = sum(units * seconds for units, seconds in phases.values())
    work = sum(min(counts[name], units) * seconds for name, (units, seconds) in phases.items())
    return work / total if total else 0.0


@dataclass(frozen=True)
class WorkerUse:
    """How one worker spent its time."""

    worker: str
    host: str
    units: int
    busy: float | None  # share of the run's time in which it computed
    cpu: float | None  # share of one CPU
    memory: int | None  # greatest number of bytes in use
    gpu_memory: int | None


def worker_use(run: Run) -> tuple[WorkerUse, ...]:
    """One item for each worker with a record, sorted by name."""
    hosts = {entry.name: entry.host for entry in run.entries if isinstance(entry, WorkerJoined)}
    usage: dict[str, Mapping[str, Any]] = {}
    for entry in run.entries:
        usage |= entry.workers if isinstance(entry, UsageMeasured) else {}
    started = [entry.at for entry in run.entries if isinstance(entry, RunStarted)]
    ended = [entry.at for entry in run.entries if isinstance(entry, RunFinished)]
    uninterrupted = len(started) == 1 and len(ended) == 1 and ended[0] > started[0]
    length = ended[0] - started[0] if uninterrupted else None
    return tuple(
        WorkerUse(
            worker,
            hosts.get(worker, ""),
            len(seconds),
            min(1.0, sum(seconds) / length) if length else None,
            usage[worker]["cpu_seconds"] / length if length and worker in usage else None,
            usage.get(worker, {}).get("memory"),
            usage.get(worker, {}).get("gpu_memory"),
        )
        for worker, seconds in sorted(_unit_seconds(run).items())
    )


def _unit_seconds(run: Run) -> dict[str, list[float]]:
    """Seconds of each unit, by worker."""
    units: dict[str, list[float]] = {}
    encoded: set[tuple[str, float]] = set()
    for record in run.records:
        if record.worker is not None:
            seconds = record.seconds
            if record.ok and record.kind in ("score", "fresh"):
                # the worker of the first score has most likely made the encoding that others share
                encoding = record.worker, record.value["encode_seconds"]
                seconds += 0.0 if encoding in encoded else encoding[1]
                encoded.add(encoding)
            units.setdefault(record.worker, []).append(seconds)
    return units


def worker_table(uses: Sequence[WorkerUse]) -> Table:
    """How busy the workers were, as a table."""

    def percent(number: float | None) -> str:
        return "unknown" if number is None else f"{number:.0%}"

    def gib(number: int | None) -> str:
        return "unknown" if number is None else f"{number / 2**30:.1f} GiB"

    rows = tuple(
        (
            use.worker,
            use.host,
            str(use.units),
            percent(use.busy),
            percent(None if use.busy is None else 1 - use.busy),
            percent(use.cpu),
            gib(use.memory),
            "none" if use.gpu_memory is None else gib(use.gpu_memory),
        )
        for use in uses
    )
    return Table(("worker", "host", "units", "busy", "idle", "CPU", "memory", "GPU memory"), rows)
