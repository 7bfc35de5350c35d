"""How far a run is: one frozen value, whose serialisation is the JSON of `status`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
    with_results,
)
from daskmetrics.core.failures import Failure
from daskmetrics.core.names import Arm
from daskmetrics.core.results import Scored

if TYPE_CHECKING:
    import pandas


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


def status_of(run: RecordedRun) -> RunStatus:
    """How far a run is, as its files are now."""
    counts: dict[str, dict[str, int]] = {}
    for (kind, status), count in run.counts.items():
        counts.setdefault(kind, {})[status] = count
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
            "scored": run.cells_scored,
            "open": run.cells_open,
            "looks": run.counts["look", "ok"],
        },
        leader=analysis.leader(run),
        best=run.result.best_arm if run.result else None,
        cost=analysis.cost_of(run),
        seconds=analysis.spending(run),
        failures=analysis.failures(run),
        warnings=run.start.warnings,
    )


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
            "busy": (spent["seconds"] / length).clip(upper=1.0),
            "cpu": uses.pop("cpu_seconds") / length,
            **uses,
        }
    )
