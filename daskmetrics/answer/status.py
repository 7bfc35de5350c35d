"""How far a run or a map is: one frozen value, whose serialisation is the JSON of `status`."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from daskmetrics.answer import analysis
from daskmetrics.answer.analysis import Cost
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.errors import DataError
from daskmetrics.core.events import (
    Event,
    ItemsRetried,
    MapStarted,
    Record,
    RunFinished,
    RunStarted,
    UnitAsked,
    UnitsRetried,
    UsageMeasured,
    WorkerJoined,
    from_json,
    to_json,
)
from daskmetrics.core.failures import Failure
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.machine import environment
from daskmetrics.core.names import Arm
from daskmetrics.core.results import Scored
from daskmetrics.core.serialization import build, parse
from daskmetrics.core.telemetry import PROCESS_GROUP, TelemetrySample, read_samples
from daskmetrics.execution.journal import Contents, no_collection, scan
from daskmetrics.execution.map.folder import started
from daskmetrics.execution.map.result_table import frame, text_of
from daskmetrics.execution.map.source import ItemTracker

if TYPE_CHECKING:
    import pandas

IDLE, LATEST = 10.0, 3  # a GPU is idle below this mean utilisation, per cent, over so many samples
FRESH = 60.0  # seconds after which a sample no longer says what happens now
WORTH_KEEPING = 1.05  # growth of a journal since the summary of a map, before there is a new one
STARTS_AGAIN = (MapStarted, ItemsRetried, UnitsRetried)
NO_VALUES = ["item", "status", "reason", "attempts", "worker", "key"]  # columns of no statistics
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
            "scored": sum(map(len, run.compared.values())),
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
    """

    items: int
    finished: bool
    counts: Mapping[str, int]
    text: str

    @classmethod
    def of(cls, folder: RunFolder) -> MapStatus:
        """How far a map is, as its files are now; errors as for `read_map`."""
        folder.must_exist()
        with no_collection():
            return _map_status(folder)


@dataclass(frozen=True)
class _Summary:
    """What the first bytes of a map's journal come to, kept in its folder: while these bytes are the
    same, only the entries after them are read.
    """

    digest: str = ""  # of these bytes, the items, and the version of this package
    length: int = 0
    checksum: int = 0
    succeeded: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # a table by columns
    # those of all entries that say more: the start, and the batches with another item
    entries: Sequence[Mapping[str, Any]] = ()


def _map_status(folder: RunFolder) -> MapStatus:
    import pandas

    kept, contents, digest = _read_on(folder)
    entries = [*map(from_json, kept.entries), *contents.entries]
    header, items = started(folder.path, entries)
    table = pandas.DataFrame(dict(kept.succeeded))
    known = set(kept.succeeded.get("index", ()))
    others = [item for item in items if item.index not in known]
    tracker = ItemTracker(others, header.retries, entries)
    added = frame([result for result in tracker.results() if result.ok])
    table = pandas.concat([table, added.drop(columns=NO_VALUES, errors="ignore")])
    if len(table):
        table = table.sort_values("index", ignore_index=True)
        # as `frame` has them: a field follows those that an earlier item has
        first_items = table.notna().idxmax().sort_values(kind="stable")
        table = table[first_items.index]
    failed = tracker.failed()
    if contents.length > kept.length * WORTH_KEEPING:
        summary = _Summary(
            digest,
            contents.length,
            contents.checksum,
            {str(name): column.tolist() for name, column in table.items()},
            _without_successes(entries, tracker),
        )
        # it is of another user, or the disk is full
        with suppress(OSError):
            atomic_write(folder.summary, json.dumps(vars(summary)))
    counts = Counter(["ok"] * len(table))
    counts.update(result.status for result in failed)
    is_finished = counts.total() == len(items)
    return MapStatus(len(items), is_finished, dict(counts), text_of(table, failed, len(items)))


def _read_on(folder: RunFolder) -> tuple[_Summary, Contents, str]:
    """The summary, the entries after it, and the digest of all that was read; without a summary that
    still holds, an empty one and all entries.
    """
    with suppress(OSError, ValueError, TypeError, DataError):
        kept = build(_Summary, parse(folder.summary.read_bytes()))
        digest = _digest(folder, kept.length)
        if digest.hexdigest() == kept.digest:
            contents = scan(folder.journal, kept.length, kept.checksum, digest)
            # a new start or a retry can change what is summarised
            if not any(isinstance(entry, STARTS_AGAIN) for entry in contents.entries):
                return kept, contents, digest.hexdigest()
    digest = _digest(folder, 0)
    contents = scan(folder.journal, digest=digest)
    return _Summary(), contents, digest.hexdigest()


def _digest(folder: RunFolder, length: int) -> hashlib._Hash:
    """Of this version, the items, and the first bytes of the journal."""
    digest = hashlib.sha256(str(environment("daskmetrics")).encode())
    with suppress(OSError):
        digest.update(hashlib.sha256(folder.items.read_bytes()).digest())
    with folder.journal.open("rb") as journal:
        digest.update(journal.read(length))
    return digest


def _without_successes(entries: Sequence[Event], tracker: ItemTracker) -> list[dict[str, Any]]:
    """The JSON of the entries that the state of another item than the successful ones follows
    from.
    """
    unsuccessful = {
        key for key, state in tracker.states.items() if not (state.result and state.result.ok)
    }
    batches = {
        entry.key
        for entry in entries
        if isinstance(entry, UnitAsked) and not unsuccessful.isdisjoint(entry.note.get("items", ()))
    }
    return [
        to_json(entry)
        for entry in entries
        if isinstance(entry, STARTS_AGAIN)
        or (isinstance(entry, UnitAsked | Record) and entry.key in batches)
    ]


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
