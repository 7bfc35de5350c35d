"""How far a run is: one frozen value, whose serialisation is the JSON of `status`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING

from daskmetrics.answer import analysis
from daskmetrics.answer.analysis import Cost, Leader
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.domain.events import (
    Event,
    RunFinished,
    RunStarted,
    UsageMeasured,
    WorkerJoined,
    with_results,
)
from daskmetrics.domain.failures import Failure
from daskmetrics.domain.names import Arm
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Scored

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class RunStatus:
    """Progress, failures, time and the leading arm of a run.

    The keys are those of docs/json.md.
    """

    name: str
    folder: Path
    finished: bool
    driver: str | None
    counts: Mapping[str, Mapping[str, int]]
    arms: int
    checkpoints: int
    cells: Mapping[str, int]  # scores of an exhaustive sweep, recorded, and still asked for
    leader: Leader | None
    best: Arm | None
    cost: Cost
    seconds: Mapping[str, float]  # measured on the workers, by kind of work
    failures: Sequence[Failure]
    warnings: Sequence[str]


def status_of(run: RecordedRun) -> RunStatus:
    """How far a run is, as its files are now."""
    counts: dict[str, dict[str, int]] = {}
    for (kind, status), count in run.counts.items():
        counts.setdefault(kind, {})[status] = count
    answered = {record.name for record in run.records if record.kind == "score"}
    best = run.recommendation
    if best:
        cost = analysis.cost_of(best)
    else:
        cost = analysis.Cost(sum(pick.cost for pick in run.picks), None, None)
    return RunStatus(
        name=run.plan.name,
        folder=run.folder.path,
        finished=run.finished,
        driver=run.driver,
        counts=counts,
        arms=len(run.plan.arms),
        checkpoints=len(run.plan.checkpoints),
        cells={
            "planned": run.plan.cells,
            "scored": run.compared.size,
            "open": sum(str(pick.cell) not in answered for pick in run.picks),
        },
        leader=analysis.leader(run.means),
        best=best.arm if best else None,
        cost=cost,
        seconds=analysis.spending(run.records),
        failures=analysis.failures(run.records),
        warnings=[*run.plan.warnings, *run.notices],
    )


def worker_use(entries: Sequence[Event], records: Sequence[Record]) -> pandas.DataFrame:
    """How each worker spent its time, by its name.

    The workers are those with a record or an encoding; the records are those of the journal's
    entries that count. Columns: ``host``; ``units``; ``busy``, the share of the run's time, without
    what a worker trained in the mean, in which it computed; ``cpu``, the share of one CPU;
    ``memory`` and ``gpu_memory``, the greatest numbers of bytes in use. NaN where that is not
    known.
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
    # a program trains beside the worker, and has no record of which
    trained = fsum(record.seconds for record in records if record.kind == "train")
    left = length - trained / max(1, len(hosts))
    if left <= 0:  # others trained, too
        left = math.nan
    done = [record for record in records if record.worker]
    encodings = {  # which scores share
        (score.encoded_on or record.worker, score.encode_seconds)
        for record, score in with_results(done, Scored)
    }
    work = [(record.worker, record.seconds, 1) for record in done]
    work += [(worker, seconds, 0) for worker, seconds in encodings]
    spent = pandas.DataFrame(work, columns=["worker", "seconds", "units"])
    spent = spent.groupby("worker").sum()
    uses = pandas.DataFrame(usage, ["cpu_seconds", "memory", "gpu_memory"], spent.index).T
    return pandas.DataFrame(
        {
            "host": [hosts.get(worker, "") for worker in spent.index],
            "units": spent["units"],
            "busy": (spent["seconds"] / left).clip(upper=1.0),
            "cpu": uses.pop("cpu_seconds") / length,
            **uses,
        }
    )
