"""Keeps the number of workers of a cluster: reads the queue, submits jobs, reports to the user.

The decisions are made in `daskmetrics.cluster.slurm._jobs`.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from daskmetrics.cluster._preload import OVER_MEMORY
from daskmetrics.cluster.slurm import _jobs, commands
from daskmetrics.cluster.slurm._jobs import (
    Cancel,
    Drain,
    Job,
    JobSet,
    Report,
    Rules,
    Snapshot,
    Stop,
    SubmitJobs,
)
from daskmetrics.cluster.slurm.batch import (
    BatchError,
    BatchSystem,
    by_expected_start,
    in_each_partition,
    summary,
)
from daskmetrics.cluster.slurm.script import LaunchInfo, WorkerPool, early, job_name, pools
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ClusterLostError, ConfigError, unknown
from daskmetrics.core.events import CLUSTER
from daskmetrics.core.text import parse_walltime

TICK = 0.5  # seconds between two readings of the scheduler, which cost nothing
URGENT = 0.1  # share of `poll_seconds` after which the queue is read if a worker is gone
# seconds before a job's time limit at which the next is submitted; less for a short job
LEAD = 600.0
DEMAND_WINDOW = 60.0  # seconds of past demand that an adaptive pool considers
TAIL = 20  # lines of a failed job's log that are shown


@dataclass
class _PoolState:
    """A pool with the state of its jobs."""

    pool: WorkerPool
    rules: Rules
    minimum: int  # of workers; between the two their number follows the work
    maximum: int
    jobs: JobSet = field(default_factory=JobSet)
    partition: str | None = None  # the partitions, of several, of the latest jobs
    demands: deque[tuple[float, int]] = field(default_factory=deque)

    def target(self, snapshot: Snapshot) -> int:
        """The number of workers that the pool should have now."""
        if self.minimum == self.maximum:
            return self.maximum
        task_counts: list[int] = []
        for job in self.jobs.jobs:
            if not job.drained:
                task_counts += job.task_counts(snapshot.workers)
        self.demands.append((snapshot.now, _jobs.demand(task_counts)))
        while self.demands[0][0] < snapshot.now - DEMAND_WINDOW:
            self.demands.popleft()
        demands = (workers for _, workers in self.demands)
        return _jobs.adaptive_size(demands, self.minimum, self.maximum)


class Supervisor:
    """Manages the jobs of one cluster, in the event loop of its `distributed.Scheduler`."""

    def __init__(
        self,
        profile: Cluster,
        launch: LaunchInfo,
        scheduler: Any,
        on_message: Callable[[str], None],
        keys: Path,
        batch: BatchSystem = commands,
    ) -> None:
        self.profile = profile
        self.launch = launch
        self.scheduler = scheduler
        self.on_message = on_message
        self.batch = batch
        self.job_name = job_name(launch.run)
        self.pools: dict[str, _PoolState] = {}
        for pool in pools(profile):
            rules = Rules(
                processes=pool.processes,
                connect_within=profile.connect_within,
                lead=min(LEAD, parse_walltime(pool.walltime) / 10),
                early=early(pool),
                memories=pool.memories,
            )
            self.pools[pool.name] = _PoolState(pool, rules, pool.fewest, pool.workers)
        self.problem: ClusterLostError | None = None
        self._canceller = CancelOnExit(batch, self.job_name, launch.owner, keys)
        self._numbers = count()
        self._is_ending = False
        self._reported_reasons = ""
        self._worker_names: dict[str, str] = {}  # of all workers so far, by address
        self._is_silent = False

    def scale(self, minimum: int, maximum: int, pool: str | None = None) -> None:
        """Set the number of workers of a pool, by default the main one; between the two it follows
        the work.
        """
        name = pool or next(iter(self.pools))
        if name not in self.pools:
            raise unknown("pool of this cluster", name, self.pools)
        self.pools[name].minimum = minimum
        self.pools[name].maximum = maximum

    async def run(self) -> None:
        """Manage the pools; if jobs keep failing, set `problem` and close the scheduler."""
        read_at = -math.inf
        workers_then = 0
        while self.problem is None:
            # a worker that was killed for its memory comes back
            kills = len(self.scheduler.get_events(OVER_MEMORY))
            workers_now = len(self.scheduler.workers) - kills
            for address, worker in self.scheduler.workers.items():
                self._worker_names[address] = str(worker.name)
            interval = self.profile.poll_seconds
            if workers_now < workers_then or any(pool.jobs.failed for pool in self.pools.values()):
                interval *= URGENT
            if time.monotonic() - read_at >= interval:
                read_at = time.monotonic()
                workers_then = workers_now
                await self._update_pools()
            await asyncio.sleep(min(TICK, self.profile.poll_seconds))
        await self.scheduler.close(reason=str(self.problem))

    async def _update_pools(self) -> None:
        snapshot = await self._snapshot()
        if snapshot is None:
            return
        for state in self.pools.values():
            target = state.target(snapshot)
            state.jobs, actions = _jobs.decide(state.jobs, snapshot, state.rules, target)
            self._drain(state.jobs)
            for action in actions:
                await self._perform(state, action)
        self._report_queue(snapshot)

    async def _snapshot(self) -> Snapshot | None:
        """The present state, or None if the batch system does not answer: then nothing is decided."""
        asked_at = time.monotonic()
        workers = {
            str(worker.name): len(worker.processing) for worker in self.scheduler.workers.values()
        }
        try:
            queue = await asyncio.to_thread(self.batch.queue, name=self.job_name)
            draining = await asyncio.to_thread(self.batch.draining)
        except BatchError as error:
            if not self._is_silent:
                self.on_message(
                    f"{self.batch.NAME} does not answer ({error}). Jobs continue; lost jobs are "
                    "replaced later."
                )
            self._is_silent = True
            return None
        if self._is_silent:
            self.on_message(f"{self.batch.NAME} answers again.")
        self._is_silent = False
        kills = {event["worker"] for _, event in self.scheduler.get_events(OVER_MEMORY)}
        killed = frozenset(name for address, name in self._worker_names.items() if address in kills)
        return Snapshot(asked_at, {job.id: job for job in queue}, workers, draining, killed)

    async def _perform(self, state: _PoolState, action: _jobs.Action) -> None:
        match action:
            case SubmitJobs(number):
                await self._submit(state, number)
            case Cancel(jobs):
                # a job may have ended meanwhile; what remains is cancelled again at the end
                with suppress(BatchError):
                    await asyncio.to_thread(self.batch.cancel, [job.id for job in jobs])
            case Drain():
                pass  # `_update_pools` drains again what came back meanwhile
            case Report(text):
                self.on_message(text)
            case Stop(reason, job):
                self.problem = ClusterLostError(
                    f"{reason[:1].upper()}{reason[1:]}{self._end_of_log(job)}"
                )

    async def _submit(self, state: _PoolState, number: int) -> None:
        """Submit this number of jobs, one after the other, until one is refused."""
        pool = replace(state.pool, memory=state.rules.memories[state.jobs.step])
        try:
            if "," in (pool.partition or ""):
                state.partition = await self._choose_partitions(state, pool)
                pool = replace(pool, partition=state.partition)
            for _ in range(number):
                if self._is_ending:
                    return
                worker = f"{pool.name}-{next(self._numbers)}"
                launch = replace(self.launch, worker=worker)
                job = await asyncio.shield(asyncio.to_thread(self._sbatch, pool, launch))
                state.jobs = state.jobs.with_job(
                    Job(job, worker, time.monotonic(), step=state.jobs.step)
                )
        except BatchError as error:
            self.on_message(f"{self.batch.NAME} refused a further {pool.name} job: {error}.")
            if not error.is_transient:
                failure = Stop(f"{self.batch.NAME} refused it: {error}")
                state.jobs = state.jobs.with_failures(1, failure, time.monotonic(), state.rules)

    async def _choose_partitions(self, state: _PoolState, pool: WorkerPool) -> str | None:
        """The partitions that accept the pool's jobs, of which Slurm takes the first that has room;
        reported if new.
        """
        rehearsals = await asyncio.to_thread(
            in_each_partition, self.batch, self.profile, pool, self.launch
        )
        accepting = by_expected_start(rehearsals)
        if not accepting:
            return pool.partition  # the submission shows why they refuse
        partitions = ",".join(accepting)
        if partitions != state.partition:
            refusals = [
                f"; not {name}: {rehearsal.refusal}"
                for name, rehearsal in rehearsals.items()
                if rehearsal.refusal
            ]
            self.on_message(
                f"Partitions of the {pool.name} jobs, by expected start: "
                f"{', '.join(accepting)}{''.join(refusals)}."
            )
        return partitions

    def _sbatch(self, pool: WorkerPool, launch: LaunchInfo) -> str:
        script = self.batch.script(self.profile, pool, launch)
        job = self.batch.submit(script, self.job_name, launch.comment)
        # in this thread, even if the coroutine that waits for it is cancelled
        self._canceller.add(job)
        return job

    def _drain(self, jobs: JobSet) -> None:
        """Set the resources of drained jobs' workers to zero, which the driver sees; running tasks
        are not disturbed.
        """
        drained = [job for job in jobs.jobs if job.drained]
        for worker in list(self.scheduler.workers.values()):
            if any(job.task_counts({str(worker.name): 0}) for job in drained):
                self.scheduler.add_resources(
                    worker=worker.address, resources=dict.fromkeys(worker.resources, 0)
                )

    def _report_queue(self, snapshot: Snapshot) -> None:
        """Report the jobs to the user when the reasons that they wait for change; the live page
        shows them always.
        """
        jobs = chain.from_iterable(state.jobs.jobs for state in self.pools.values())
        queued = [snapshot.queue[job.id] for job in jobs if job.id in snapshot.queue]
        self.scheduler.log_event(CLUSTER, {"text": f"Jobs: {summary(queued)}"})
        reasons = ", ".join(sorted({job.reason or job.state for job in queued if job.pending}))
        if reasons and reasons != self._reported_reasons:
            self.on_message(f"Jobs: {summary(queued)}.")
        self._reported_reasons = reasons

    def _end_of_log(self, job: Job | None) -> str:
        """The end of a job's log, to be shown below the reason."""
        if job is None:
            return ""
        path = Path(self.profile.logs) / f"{self.job_name}-{job.id}.log"
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return (
                f"\nThe job wrote no log '{path}': is this folder on a file system that the nodes "
                "share?"
            )
        return "\n  ".join([f"\nThe end of its log '{path}':", *lines[-TAIL:]])

    def end(self) -> None:
        """Cancel all jobs; returns when the batch system has received the request."""
        self._is_ending = True
        try:
            self._canceller.cancel_all()
        except BatchError as error:
            self.on_message(
                f"The jobs could not be cancelled ({error}); they end by themselves within two "
                "minutes."
            )


def rehearse(profile: Cluster, launch: LaunchInfo, batch: BatchSystem = commands) -> None:
    """Raise ConfigError, with Slurm's message, if it would refuse the smallest or the largest job of
    one of the pools.
    """
    for pool in pools(profile):
        for memory in dict.fromkeys((pool.memories[0], pool.memories[-1])):
            try:
                rehearsals = in_each_partition(batch, profile, replace(pool, memory=memory), launch)
            except BatchError as error:
                raise ConfigError(f"{batch.NAME} cannot check the jobs: {error}.") from None
            refusals = {rehearsal.refusal for rehearsal in rehearsals.values() if rehearsal.refusal}
            if all(rehearsal.refusal for rehearsal in rehearsals.values()):
                raise ConfigError(
                    f"{batch.NAME} would refuse the {pool.name} jobs of this profile with "
                    f"{memory or 'the default memory'} per worker: {'; '.join(sorted(refusals))}. "
                    "Nothing was submitted. Check its partition, account, qos, walltime, "
                    "gpus_per_job, memory and directives."
                )


class CancelOnExit:
    """A process that cancels all jobs of a name and an owner when the driver ends, and removes
    their keys.
    """

    def __init__(self, batch: BatchSystem, name: str, owner: str, keys: Path) -> None:
        self._lock = threading.Lock()
        self._batch = batch
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", batch.CANCEL_ON_EXIT, "sh", name, owner, str(keys)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it would complain about jobs that have ended
            text=True,
            start_new_session=True,  # a signal to the driver's process group must not end it
        )

    def add(self, job: str) -> None:
        """Add a job; after `cancel_all` it is cancelled at once."""
        with self._lock:
            if self._process.stdin and not self._process.stdin.closed:
                self._process.stdin.write(f"{job}\n")
                self._process.stdin.flush()
                return
        self._batch.cancel([job])

    def cancel_all(self) -> None:
        """Cancel all jobs; returns when the batch system has received it, BatchError if it does not
        answer.
        """
        with self._lock:
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            raise BatchError(f"{self._batch.NAME} did not answer within 60 s") from None
