"""The jobs of a pool and the actions on them: decided from a snapshot, without Slurm, Dask or a
clock.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from daskmetrics.cluster.slurm.batch import QueuedJob
from daskmetrics.core.text import shortened

LONGEST_PAUSE = 600.0  # seconds between submissions while jobs keep failing


@dataclass(frozen=True)
class Job:
    """A job as it is remembered from one snapshot to the next; all times in seconds of one clock."""

    id: str
    name: str  # of its worker; with several processes those are called ``NAME-0``, ``NAME-1``, ...
    submitted: float
    incomplete_since: float | None = None  # when it began to run with too few workers
    arrived: bool = False  # whether one of its workers has ever arrived
    leaving: bool = False  # whether it no longer counts, and a replacement was or will be submitted
    drained: bool = False  # whether its workers get no more work
    step: int = 0  # which memory of `Rules.memories` it has

    def task_counts(self, workers: Mapping[str, int]) -> list[int]:
        """The number of tasks on each of its workers that have arrived."""
        return [
            tasks
            for name, tasks in workers.items()
            if name == self.name or name.startswith(f"{self.name}-")
        ]


@dataclass(frozen=True)
class Snapshot:
    """The state of queue and workers at one moment."""

    now: float  # when the queue was read
    queue: Mapping[str, QueuedJob]  # the jobs of the queue, by id
    # the number of tasks on each worker that has arrived, by the worker's name
    workers: Mapping[str, int] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()  # nodes that take no more jobs
    killed: frozenset[str] = frozenset()  # names of workers that were killed for their memory


@dataclass(frozen=True)
class Rules:
    """Limits and times by which the jobs of a pool are managed."""

    processes: int = 1  # workers per job
    failures: int = 5  # after so many failed jobs in a row, with no job at work, the cluster ends
    connect_within: float = 300.0  # seconds for the workers of a running job to arrive
    lead: float = 600.0  # seconds before a job's time limit at which its replacement is submitted
    early: float = 60.0  # seconds before a job's time limit at which its workers take no more work
    # seconds before the next submission after a failed job; doubled with each further failure
    pause: float = 1.0
    # the memory of a worker at first, and after each kill for memory
    memories: tuple[str | None, ...] = (None,)


@dataclass(frozen=True)
class SubmitJobs:
    """Submit this number of jobs."""

    count: int


@dataclass(frozen=True)
class Cancel:
    """Cancel these jobs."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Drain:
    """Give the workers of these jobs no more work; running tasks are finished."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Report:
    """Show a line to the user."""

    text: str


@dataclass(frozen=True)
class Stop:
    """End the cluster for this reason; the log of the job, if there is one, shows more."""

    reason: str
    job: Job | None = None


Action: TypeAlias = SubmitJobs | Cancel | Drain | Report | Stop


@dataclass(frozen=True)
class JobSet:
    """The jobs of one pool, and the failures of the latest ones."""

    jobs: tuple[Job, ...] = ()
    failed: int = 0  # jobs that failed or were refused since the last arrival of a worker
    not_before: float = 0.0  # when the next job may be submitted
    latest_failure: Stop | None = None  # why the latest one failed
    step: int = 0  # which memory of `Rules.memories` the next job gets

    def with_job(self, job: Job) -> JobSet:
        """The set with one more job, which Slurm has accepted."""
        return replace(self, jobs=(*self.jobs, job))

    def with_failures(self, count: int, failure: Stop, now: float, rules: Rules) -> JobSet:
        """The set after this number of further failures."""
        failed = self.failed + count
        pause = min(LONGEST_PAUSE, rules.pause * 2 ** min(failed, 16))
        return replace(self, failed=failed, not_before=now + pause, latest_failure=failure)


@dataclass(frozen=True)
class _JobUpdate:
    """What a snapshot means for one job: its new state, or how it ended."""

    job: Job
    end: str | None = None
    cancel: bool = False
    drain: bool = False
    has_arrived: bool = False
    killed: bool = False  # it or one of its workers was killed for memory, of which there is more

    @property
    def failed(self) -> bool:
        """Whether the job ended before one of its workers arrived."""
        return self.end is not None and not self.job.arrived and not self.job.leaving


def decide(
    jobs: JobSet, snapshot: Snapshot, rules: Rules, workers: int
) -> tuple[JobSet, Sequence[Action]]:
    """The actions that bring a pool to a number of workers, and its jobs to be passed with the next
    snapshot.

    >>> jobs, actions = decide(JobSet(), Snapshot(now=0.0, queue={}), Rules(processes=4), workers=32)
    >>> actions
    (SubmitJobs(count=8),)
    """
    updates = [_update(job, snapshot, rules) for job in jobs.jobs]
    jobs = replace(jobs, jobs=tuple(update.job for update in updates if update.end is None))
    if any(update.has_arrived for update in updates):
        jobs = replace(jobs, failed=0, not_before=0.0, latest_failure=None)
    if failures := [update for update in updates if update.failed]:
        latest = failures[-1]
        reason = Stop(f"job {latest.job.id} {latest.end}", latest.job)
        jobs = jobs.with_failures(len(failures), reason, snapshot.now, rules)

    actions: list[Action] = list(_reports(updates))
    step = max((update.job.step + 1 for update in updates if update.killed), default=0)
    if step > jobs.step:
        memory = rules.memories[step]
        actions.append(
            Report(f"A worker was killed for its memory: further jobs get {memory} per worker.")
        )
        jobs = replace(jobs, step=step)
    actions += _unless_empty(Cancel, (update.job for update in updates if update.cancel))
    actions += _unless_empty(Drain, (update.job for update in updates if update.drain))
    # no job has workers that could continue alone
    if (
        jobs.failed >= rules.failures
        and jobs.latest_failure
        and not any(job.arrived for job in jobs.jobs)
    ):
        summary = f"{jobs.failed} jobs in a row failed; the last: {jobs.latest_failure.reason}."
        return jobs, (*actions, Stop(summary, jobs.latest_failure.job))
    jobs, changes = _resize(jobs, snapshot, rules, target=-(-workers // rules.processes))
    return jobs, (*actions, *changes)


def _update(job: Job, snapshot: Snapshot, rules: Rules) -> _JobUpdate:
    queued = snapshot.queue.get(job.id)
    tasks = job.task_counts(snapshot.workers)
    can_grow = job.step + 1 < len(rules.memories)
    killed = can_grow and bool(job.task_counts(dict.fromkeys(snapshot.killed, 0)))

    if queued is None:
        if job.submitted >= snapshot.now:
            return _JobUpdate(job)  # it was submitted after the snapshot
        return _JobUpdate(job, end="is no longer in the queue", killed=killed)
    if not queued.alive:
        killed |= can_grow and queued.state == "OUT_OF_MEMORY"
        return _JobUpdate(job, end=_end(queued), killed=killed)
    if queued.pending:
        return _JobUpdate(replace(job, incomplete_since=None))

    has_arrived = bool(tasks) and not job.arrived
    incomplete_since = job.incomplete_since
    if len(tasks) >= rules.processes:
        incomplete_since = None
    elif incomplete_since is None:
        incomplete_since = snapshot.now
    late = incomplete_since is not None and (
        snapshot.now - incomplete_since >= rules.connect_within
    )
    job = replace(job, incomplete_since=incomplete_since, arrived=job.arrived or bool(tasks))
    if late and not tasks:
        end = f"on {queued.nodes} has run for {rules.connect_within:g} s, but its worker did not arrive"
        return _JobUpdate(job, end=end, cancel=True)

    seconds_left = math.inf
    if queued.left is not None:
        seconds_left = queued.left
    off_duty = late or killed or seconds_left <= rules.early or queued.nodes in snapshot.draining
    leaving = job.leaving or off_duty or seconds_left <= rules.lead
    if job.drained and not any(tasks):
        return _JobUpdate(job, end="has no more work", cancel=True, killed=killed)
    # drained first and cancelled with a later snapshot: tasks sent to it in between run elsewhere
    drain = not job.drained and (off_duty or (leaving and not any(tasks)))
    job = replace(job, leaving=leaving, drained=job.drained or drain)
    return _JobUpdate(job, drain=drain, has_arrived=has_arrived, killed=killed)


def _end(queued: QueuedJob) -> str:
    end = f"ended as {queued.state}"
    if queued.state == "COMPLETING":  # Slurm does not report yet how it ended
        end = "is ending"
    if queued.reason:
        end += f" ({queued.reason})"
    if queued.nodes:
        end += f" on {queued.nodes}"
    return end


def _reports(updates: Iterable[_JobUpdate]) -> Iterator[Report]:
    """One line for all jobs that ended alike; jobs that were to leave are not reported."""
    lost_jobs: defaultdict[str, list[str]] = defaultdict(list)
    for update in updates:
        if update.end and not update.job.leaving:
            lost_jobs[update.end].append(update.job.id)
    for end, ids in sorted(lost_jobs.items()):
        if len(ids) == 1:
            yield Report(f"Job {ids[0]} {end}.")
        else:
            yield Report(f"{len(ids)} jobs, {shortened(ids, 8)}: each {end}.")


def _unless_empty(
    action: type[Cancel] | type[Drain], jobs: Iterable[Job]
) -> tuple[Cancel | Drain, ...]:
    if jobs := tuple(jobs):
        return (action(jobs),)
    return ()


def _resize(
    jobs: JobSet, snapshot: Snapshot, rules: Rules, target: int
) -> tuple[JobSet, Sequence[Action]]:
    """Submit missing jobs, or release surplus ones."""
    serving = [job for job in jobs.jobs if not job.leaving]
    if len(serving) > target:

        def order(job: Job) -> tuple[int, bool, int, float]:
            """Those with less memory are released first, then without a worker, with the fewest
            tasks, the youngest.
            """
            tasks = job.task_counts(snapshot.workers)
            return job.step, bool(tasks), sum(tasks), -job.submitted

        return _release(jobs, snapshot, sorted(serving, key=order)[: len(serving) - target])

    count = target - len(serving)
    if jobs.failed and snapshot.now < jobs.not_before:
        count = 0
    elif jobs.failed >= rules.failures:
        # while other jobs work, a single one shows from time to time whether jobs start again
        count = min(count, 1)
    if count <= 0:
        return jobs, ()
    return jobs, (SubmitJobs(count),)


def _release(
    jobs: JobSet, snapshot: Snapshot, surplus: Sequence[Job]
) -> tuple[JobSet, Sequence[Action]]:
    """Cancel surplus jobs that are idle, and drain the busy ones."""
    idle = [job for job in surplus if not any(job.task_counts(snapshot.workers))]
    drained = {job: replace(job, leaving=True, drained=True) for job in surplus if job not in idle}
    remaining = tuple(drained.get(job, job) for job in jobs.jobs if job not in idle)
    return replace(jobs, jobs=remaining), (
        *_unless_empty(Cancel, idle),
        *_unless_empty(Drain, drained.values()),
    )


def demand(task_counts: Sequence[int]) -> int:
    """How many workers have work, from the number of tasks on each.

    While all are busy, more work may be waiting than is visible here, so that the number is
    doubled.

    >>> demand([1, 1, 1]), demand([1, 0, 1]), demand([])
    (6, 2, 0)
    """
    busy = sum(tasks > 0 for tasks in task_counts)
    if busy == len(task_counts):
        return 2 * busy
    return busy


def adaptive_size(demands: Iterable[int], fewest: int, most: int) -> int:
    """The number of workers of an adaptive pool: the largest recent demand, within limits.

    >>> adaptive_size([3, 9, 4], fewest=1, most=8), adaptive_size([], fewest=2, most=8)
    (8, 2)
    """
    return max(fewest, min(most, max(demands, default=0)))
