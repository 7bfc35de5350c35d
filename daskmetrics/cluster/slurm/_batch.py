"""What the supervisor needs of a batch system: a module with these functions is one, as `_slurm` is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from daskmetrics.cluster.slurm._script import LaunchInfo, WorkerPool
from daskmetrics.config import Cluster
from daskmetrics.core.errors import DaskmetricsError

PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
ALIVE = PENDING | {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}


class BatchError(DaskmetricsError):
    """A command of the batch system failed; the message is its own."""

    @property
    def is_transient(self) -> bool:
        """Whether the system did not answer, which says nothing about the request."""
        return False


@dataclass(frozen=True)
class QueuedJob:
    """A job as the queue shows it."""

    id: str
    name: str
    state: str  # in Slurm's long form, such as ``PENDING``
    # why it waits or how it ended, in Slurm's word: ``Priority``, ``NonZeroExitCode``; empty if there is none
    reason: str
    start: datetime | None  # when it started, or is expected to, in the cluster's own time zone
    left: int | None  # seconds until its time limit; None without a limit
    nodes: str
    partition: str

    @property
    def pending(self) -> bool:
        return self.state in PENDING

    @property
    def alive(self) -> bool:
        """Whether it has not ended; a job in the state ``COMPLETING`` counts as ended."""
        return self.state in ALIVE


@dataclass(frozen=True)
class Rehearsal:
    """Whether the batch system would accept a job, of which nothing is submitted."""

    start: datetime | None = None  # when the job would start
    nodes: str = ""
    refusal: str | None = None  # why it would be refused, in the system's words


class BatchSystem(Protocol):
    """A batch system; its functions raise `BatchError` if a command fails."""

    NAME: str
    CANCEL_ON_EXIT: str  # a script of ``sh``, which gets ids on its standard input, and a name, an owner and a folder

    def script(self, profile: Cluster, pool: WorkerPool, launch: LaunchInfo) -> str:
        """The script of a worker's job."""

    def rehearse(self, script: str) -> Rehearsal:
        """Whether and when a job would start."""

    def submit(self, script: str | Path, name: str, comment: str) -> str:
        """Submit a job with this name and comment; its id."""

    def queue(self, ids: Collection[str] | None = None, name: str | None = None) -> tuple[QueuedJob, ...]:
        """The user's jobs of a name, with the reasons that they wait for; those that ended some minutes ago, too."""

    def cancel(self, jobs: Iterable[str]) -> None:
        """Cancel jobs, given by their ids."""

    def draining(self) -> frozenset[str]:
        """Names of the nodes that take no more jobs."""


def in_each_partition(
    batch: BatchSystem, profile: Cluster, pool: WorkerPool, launch: LaunchInfo
) -> dict[str, Rehearsal]:
    """A rehearsal of a pool's job in each of its partitions."""
    launch = replace(launch, worker=f"{pool.name}-0")
    each = {name: replace(pool, partition=name or None) for name in (pool.partition or "").split(",")}
    return {name: batch.rehearse(batch.script(profile, one, launch)) for name, one in each.items()}


def by_expected_start(rehearsals: Mapping[str, Rehearsal]) -> tuple[str, str]:
    """Of some partitions those that accept a job, the earliest start first, joined by commas; and a text about all.

    >>> soon, late = datetime(2030, 1, 1, 14), datetime(2030, 1, 2)
    >>> by_expected_start({"a": Rehearsal(late), "b": Rehearsal(refusal="is drained"), "c": Rehearsal(soon)})
    ('c,a', 'c (about 2030-01-01 14:00), a (about 2030-01-02 00:00); not b: is drained')
    """
    starts = {name: each.start or datetime.max for name, each in rehearsals.items() if each.refusal is None}
    able = sorted(starts, key=lambda name: _minute(starts[name]))
    known = [name if (start := rehearsals[name].start) is None else f"{name} (about {_minute(start)})" for name in able]
    refused = [f"not {name}: {each.refusal}" for name, each in rehearsals.items() if each.refusal is not None]
    return ",".join(able), "; ".join(filter(None, (", ".join(known), *refused)))


def summary(jobs: Iterable[QueuedJob]) -> str:
    """How many jobs run and wait, in one line.

    >>> start = datetime(2030, 1, 1, 14, 5)
    >>> summary([QueuedJob("8", "a", "PENDING", "Priority", start, 60, "", "gpu")])
    '0 running, 1 pending: Priority, first starts about 2030-01-01 14:05'
    """
    alive = [job for job in jobs if job.alive]
    waiting = [job for job in alive if job.pending]
    text = f"{len(alive) - len(waiting)} running, {len(waiting)} pending"
    if reasons := Counter(job.reason for job in waiting if job.reason):
        text += f": {', '.join(reason for reason, _ in reasons.most_common())}"
    starts = [job.start for job in waiting if job.start]
    return f"{text}, first starts about {_minute(min(starts))}" if starts else text


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"
