"""The jobs of a pool and what to do about them: decided from a snapshot, without Slurm, Dask or a
clock.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from daskmetrics.cluster.slurm.commands import QueuedJob
from daskmetrics.core.text import shortened

NODE_FAILURES = 2  # failed jobs on one node, after which further jobs exclude it
OTHERS_DOING = ("CANCELLED", "PREEMPTED", "REVOKED", "DEADLINE")  # ends that no node causes
LONGEST_PAUSE = 600.0  # seconds between submissions while jobs keep failing


@dataclass(frozen=True)
class Job:
    """A job as it is remembered from one snapshot to the next.

    All times in seconds of one clock.
    """

    id: str
    name: str  # of its worker; with several processes those are called ``NAME-0``, ``NAME-1``, ...
    submitted: float
    incomplete_since: float = math.inf  # when it began to run with too few workers
    missing: bool = False  # whether the latest queue lacked it
    arrived: bool = False  # whether one of its workers has ever arrived
    leaving: bool = False  # whether it no longer counts, and a replacement was or will be submitted
    drained: bool = False  # whether its workers get no more work
    step: int = 0  # which memory of `Rules.memories` it has
    node: str = ""  # where it runs or ran, once a queue has shown it

    def owns(self, worker: str) -> bool:
        """Whether a worker of this name is one of its processes."""
        return worker == self.name or worker.startswith(f"{self.name}-")

    def task_counts(self, workers: Mapping[str, int]) -> list[int]:
        """The number of tasks on each of its workers that are connected."""
        return [tasks for name, tasks in workers.items() if self.owns(name)]


@dataclass(frozen=True)
class Snapshot:
    """The state of queue and workers at one moment."""

    now: float  # when the queue was read
    queue: Mapping[str, QueuedJob]  # the jobs of the queue, by id
    # the number of tasks on each worker that is connected, by the worker's name
    workers: Mapping[str, int] = field(default_factory=dict)
    arrivals: frozenset[str] = frozenset()  # names of all workers so far
    draining: frozenset[str] = frozenset()  # nodes that take no more jobs
    killed: frozenset[str] = frozenset()  # names of workers that were killed for their memory
    refused: frozenset[str] = frozenset()  # names of workers whose versions the driver refused


@dataclass(frozen=True)
class Rules:
    """Limits and times by which the jobs of a pool are managed."""

    processes: int = 1  # workers per job
    failures: int = 5  # after so many failed jobs in a row, with no job at work, the cluster ends
    connect_within: float = 300.0  # seconds for the workers of a running job to arrive
    # seconds after its submission in which the queue, which some sites cache, may lack a job
    appear_within: float = 60.0
    lead: float = 600.0  # seconds before a job's time limit at which its replacement is submitted
    early: float = 60.0  # seconds before a job's time limit at which its workers take no more work
    patience: float = 600.0  # seconds for which Slurm may refuse jobs, such as those above a limit
    # seconds before the next submission after a failed job; doubled with each further failure
    pause: float = 1.0
    # the memory of a worker at first, and after each kill for memory
    memories: tuple[str | None, ...] = (None,)


@dataclass(frozen=True)
class JobFailure:
    """Why a job failed or was refused.

    The log of the job, if there is one, shows more.
    """

    reason: str
    job: Job | None = None
    node: str = ""  # the one to blame


@dataclass(frozen=True)
class JobSet:
    """The jobs of one pool, and the failures of the latest ones."""

    jobs: tuple[Job, ...] = ()
    failed: int = 0  # jobs that failed or were refused since the last arrival of a worker
    failing_since: float = math.inf  # when the first of them did
    not_before: float = 0.0  # when the next job may be submitted
    latest_failure: JobFailure | None = None
    step: int = 0  # which memory of `Rules.memories` the next job gets
    failed_on: Mapping[str, int] = field(default_factory=dict)  # failed jobs, by node

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes that break jobs."""
        counts = self.failed_on.items()
        return tuple(sorted(node for node, count in counts if count >= NODE_FAILURES))

    @property
    def is_unsettled(self) -> bool:
        """Whether the queue should be read again soon.

        Jobs fail, or one has lost a worker.
        """
        return self.failed > 0 or any(
            job.arrived and not job.leaving and (job.missing or job.incomplete_since < math.inf)
            for job in self.jobs
        )

    def with_failures(self, failures: Sequence[JobFailure], now: float, rules: Rules) -> JobSet:
        """The set after further failures.

        Of those on one node only the first few count towards the end of the cluster: then the node
        is excluded, and others are tried.
        """
        failed = self.failed
        failed_on = Counter(self.failed_on)
        for failure in failures:
            if failure.node:
                failed_on[failure.node] += 1
            failed += failed_on[failure.node] <= NODE_FAILURES
        pause = min(LONGEST_PAUSE, rules.pause * 2 ** min(failed, 16))
        return replace(
            self,
            failed=failed,
            failing_since=min(self.failing_since, now),
            not_before=now + pause,
            latest_failure=failures[-1],
            failed_on=failed_on,
        )


@dataclass(frozen=True)
class PoolDecision:
    """What to do now, and the jobs to be passed with the next snapshot.

    The workers of jobs that are drained get no more work.
    """

    jobs: JobSet
    submit: int = 0  # how many jobs
    cancel: tuple[Job, ...] = ()
    lines: tuple[str, ...] = ()  # for the user
    newly_excluded: tuple[Job, ...] = ()  # the latest failed job of each node that breaks jobs
    stop: JobFailure | None = None  # why the cluster ends


@dataclass(frozen=True)
class _JobUpdate:
    """What a snapshot means for one job: its new state, or how it ended.

    One that has ended for us is cancelled: Slurm may queue it again, and its place is taken.
    """

    job: Job
    end: str | None = None
    blame: bool = True  # its node for its end before a worker arrived
    killed: bool = False  # it or one of its workers was killed for memory, of which there is more

    @property
    def is_failure(self) -> bool:
        """Whether it has ended before one of its workers arrived."""
        return bool(self.end) and not self.job.arrived and not self.job.leaving

    @property
    def failure(self) -> JobFailure:
        node = self.job.node if self.blame else ""
        return JobFailure(f"job {self.job.id} {self.end}", self.job, node)


def decide(jobs: JobSet, snapshot: Snapshot, rules: Rules, workers: int) -> PoolDecision:
    """What brings a pool to a number of workers.

    A connected worker is the truth: its job has arrived and is not lost, whatever the queue shows.

    >>> decide(JobSet(), Snapshot(now=0.0, queue={}), Rules(processes=4), workers=32).submit
    8
    """
    updates = [_update(job, snapshot, rules) for job in jobs.jobs]
    arrived_before = {job.id for job in jobs.jobs if job.arrived}
    excluded_before = jobs.excluded
    kept = tuple(update.job for update in updates if update.end is None)
    jobs = replace(jobs, jobs=kept)
    if {update.job.id for update in updates if update.job.arrived} - arrived_before:
        jobs = replace(jobs, failed=0, failing_since=math.inf, not_before=0.0, latest_failure=None)
    failures = [update.failure for update in updates if update.is_failure]
    if failures:
        jobs = jobs.with_failures(failures, snapshot.now, rules)
    last_on = {failure.node: failure.job for failure in failures if failure.job}
    excluded = tuple(last_on[node] for node in jobs.excluded if node not in excluded_before)
    lines = list(_describe_ends(updates))
    step = max((update.job.step + 1 for update in updates if update.killed), default=0)
    if step > jobs.step:
        memory = rules.memories[step]
        lines.append(f"A worker was killed for its memory: further jobs get {memory} per worker.")
        jobs = replace(jobs, step=step)
    cancelled = tuple(update.job for update in updates if update.end)

    failure = jobs.latest_failure
    has_survivors = any(job.arrived for job in jobs.jobs)  # their workers can continue alone
    if has_survivors or jobs.failed < rules.failures:
        failure = None
    # a refusal may pass, as that of a job above a limit
    if failure and (failure.job or snapshot.now - jobs.failing_since >= rules.patience):
        reason = f"{jobs.failed} jobs in a row failed; the last: {failure.reason}."
        stop = replace(failure, reason=reason)
        return PoolDecision(jobs, 0, cancelled, tuple(lines), excluded, stop)
    target = -(-workers // rules.processes)
    surplus = _surplus(jobs, snapshot, target)
    idle = [job for job in surplus if not any(job.task_counts(snapshot.workers))]
    remaining = [
        replace(job, leaving=True, drained=True) if job in surplus else job
        for job in jobs.jobs
        if job not in idle
    ]
    jobs = replace(jobs, jobs=tuple(remaining))
    submit = max(0, target - sum(not job.leaving for job in remaining))
    if jobs.failed and snapshot.now < jobs.not_before:
        submit = 0
    if jobs.failed >= rules.failures:
        # while other jobs work, a single one shows from time to time whether jobs start again
        submit = min(submit, 1)
    return PoolDecision(jobs, submit, (*cancelled, *idle), tuple(lines), excluded)


def _update(job: Job, snapshot: Snapshot, rules: Rules) -> _JobUpdate:
    queued = snapshot.queue.get(job.id)
    tasks = job.task_counts(snapshot.workers)
    connected = (*snapshot.arrivals, *snapshot.workers)
    has_arrived = job.arrived or any(map(job.owns, connected))
    was_missing = job.missing
    is_missing = queued is None and not tasks
    node = job.node
    if queued and queued.nodes:
        node = queued.nodes
    job = replace(job, arrived=has_arrived, missing=is_missing, node=node)
    if any(map(job.owns, snapshot.refused)):
        where = node or "an unknown node"
        end = f"on {where} was refused: its worker has other versions than the driver"
        return _JobUpdate(replace(job, arrived=False), end)
    can_grow = job.step + 1 < len(rules.memories)
    killed = can_grow and any(map(job.owns, snapshot.killed))

    if queued is None:
        is_new = snapshot.now - job.submitted < rules.appear_within
        if not (was_missing and is_missing) or is_new:
            return _JobUpdate(job)
        return _JobUpdate(job, "is no longer in the queue", killed=killed)
    is_ending = queued.state == "COMPLETING"  # Slurm does not report yet how it ended
    if queued.ended or (is_ending and has_arrived):
        killed |= can_grow and queued.state == "OUT_OF_MEMORY"
        return _JobUpdate(job, _describe_end(queued), queued.state not in OTHERS_DOING, killed)
    if queued.pending:
        return _JobUpdate(replace(job, incomplete_since=math.inf))

    incomplete_since = math.inf
    if len(tasks) < rules.processes:
        incomplete_since = min(job.incomplete_since, snapshot.now)
    late = snapshot.now - incomplete_since >= rules.connect_within
    job = replace(job, incomplete_since=incomplete_since)
    if late and not tasks:
        end = (
            f"on {queued.nodes} has run for {rules.connect_within:g} s, but its worker did not"
            " arrive"
        )
        return _JobUpdate(job, end)
    if is_ending:
        return _JobUpdate(job)

    seconds_left = math.inf
    if queued.left is not None:
        seconds_left = queued.left
    off_duty = late or killed or seconds_left <= rules.early or queued.nodes in snapshot.draining
    leaving = job.leaving or off_duty or seconds_left <= rules.lead
    if job.drained and not any(tasks):
        return _JobUpdate(job, "has no more work", killed=killed)
    # drained first and cancelled with a later snapshot: tasks sent to it in between run elsewhere
    drained = job.drained or off_duty or (leaving and not any(tasks))
    return _JobUpdate(replace(job, leaving=leaving, drained=drained), killed=killed)


def _describe_end(queued: QueuedJob) -> str:
    end = f"ended as {queued.state}"
    if queued.state == "COMPLETING":
        end = "is ending"
    if queued.reason:
        end += f" ({queued.reason})"
    if queued.nodes:
        end += f" on {queued.nodes}"
    return end


def _describe_ends(updates: Iterable[_JobUpdate]) -> Iterator[str]:
    """One line for all jobs that ended alike.

    Jobs that were to leave are not reported.
    """
    lost_jobs: defaultdict[str, list[str]] = defaultdict(list)
    for update in updates:
        if update.end and not update.job.leaving:
            lost_jobs[update.end].append(update.job.id)
    for end, ids in sorted(lost_jobs.items()):
        if len(ids) == 1:
            yield f"Job {ids[0]} {end}."
        else:
            yield f"{len(ids)} jobs, {shortened(ids, 8)}: each {end}."


def _surplus(jobs: JobSet, snapshot: Snapshot, target: int) -> Sequence[Job]:
    """The jobs to release: those with less memory first, then those without a worker, with the
    fewest tasks, the youngest.
    """

    def order(job: Job) -> tuple[int, bool, int, float]:
        tasks = job.task_counts(snapshot.workers)
        return job.step, bool(tasks), sum(tasks), -job.submitted

    serving = [job for job in jobs.jobs if not job.leaving]
    return sorted(serving, key=order)[: max(0, len(serving) - target)]


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
