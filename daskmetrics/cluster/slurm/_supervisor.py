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
from itertools import count
from pathlib import Path
from typing import Any

from daskmetrics.cluster._preload_memory import TOPIC as OVER_MEMORY
from daskmetrics.cluster.slurm import _jobs, _slurm
from daskmetrics.cluster.slurm._batch import BatchError, BatchSystem, by_expected_start, in_each_partition, summary
from daskmetrics.cluster.slurm._jobs import Cancel, Drain, Job, JobSet, Report, Rules, Snapshot, Stop, SubmitJobs
from daskmetrics.cluster.slurm._script import LaunchInfo, WorkerPool, early, job_name, pools
from daskmetrics.config import Cluster
from daskmetrics.core._events import CLUSTER
from daskmetrics.core._text import parse_walltime
from daskmetrics.core.errors import ClusterLostError, ConfigError, unknown

TICK = 0.5  # seconds between two readings of the scheduler, which cost nothing
URGENT = 0.1  # share of `poll_seconds` after which the queue is read if a worker is gone
LEAD = 600.0  # seconds before a job's time limit at which the next is submitted; less for a short job
DEMAND_WINDOW = 60.0  # seconds of past demand that an adaptive pool considers
TAIL = 20  # lines of a failed job's log that are shown


@dataclass
class _PoolState:
    """A pool with the state of its jobs."""

    pool: WorkerPool
    rules: Rules
    fewest: int
    most: int
    jobs: JobSet = field(default_factory=JobSet)
    partition: str | None = None  # the partitions, of several, of the latest jobs
    demands: deque[tuple[float, int]] = field(default_factory=deque)

    def target(self, snapshot: Snapshot) -> int:
        """The number of workers that the pool should have now."""
        if self.fewest == self.most:
            return self.most
        serving = [job for job in self.jobs.jobs if not job.drained]
        tasks = [number for job in serving for number in job.task_counts(snapshot.workers)]
        self.demands.append((snapshot.now, _jobs.demand(tasks)))
        while self.demands[0][0] < snapshot.now - DEMAND_WINDOW:
            self.demands.popleft()
        return _jobs.adaptive_size((workers for _, workers in self.demands), self.fewest, self.most)


class Supervisor:
    """Manages the jobs of one cluster, in the event loop of its `distributed.Scheduler`."""

    def __init__(
        self,
        profile: Cluster,
        launch: LaunchInfo,
        scheduler: Any,
        on_message: Callable[[str], None],
        keys: Path,
        batch: BatchSystem = _slurm,
    ) -> None:
        self.profile, self.launch, self.scheduler, self.on_message = profile, launch, scheduler, on_message
        self.batch = batch
        self.pools: dict[str, _PoolState] = {}
        for pool in pools(profile):
            rules = Rules(
                processes=pool.processes,
                max_jobs=pool.max_jobs,
                failures=profile.failures,
                connect_within=profile.connect_within,
                lead=min(LEAD, parse_walltime(pool.walltime) / 10),
                early=early(pool),
                memories=pool.memories,
            )
            self.pools[pool.name] = _PoolState(pool, rules, pool.fewest, pool.workers)
        self.problem: ClusterLostError | None = None
        self._canceller = CancelOnExit(batch, job_name(launch.run), launch.owner, keys)
        self._numbers = count()
        self._is_ending = False
        self._reported_reasons = ""
        self._names: dict[str, str] = {}  # of all workers so far, by address
        self._is_silent = False

    def scale(self, fewest: int, most: int, pool: str | None = None) -> None:
        """Set the number of workers of a pool, by default the main one; between the two it follows the work."""
        state = self._pool(pool)
        state.fewest, state.most = fewest, most

    def processes(self, pool: str | None = None) -> int:
        """The number of workers of each job of a pool, by default the main one."""
        return self._pool(pool).pool.processes

    def _pool(self, name: str | None) -> _PoolState:
        name = name or next(iter(self.pools))
        if name not in self.pools:
            raise unknown("pool of this cluster", name, self.pools)
        return self.pools[name]

    async def run(self) -> None:
        """Manage the pools; if jobs keep failing, set `problem` and close the scheduler."""
        read_at, workers = -math.inf, 0  # less the kills for memory, after which a worker comes back
        while self.problem is None:
            workers_now = len(self.scheduler.workers) - len(self.scheduler.get_events(OVER_MEMORY))
            self._names |= {address: str(worker.name) for address, worker in self.scheduler.workers.items()}
            urgent = workers_now < workers or any(state.jobs.failed for state in self.pools.values())
            if time.monotonic() - read_at >= self.profile.poll_seconds * (URGENT if urgent else 1):
                read_at, workers = time.monotonic(), workers_now
                await self._update_pools()
            await asyncio.sleep(min(TICK, self.profile.poll_seconds))
        await self.scheduler.close(reason=str(self.problem))

    async def _update_pools(self) -> None:
        snapshot = await self._snapshot()
        if snapshot is None:
            return
        for state in self.pools.values():
            state.jobs, actions = _jobs.decide(state.jobs, snapshot, state.rules, state.target(snapshot))
            self._drain(tuple(job for job in state.jobs.jobs if job.drained))  # also workers that came back meanwhile
            for action in actions:
                await self._perform(state, action)
        self._report_queue(snapshot)

    async def _snapshot(self) -> Snapshot | None:
        """The present state, or None if the batch system does not answer: then nothing is decided."""
        now = time.monotonic()
        workers = {str(worker.name): len(worker.processing) for worker in self.scheduler.workers.values()}
        try:
            queue = await asyncio.to_thread(self.batch.queue, name=job_name(self.launch.run))
            draining = await asyncio.to_thread(self.batch.draining)
        except BatchError as error:
            if not self._is_silent:
                name = self.batch.NAME
                self.on_message(f"{name} does not answer ({error}). Jobs continue; lost jobs are replaced later.")
            self._is_silent = True
            return None
        if self._is_silent:
            self.on_message(f"{self.batch.NAME} answers again.")
        self._is_silent = False
        kills = (event["worker"] for _, event in self.scheduler.get_events(OVER_MEMORY))
        killed = frozenset(self._names[address] for address in kills if address in self._names)
        return Snapshot(now, {job.id: job for job in queue}, workers, draining, killed)

    async def _perform(self, state: _PoolState, action: _jobs.Action) -> None:
        match action:
            case SubmitJobs(number):
                await self._submit(state, number)
            case Cancel(jobs):
                with suppress(BatchError):  # it has ended meanwhile, or is cancelled again at the end
                    await asyncio.to_thread(self.batch.cancel, [job.id for job in jobs])
            case Drain():
                pass  # see `_update_pools`
            case Report(text):
                self.on_message(text)
            case Stop(reason, job):
                self.problem = ClusterLostError(f"{reason[:1].upper()}{reason[1:]}{self._end_of_log(job)}")

    async def _submit(self, state: _PoolState, number: int) -> None:
        """Submit this number of jobs one after the other, until one is refused."""
        for i in range(number):
            if self._is_ending:
                return
            name = f"{state.pool.name}-{next(self._numbers)}"
            launch = replace(self.launch, worker=name)
            try:
                pool = replace(state.pool, memory=state.rules.memories[state.jobs.step])
                if "," in (pool.partition or ""):
                    state.partition = state.partition if i else await self._choose_partitions(state, pool)
                    pool = replace(pool, partition=state.partition)
                job = await asyncio.shield(asyncio.to_thread(self._sbatch, pool, launch))
            except BatchError as error:
                self.on_message(f"{self.batch.NAME} refused a further {state.pool.name} job: {error}.")
                if not error.is_transient:
                    last = Stop(f"{self.batch.NAME} refused it: {error}")
                    state.jobs = state.jobs.with_failures(1, last, time.monotonic(), state.rules)
                return
            state.jobs = state.jobs.with_job(Job(job, name, time.monotonic(), step=state.jobs.step))

    async def _choose_partitions(self, state: _PoolState, pool: WorkerPool) -> str | None:
        """The partitions that accept the pool's jobs, of which Slurm takes the first that has room; reported if new."""
        rehearsals = await asyncio.to_thread(in_each_partition, self.batch, self.profile, pool, self.launch)
        chosen, text = by_expected_start(rehearsals)
        if chosen and chosen != state.partition:
            self.on_message(f"Partitions of the {pool.name} jobs, by expected start: {text}.")
        return chosen or pool.partition  # if all refuse, the submission shows it

    def _sbatch(self, pool: WorkerPool, launch: LaunchInfo) -> str:
        script = self.batch.script(self.profile, pool, launch)
        job = self.batch.submit(script, job_name(launch.run), launch.comment)
        self._canceller.add(job)  # in this thread, even if the coroutine that waits for it is cancelled
        return job

    def _drain(self, jobs: tuple[Job, ...]) -> None:
        """Set the resources of the jobs' workers to zero, which the driver sees; running tasks are not disturbed."""
        for worker in list(self.scheduler.workers.values()):
            if any(job.task_counts({str(worker.name): 0}) for job in jobs):
                self.scheduler.add_resources(worker=worker.address, resources=dict.fromkeys(worker.resources, 0))

    def _report_queue(self, snapshot: Snapshot) -> None:
        """Report the jobs to the user when the reasons that they wait for change; the live page shows them always."""
        ids = {job.id for state in self.pools.values() for job in state.jobs.jobs}
        queued = [job for job in snapshot.queue.values() if job.id in ids]
        self.scheduler.log_event(CLUSTER, {"text": f"Jobs: {summary(queued)}"})
        reasons = ", ".join(sorted({job.reason or job.state for job in queued if job.pending}))
        if reasons and reasons != self._reported_reasons:
            self.on_message(f"Jobs: {summary(queued)}.")
        self._reported_reasons = reasons

    def _end_of_log(self, job: Job | None) -> str:
        """The last lines of a job's log, to be shown below the reason."""
        if job is None:
            return ""
        path = Path(self.profile.logs) / f"{job_name(self.launch.run)}-{job.id}.log"
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return f"\nThe job wrote no log '{path}': is this folder on a file system that the nodes share?"
        return f"\nThe end of its log '{path}':\n" + "\n".join(f"  {line}" for line in lines[-TAIL:])

    def end(self) -> None:
        """Cancel all jobs; returns when the batch system has received the request."""
        self._is_ending = True
        try:
            self._canceller.cancel_all()
        except BatchError as error:
            self.on_message(f"The jobs could not be cancelled ({error}); they end by themselves within two minutes.")


def rehearse(profile: Cluster, launch: LaunchInfo, batch: BatchSystem = _slurm) -> None:
    """Raise ConfigError, with Slurm's message, if it would refuse the first or the largest job of one of the pools."""
    for pool in pools(profile):
        for memory in dict.fromkeys((pool.memories[0], pool.memories[-1])):
            try:
                rehearsals = in_each_partition(batch, profile, replace(pool, memory=memory), launch)
            except BatchError as error:
                raise ConfigError(f"{batch.NAME} cannot check the jobs: {error}.") from None
            refusals = dict.fromkeys(each.refusal for each in rehearsals.values())
            if None not in refusals:
                size = f" with {memory} per worker" if memory != pool.memory else ""
                raise ConfigError(
                    f"{batch.NAME} would refuse the {pool.name} jobs of this profile{size}: "
                    f"{'; '.join(map(str, refusals))}. Nothing was submitted. Check its partition, account, qos, "
                    "walltime, gpus_per_job, memory and directives."
                )


class CancelOnExit:
    """A process that cancels all jobs of a name and an owner when the driver ends, and removes their keys."""

    def __init__(self, batch: BatchSystem, name: str, owner: str, keys: Path) -> None:
        self._lock, self._batch = threading.Lock(), batch
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
        """Cancel all jobs; returns when the batch system has received it, BatchError if it does not answer."""
        with self._lock:
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            raise BatchError(f"{self._batch.NAME} did not answer within 60 s") from None
