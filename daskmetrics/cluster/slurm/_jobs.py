"""The jobs of a pool and what is to be done about them: decided from what is seen, without Slurm, Dask or a clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeAlias

from daskmetrics.cluster.slurm._commands import QueuedJob

LONGEST_PAUSE = 600.0  # seconds between tries where jobs keep failing


@dataclass(frozen=True)
class Job:
    """A job as it is remembered from look to look; all times in seconds of one clock.

    Attributes
    ----------
    id : str
    name : str
        Of its worker; with several processes those are called ``NAME-0``, ``NAME-1``, ...
    submitted : float
    lacking : float or None
        Since when it runs with fewer workers than it should have.
    arrived : bool
        Whether a worker of it was ever there.
    leaving : bool
        Whether it counts no more, and another was or will be asked for.
    drained : bool
        Whether its workers get no more work.
    """

    id: str
    name: str
    submitted: float
    lacking: float | None = None
    arrived: bool = False
    leaving: bool = False
    drained: bool = False

    def held(self, workers: Mapping[str, int]) -> list[int]:
        """How many tasks each of its workers holds, of those that are there."""
        return [tasks for name, tasks in workers.items() if name == self.name or name.startswith(f"{self.name}-")]


@dataclass(frozen=True)
class Snapshot:
    """What there is at one moment.

    Attributes
    ----------
    now : float
        When Slurm was asked.
    rows : mapping
        Of the queue, by id.
    workers : mapping
        By the name of each worker that is there: how many tasks it holds.
    draining : collection of str
        Nodes that are to take no more jobs.
    """

    now: float
    rows: Mapping[str, QueuedJob]
    workers: Mapping[str, int] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rules:
    """How a pool is kept.

    Attributes
    ----------
    processes : int
        Workers per job.
    max_jobs : int or None
    failures : int
        So many jobs that fail one after the other, with none at work, end it.
    connect_within : float
        Seconds for the workers of a running job to be there.
    lead : float
        Seconds before its end at which another job is asked for.
    early : float
        Seconds before its end at which its workers take no more work.
    pause : float
        Seconds before a job is asked for after one that failed; doubled with each further failure.
    """

    processes: int = 1
    max_jobs: int | None = None
    failures: int = 5
    connect_within: float = 300.0
    lead: float = 600.0
    early: float = 60.0
    pause: float = 1.0


@dataclass(frozen=True)
class SubmitJobs:
    """Ask Slurm for so many jobs."""

    count: int


@dataclass(frozen=True)
class Cancel:
    """End these jobs."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Drain:
    """Give the workers of these jobs no more work; what they run is finished."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Report:
    """A line for the user."""

    text: str


@dataclass(frozen=True)
class Stop:
    """Nothing helps: end it, with the reason, and the job whose log tells more."""

    reason: str
    job: Job | None = None


Action: TypeAlias = SubmitJobs | Cancel | Drain | Report | Stop


@dataclass(frozen=True)
class JobSet:
    """The jobs of one pool, and how the last ones fared.

    Attributes
    ----------
    jobs : tuple of Job
    failed : int
        Jobs that failed, or were refused, since a worker last arrived.
    not_before : float
        When the next job may be asked for.
    last : Stop or None
        Why the last one failed.
    """

    jobs: tuple[Job, ...] = ()
    failed: int = 0
    not_before: float = 0.0
    last: Stop | None = None

    def took(self, job: Job) -> JobSet:
        """With a job that Slurm has taken."""
        return replace(self, jobs=(*self.jobs, job))

    def failing(self, count: int, last: Stop, now: float, rules: Rules) -> JobSet:
        """After so many further failures."""
        failed = self.failed + count
        pause = min(LONGEST_PAUSE, rules.pause * 2 ** min(failed, 16))
        return replace(self, failed=failed, not_before=now + pause, last=last)


@dataclass(frozen=True)
class _JobUpdate:
    """What a look says of one job: as it is remembered now, or why it is gone."""

    job: Job
    gone: str | None = None
    cancel: bool = False
    drain: bool = False
    came: bool = False

    @property
    def failure(self) -> bool:
        """Whether it ended before it was of any use."""
        return self.gone is not None and not self.job.arrived and not self.job.leaving


def decide(fleet: JobSet, look: Snapshot, rules: Rules, wanted: int) -> tuple[JobSet, Sequence[Action]]:
    """What is to be done so that there are as many workers as are wanted.

    Parameters
    ----------
    fleet : JobSet
    look : Snapshot
    rules : Rules
    wanted : int
        Workers.

    Returns
    -------
    JobSet
        To be handed in with the next look.
    sequence of Action

    Examples
    --------
    >>> fleet, actions = decide(JobSet(), Snapshot(now=0.0, rows={}), Rules(processes=4), wanted=32)
    >>> actions
    (SubmitJobs(count=8),)
    """
    verdicts = [_judge(job, look, rules) for job in fleet.jobs]
    fleet = replace(fleet, jobs=tuple(verdict.job for verdict in verdicts if verdict.gone is None))
    if any(verdict.came for verdict in verdicts):
        fleet = replace(fleet, failed=0, not_before=0.0, last=None)
    if failures := [verdict for verdict in verdicts if verdict.failure]:
        last = failures[-1]
        fleet = fleet.failing(len(failures), Stop(f"job {last.job.id} {last.gone}", last.job), look.now, rules)
    actions = [
        *_told(verdicts),
        *_some(Cancel, (verdict.job for verdict in verdicts if verdict.cancel)),
        *_some(Drain, (verdict.job for verdict in verdicts if verdict.drain)),
    ]
    if (stop := hopeless(fleet, rules)) is not None:
        return fleet, (*actions, stop)
    fleet, more = _resize(fleet, look, rules, -(-wanted // rules.processes))
    return fleet, (*actions, *more)


def hopeless(fleet: JobSet, rules: Rules) -> Stop | None:
    """Whether to give up: as many failures as are borne, and no job at work that could go on alone."""
    if fleet.failed < rules.failures or fleet.last is None or any(job.arrived for job in fleet.jobs):
        return None
    reason = f"{fleet.failed} jobs in a row came to nothing; the last: {fleet.last.reason}."
    return Stop(reason, fleet.last.job)


def _judge(job: Job, look: Snapshot, rules: Rules) -> _JobUpdate:
    row, held = look.rows.get(job.id), job.held(look.workers)
    if row is None or not row.alive:
        if row is None and job.submitted >= look.now:
            return _JobUpdate(job)  # younger than the look
        return _JobUpdate(job, gone=_ended(row))
    if row.pending:
        return _JobUpdate(replace(job, lacking=None))
    came = bool(held) and not job.arrived
    complete = len(held) >= rules.processes
    lacking = None if complete else look.now if job.lacking is None else job.lacking
    late = lacking is not None and look.now - lacking >= rules.connect_within
    job = replace(job, lacking=lacking, arrived=job.arrived or bool(held))
    if late and not held:
        told = f"on {row.nodes} has run for {rules.connect_within:g} s without its worker"
        return _JobUpdate(job, gone=told, cancel=True)
    ends = row.left is not None and row.left <= rules.early
    off_duty = late or ends or row.nodes in look.draining
    leaving = job.leaving or off_duty or (row.left is not None and row.left <= rules.lead)
    if job.drained and not any(held):
        return _JobUpdate(job, gone="has nothing more to do", cancel=True)
    # drained first and ended at a later look: what is on its way to it meanwhile goes elsewhere
    drain = not job.drained and (off_duty or (leaving and not any(held)))
    return _JobUpdate(replace(job, leaving=leaving, drained=job.drained or drain), drain=drain, came=came)


def _ended(row: QueuedJob | None) -> str:
    if row is None:
        return "is not in the queue any more"
    how = "is ending" if row.state == "COMPLETING" else f"ended as {row.state}"  # as what, Slurm tells only then
    reason = f" ({row.reason})" if row.reason else ""
    return f"{how}{reason}" + (f" on {row.nodes}" if row.nodes else "")


def _told(verdicts: Iterable[_JobUpdate]) -> Iterator[Report]:
    """One line for jobs that ended alike; those that were to leave are no news."""
    lost = [verdict for verdict in verdicts if verdict.gone and not verdict.job.leaving]
    for how, alike in groupby(sorted(lost, key=lambda verdict: str(verdict.gone)), key=lambda verdict: verdict.gone):
        ids = [verdict.job.id for verdict in alike]
        shown = ", ".join(ids[:8]) + (" ..." if len(ids) > 8 else "")
        yield Report(f"Job {shown} {how}." if len(ids) == 1 else f"{len(ids)} jobs, {shown}: each {how}.")


def _some(kind: type[Cancel] | type[Drain], jobs: Iterable[Job]) -> Iterator[Cancel | Drain]:
    if some := tuple(jobs):
        yield kind(some)


def _resize(fleet: JobSet, look: Snapshot, rules: Rules, wanted: int) -> tuple[JobSet, Sequence[Action]]:
    """Ask for jobs that are lacking, or part with those that are too many."""
    serving = [job for job in fleet.jobs if not job.leaving]
    if len(serving) > wanted:
        return _part(fleet, look, sorted(serving, key=lambda job: _worth(job, look))[: len(serving) - wanted])
    count = wanted - len(serving)
    if rules.max_jobs is not None:
        count = min(count, rules.max_jobs - len(fleet.jobs))
    if fleet.failed:
        # while some are at work a single job now and then tries whether it is well again
        count = 0 if look.now < fleet.not_before else min(count, 1) if fleet.failed >= rules.failures else count
    return fleet, (SubmitJobs(count),) if count > 0 else ()


def _part(fleet: JobSet, look: Snapshot, surplus: Sequence[Job]) -> tuple[JobSet, Sequence[Action]]:
    idle = [job for job in surplus if not any(job.held(look.workers))]
    busy = {job.id for job in surplus if job not in idle}
    kept = [job for job in fleet.jobs if job not in idle]
    jobs = tuple(replace(job, leaving=True, drained=True) if job.id in busy else job for job in kept)
    parting = (job for job in jobs if job.id in busy)
    return replace(fleet, jobs=jobs), (*_some(Cancel, idle), *_some(Drain, parting))


def _worth(job: Job, look: Snapshot) -> tuple[bool, int, float]:
    """Jobs that are parted with first: those without a worker, then those with the least to do, then the youngest."""
    held = job.held(look.workers)
    return bool(held), sum(held), -job.submitted


def demand(held: Sequence[int]) -> int:
    """How many workers there would be work for, from the tasks that each of those there holds.

    While all are busy more work may be waiting than is seen here, so that their number is doubled.

    Examples
    --------
    >>> demand([1, 1, 1]), demand([1, 0, 1]), demand([])
    (6, 2, 0)
    """
    busy = sum(tasks > 0 for tasks in held)
    return 2 * busy if busy == len(held) else busy


def follow(demands: Iterable[int], fewest: int, most: int) -> int:
    """How many workers an adaptive pool should have: as many as there was work for in the last while, within limits.

    Examples
    --------
    >>> follow([3, 9, 4], fewest=1, most=8), follow([], fewest=2, most=8)
    (8, 2)
    """
    return max(fewest, min(most, max(demands, default=0)))
