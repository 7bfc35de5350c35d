"""How far a run or a map is: one frozen value, whose serialisation is the JSON of `status`."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from daskmetrics.answer import analysis
from daskmetrics.answer.analysis import Cost
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.events import (
    Event,
    Record,
    RunFinished,
    RunStarted,
    UsageMeasured,
    WorkerJoined,
)
from daskmetrics.core.failures import Failure
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.machine import environment
from daskmetrics.core.names import Arm
from daskmetrics.core.results import Scored
from daskmetrics.core.serialization import build, parse
from daskmetrics.core.telemetry import PROCESS_GROUP, TelemetrySample, read_samples
from daskmetrics.execution.journal import mark_of
from daskmetrics.execution.map.folder import read_map
from daskmetrics.execution.map.result_table import summary_text

if TYPE_CHECKING:
    import pandas

IDLE, LATEST = 10.0, 3  # a GPU is idle below this mean utilisation, per cent, over so many samples
FRESH = 60.0  # seconds after which a sample no longer says what happens now
REASONS = {
    "": "it waits for work from the driver",
    "score": "it scores on its CPU",
    "look": "it scores on its CPU",
    "measure": "it loads a checkpoint, or computes on its CPU",
    "encode": "it loads a checkpoint or texts",
    "train": "it loads data, or writes a checkpoint",
    PROCESS_GROUP: "it loads data, waits for other ranks, or writes a checkpoint",
}


@dataclass(frozen=True)
class RunStatus:
    """Progress, failures, time and the leading or the best arm; the keys are those of
    docs/json.md.
    """

    name: str
    folder: Path
    finished: bool
    driver: str | None
    counts: Mapping[str, Mapping[str, int]]
    arms: int
    checkpoints: int
    # scores of an exhaustive sweep, recorded, and still asked for; recorded looks
    cells: Mapping[str, int]
    leader: Mapping[str, Arm | float] | None  # its name, mean score and standard error
    best: Arm | None
    cost: Cost
    seconds: Mapping[str, float]  # measured on the workers, by kind of work
    failures: Sequence[Failure]
    warnings: Sequence[str]
    idle_gpus: Mapping[str, str]


def status_of(run: RecordedRun) -> RunStatus:
    """How far a run is, as its files are now."""
    counts: dict[str, dict[str, int]] = {}
    for (kind, status), count in run.counts.items():
        counts.setdefault(kind, {})[status] = count
    leader = analysis.leader(run)
    return RunStatus(
        name=run.start.name,
        folder=run.folder.path,
        finished=run.finished,
        driver=run.driver,
        counts=counts,
        arms=run.start.arms,
        checkpoints=run.start.checkpoints,
        cells={
            "planned": run.cells_planned,
            "scored": run.counts["score", "ok"],
            "open": run.cells_open,
            "looks": run.counts["look", "ok"],
        },
        leader=leader and {"arm": leader[0], "score": leader[1][0], "stderr": leader[1][1]},
        best=run.result.best_arm if run.result else None,
        cost=analysis.cost_of(run),
        seconds=analysis.spending(run),
        failures=analysis.failures(run),
        warnings=run.start.warnings,
        idle_gpus={} if run.finished else idle_now(run.folder),
    )


@dataclass(frozen=True)
class MapStatus:
    """How far a map is: all its items, its results by status, and a text of aggregates and
    failures.

    It is kept in the folder of the map, with a digest of every byte of the files that it was
    computed from, so that it is not computed again before they change.
    """

    items: int
    finished: bool
    counts: Mapping[str, int]
    text: str
    digest: str

    @classmethod
    def of(cls, folder: RunFolder) -> MapStatus:
        """How far a map is, as its files are now; errors as for `read_map`."""
        digest = _digest(folder.must_exist())
        with suppress(OSError, ValueError, TypeError):
            kept = build(cls, parse(folder.summary.read_bytes()))
            if kept.digest == digest:
                return kept
        *_, tracker = read_map(folder.path)
        results = tracker.results()
        items = len(tracker.states)
        counts = dict(Counter(result.status for result in results))
        text = summary_text(results, items)
        status = cls(items, len(results) == items, counts, text, digest)
        if _digest(folder) == digest:  # otherwise the map went on meanwhile
            with suppress(OSError):  # it is of another user, or the disk is full
                atomic_write(folder.summary, json.dumps(vars(status)))
        return status


def _digest(folder: RunFolder) -> str:
    digest = hashlib.sha256(str(environment("daskmetrics")).encode())
    for path in (folder.journal, mark_of(folder.journal), folder.items):
        with suppress(OSError), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def idle_gpus(samples: Sequence[TelemetrySample], now: float) -> dict[str, str]:
    """Workers whose GPU idles now, with the reason.

    >>> quiet = TelemetrySample(100.0, {"0": {"gpu": 3.0}, "1": {"gpu": 97.0}, "2": {"cpu": 90.0}}, {"0": "score"})
    >>> idle_gpus([quiet], now=101.0)
    {'0': 'GPU at 3 %: it scores on its CPU'}
    """
    latest = [sample for sample in samples[-LATEST:] if now - sample.at < FRESH]
    if not latest:
        return {}
    reasons = {}
    for name in latest[-1].readings:
        used = [
            sample.readings[name]["gpu"]
            for sample in latest
            if "gpu" in sample.readings.get(name, {})
        ]
        if used and fmean(used) < IDLE:
            kind = latest[-1].doing.get(name, "")
            reason = REASONS.get(kind, f"its unit ({kind}) computes on the CPU")
            reasons[name] = f"GPU at {fmean(used):.0f} %: {reason}"
    return reasons


def idle_now(folder: RunFolder) -> dict[str, str]:
    """Workers of a run or a map whose GPU idles now, with the reason."""
    return idle_gpus(read_samples(folder.telemetry), time.time())


def worker_use(entries: Sequence[Event], records: Sequence[Record]) -> pandas.DataFrame:
    """How each worker with a record or an encoding spent its time, by its name; the records are
    those of the journal's entries that count.

    Columns: ``host``; ``units``; ``busy``, the share of the run's time in which it computed;
    ``cpu``, the share of one CPU; ``memory`` and ``gpu_memory``, the greatest numbers of bytes in
    use. NaN where that is not known.
    """
    import pandas

    hosts = {entry.name: entry.host for entry in entries if isinstance(entry, WorkerJoined)}
    usage: dict[str, Mapping[str, float]] = {}
    for entry in entries:
        if isinstance(entry, UsageMeasured):
            usage |= entry.workers
    started = [entry.at for entry in entries if isinstance(entry, RunStarted)]
    ended = [entry.at for entry in entries if isinstance(entry, RunFinished)]
    length = math.nan  # unknown, unless the run was started once
    if len(started) == len(ended) == 1 and ended > started:
        length = ended[0] - started[0]
    units: Counter[str] = Counter()
    seconds = defaultdict[str, float](float)
    encodings = set()  # which scores share
    for record in records:
        if record.worker is None:  # imported
            continue
        units[record.worker] += 1
        seconds[record.worker] += record.seconds
        if isinstance(record.value, Scored):
            score = record.value
            encodings.add((score.encoded_on or record.worker, score.encode_seconds))
    for worker, encode_seconds in encodings:
        seconds[worker] += encode_seconds
    workers = sorted(seconds)
    uses = pandas.DataFrame(usage, ["cpu_seconds", "memory", "gpu_memory"], workers).T
    return pandas.DataFrame(
        {
            "host": [hosts.get(worker, "") for worker in workers],
            "units": [units[worker] for worker in workers],
            "busy": [min(seconds[worker] / length, 1.0) for worker in workers],
            "cpu": uses.pop("cpu_seconds") / length,
            **uses,
        },
        workers,
    )
