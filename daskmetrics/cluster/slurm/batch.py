"""What the supervisor needs of a batch system: a module with these functions is one, as `commands`
is for Slurm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from daskmetrics.cluster.slurm.script import LaunchInfo, WorkerPool
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
    reason: str  # why it waits or how it ended, such as ``Priority``, ``NonZeroExitCode``, or empty
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
    # a script of ``sh``, which gets ids on its standard input, and a name, an owner and a folder
    CANCEL_ON_EXIT: str

    def script(self, profile: Cluster, pool: WorkerPool, launch: LaunchInfo) -> str:
        """The script of a worker's job."""

    def rehearse(self, script: str) -> Rehearsal:
        """Whether and when a job would start."""

    def submit(self, script: str | Path, name: str, comment: str) -> str:
        """Submit a job with this name and comment; its id."""

    def queue(
        self, ids: Collection[str] | None = None, name: str | None = None
    ) -> tuple[QueuedJob, ...]:
        """The user's jobs of a name, with the reasons that they wait for; those that ended some
        minutes ago, too.
        """

    def cancel(self, jobs: Iterable[str]) -> None:
        """Cancel jobs, given by their ids."""

    def draining(self) -> frozenset[str]:
        """Names of the nodes that take no more jobs."""


def in_each_partition(
    batch: BatchSystem, profile: Cluster, pool: WorkerPool, launch: LaunchInfo
) -> dict[str, Rehearsal]:
    """A rehearsal of a pool's job in each of its partitions; the name of the default one is empty."""
    launch = replace(launch, worker=f"{pool.name}-0")
    rehearsals = {}
    for partition in (pool.partition or "").split(","):
        job = replace(pool, partition=partition or None)
        rehearsals[partition] = batch.rehearse(batch.script(profile, job, launch))
    return rehearsals


def by_expected_start(rehearsals: Mapping[str, Rehearsal]) -> list[str]:
    """The partitions that accept a job, the earliest start first; an unknown start comes last.

    >>> soon, late = datetime(2030, 1, 1, 14), datetime(2030, 1, 2)
    >>> by_expected_start({"a": Rehearsal(late), "b": Rehearsal(refusal="is drained"), "c": Rehearsal(soon)})
    ['c', 'a']
    """
    starts = {
        name: rehearsal.start or datetime.max
        for name, rehearsal in rehearsals.items()
        if rehearsal.refusal is None
    }
    # a difference of seconds is none: the order that the user gave decides
    return sorted(starts, key=lambda name: starts[name].replace(second=0))


def summary(jobs: Iterable[QueuedJob]) -> str:
    """How many jobs run and wait, in one line.

    >>> start = datetime(2030, 1, 1, 14, 5)
    >>> summary([QueuedJob("8", "a", "PENDING", "Priority", start, 60, "", "gpu")])
    '0 running, 1 pending: Priority, first starts about 2030-01-01 14:05'
    """
    alive = [job for job in jobs if job.alive]
    pending = [job for job in alive if job.pending]
    text = f"{len(alive) - len(pending)} running, {len(pending)} pending"
    if reasons := Counter(job.reason for job in pending if job.reason):
        text += f": {', '.join(reason for reason, _ in reasons.most_common())}"
    if starts := [job.start for job in pending if job.start]:
        text += f", first starts about {min(starts):%Y-%m-%d %H:%M}"
    return text
