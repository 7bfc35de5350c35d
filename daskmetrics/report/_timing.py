"""How good the plan was: what was predicted of a run beside how it goes, and what its workers made of their time."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daskmetrics.core._estimate import Interval
from daskmetrics.core._events import RunFinished, RunStarted, UsageMeasured, WorkerJoined
from daskmetrics.core._text import duration
from daskmetrics.report._run import Run


@dataclass(frozen=True)
class Prediction:
    """A plan beside the run.

    Attributes
    ----------
    predicted : Interval
        Seconds from submission to the last result, waiting included.
    expected : float
        The same as it looks now; as it was, if the run is finished.
    elapsed : float
    done : float
        Share of the predicted work.
    finished : bool
    option, source : str
        What was chosen, and what the prediction rested on.
    """

    predicted: Interval
    expected: float
    elapsed: float
    done: float
    finished: bool
    option: str
    source: str

    @property
    def error(self) -> float:
        """By which share of the prediction it takes longer; negative if it is quicker."""
        return self.expected / self.predicted.value - 1

    @property
    def text(self) -> str:
        """In words."""
        bounds = f"{duration(self.predicted.low)} to {duration(self.predicted.high)}"
        now = "took" if self.finished else "now expected"
        later = f"{abs(self.error):.0%} {'longer' if self.error > 0 else 'shorter'}"
        inside = "inside" if self.predicted.low <= self.expected <= self.predicted.high else "outside"
        left = "" if self.finished else f", {duration(max(0.0, self.expected - self.elapsed))} left"
        return (
            f"{duration(self.predicted.value)} predicted ({bounds}; {self.source}), {now} {duration(self.expected)}: "
            f"{later}, {inside} the bounds{left}"
        )


def prediction(run: Run, now: float | None = None) -> Prediction | None:
    """What the plan says beside how it goes; None if the run was not planned, or does not say when it began."""
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
    # who waits in a queue has not begun: the pace is that of the time since then
    working = elapsed - (began[0] - plan["at"])
    expected = elapsed if finished else elapsed + left(working, done, plan["run"][1])
    return Prediction(
        Interval(*plan["total"]),
        expected,
        elapsed,
        done,
        finished,
        f"{plan['profile']}: {plan['option']}",
        plan["source"],
    )


def left(working: float, done: float, predicted: float) -> float:
    """Seconds that the rest takes: as predicted at first, and more and more at the pace so far.

    Examples
    --------
    >>> left(working=0.0, done=0.0, predicted=100.0), left(working=100.0, done=0.5, predicted=100.0)
    (100.0, 75.0)
    """
    return (1 - done) * (working + (1 - done) * predicted)


def _done(run: Run, phases: dict[str, Sequence[float]]) -> float:
    """Share of the predicted work that is recorded."""
    counts: Counter[str] = Counter()
    for record in run.records:
        counts["search" if record.kind == "score" else f"{record.kind} {record.name.partition('@')[0]}"] += 1
    total = sum(units * seconds for units, seconds in phases.values())
    work = sum(min(counts[name], units) * seconds for name, (units, seconds) in phases.items())
    return work / total if total else 0.0


@dataclass(frozen=True)
class Share:
    """What one worker made of its time.

    Attributes
    ----------
    worker, host : str
    units : int
    busy : float or None
        Share of the run in which it computed; the rest it waited, started, or was not there yet.
    cpu : float or None
        Share of one CPU.
    memory, gpu_memory : int or None
        Most bytes that it held.
    """

    worker: str
    host: str
    units: int
    busy: float | None
    cpu: float | None
    memory: int | None
    gpu_memory: int | None


def shares(run: Run) -> tuple[Share, ...]:
    """One line for each worker that recorded something, as far as the journal tells."""
    hosts = {entry.name: entry.host for entry in run.entries if isinstance(entry, WorkerJoined)}
    usage: dict[str, Mapping[str, Any]] = {}
    for entry in run.entries:
        usage |= entry.workers if isinstance(entry, UsageMeasured) else {}
    length = _length(run)
    units: dict[str, list[float]] = {}
    encoded: set[tuple[str, float]] = set()
    for record in run.records:
        if record.worker is not None:
            seconds = record.seconds
            if record.ok and record.kind == "score" and (record.worker, record.value["encode_seconds"]) not in encoded:
                # the worker of the first score has most likely made the encoding that others share
                encoded.add((record.worker, record.value["encode_seconds"]))
                seconds += record.value["encode_seconds"]
            units.setdefault(str(record.worker), []).append(seconds)
    return tuple(
        Share(
            worker,
            hosts.get(worker, ""),
            len(own),
            min(1.0, sum(own) / length) if length else None,
            usage[worker]["cpu_seconds"] / length if length and worker in usage else None,
            usage.get(worker, {}).get("memory"),
            usage.get(worker, {}).get("gpu_memory"),
        )
        for worker, own in sorted(units.items())
    )


def _length(run: Run) -> float | None:
    """Seconds of a run that was not interrupted."""
    began = [entry.at for entry in run.entries if isinstance(entry, RunStarted)]
    ended = [entry.at for entry in run.entries if isinstance(entry, RunFinished)]
    return ended[0] - began[0] if len(began) == 1 and len(ended) == 1 and ended[0] > began[0] else None


def rows(all_shares: Sequence[Share]) -> list[tuple[str, ...]]:
    """The shares as text, with a header."""
    header = ("worker", "host", "units", "busy", "waits", "CPU", "memory", "GPU memory")
    return [header, *(_row(share) for share in all_shares)]


def _row(share: Share) -> tuple[str, ...]:
    def percent(number: float | None) -> str:
        return "not known" if number is None else f"{number:.0%}"

    def gib(number: int | None) -> str:
        return "not known" if number is None else f"{number / 2**30:.1f} GiB"

    gpu = "none" if share.gpu_memory is None else gib(share.gpu_memory)
    waits = percent(None if share.busy is None else 1 - share.busy)
    return (
        share.worker,
        share.host,
        str(share.units),
        percent(share.busy),
        waits,
        percent(share.cpu),
        gib(share.memory),
        gpu,
    )
