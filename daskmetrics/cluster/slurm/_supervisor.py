"""Keeps the number of workers of a Slurm cluster: looks at the queue, asks for jobs, tells the user.

It decides nothing itself, see `daskmetrics.cluster.slurm._jobs`.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from daskmetrics.cluster.slurm import _commands as commands
from daskmetrics.cluster.slurm._commands import QueuedJob, SlurmError, slurm, summary
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
    decide,
    demand,
    follow,
)
from daskmetrics.cluster.slurm._script import LaunchInfo, WorkerPool, early, job_name, pools, script
from daskmetrics.config import Cluster
from daskmetrics.core._events import CLUSTER
from daskmetrics.core._times import parse_walltime
from daskmetrics.core.errors import ClusterLostError, ConfigError, unknown

TICK = 0.5  # seconds between looks at the scheduler, which costs nothing
HASTE = 0.1  # share of the time between looks at the queue after which one is due if a worker is gone
LEAD = 600.0  # seconds before a job's end at which the next is asked for; less of a short job
MEMORY = 60.0  # seconds for which an adaptive pool remembers what it had to do
TAIL = 20  # lines of a failed job's log that are shown


@dataclass
class _PoolState:
    """A pool with what is known of its jobs."""

    pool: WorkerPool
    rules: Rules
    wanted: int
    fewest: int
    fleet: JobSet = field(default_factory=JobSet)
    demands: deque[tuple[float, int]] = field(default_factory=deque)


class Supervisor:
    """The jobs of one cluster.

    Parameters
    ----------
    profile : Cluster
    post : LaunchInfo
        What its jobs have in common: where they report, and for whom.
    scheduler : distributed.Scheduler
        In this process, and in the event loop that `run` is awaited in.
    say : callable
        Called with lines for the user, from that loop.
    """

    def __init__(self, profile: Cluster, post: LaunchInfo, scheduler: Any, say: Callable[[str], None]) -> None:
        self.profile, self.post, self.scheduler, self.say = profile, post, scheduler, say
        self.pools = {pool.name: _kept(pool, profile) for pool in pools(profile)}
        self.problem: ClusterLostError | None = None
        self._guard = CancelOnExit()
        self._numbers = count()
        self._ending = False
        self._told = ""
        self._silent = False

    def scale(self, fewest: int, most: int, pool: str | None = None) -> None:
        """Want another number of workers of a pool, by default the main one; between the two it follows the work."""
        kept = self._pool(pool)
        kept.fewest, kept.wanted = fewest, most

    def processes(self, pool: str | None = None) -> int:
        """Workers of each job of a pool, by default the main one."""
        return self._pool(pool).pool.processes

    def _pool(self, name: str | None) -> _PoolState:
        name = name or next(iter(self.pools))
        if name not in self.pools:
            raise unknown("pool of this cluster", name, self.pools)
        return self.pools[name]

    async def run(self) -> None:
        """Keep the pools until it is cancelled or nothing helps; then `problem` says what, and the scheduler ends."""
        looked, there = -math.inf, 0
        while self.problem is None:
            here = len(self.scheduler.workers)
            due = self.profile.poll_seconds * (HASTE if here < there or self._uncertain() else 1)
            if time.monotonic() - looked >= due:
                looked, there = time.monotonic(), here
                await self._keep()
            await asyncio.sleep(min(TICK, self.profile.poll_seconds))
        await self.scheduler.close(reason=str(self.problem))

    def _uncertain(self) -> bool:
        """Whether jobs failed just now: the next look tells whether it goes on."""
        return any(kept.fleet.failed for kept in self.pools.values())

    async def _keep(self) -> None:
        look = await self._look()
        if look is None:
            return
        for kept in self.pools.values():
            kept.fleet, actions = decide(kept.fleet, look, kept.rules, self._wanted(kept, look))
            for action in actions:
                await self._perform(kept, action)
        self._tell(look)

    async def _look(self) -> Snapshot | None:
        """What there is, or None if Slurm does not answer: then nothing is decided."""
        now, workers = time.monotonic(), self._workers()
        try:
            rows = await asyncio.to_thread(commands.queue, name=job_name(self.post.run))
            draining = await asyncio.to_thread(commands.draining)
        except SlurmError as error:
            if not self._silent:
                self.say(f"Slurm does not answer ({error}); jobs go on, and none is replaced until it does.")
            self._silent = True
            return None
        if self._silent:
            self.say("Slurm answers again.")
        self._silent = False
        return Snapshot(now, {row.id: row for row in rows}, workers, draining)

    def _workers(self) -> Mapping[str, int]:
        return {str(worker.name): len(worker.processing) for worker in self.scheduler.workers.values()}

    def _wanted(self, kept: _PoolState, look: Snapshot) -> int:
        if kept.fewest == kept.wanted:
            return kept.wanted
        held = [tasks for job in kept.fleet.jobs if not job.drained for tasks in job.held(look.workers)]
        kept.demands.append((look.now, demand(held)))
        while kept.demands[0][0] < look.now - MEMORY:
            kept.demands.popleft()
        return follow((wanted for _, wanted in kept.demands), kept.fewest, kept.wanted)

    async def _perform(self, kept: _PoolState, action: SubmitJobs | Cancel | Drain | Report | Stop) -> None:
        match action:
            case SubmitJobs(number):
                await self._submit(kept, number)
            case Cancel(jobs):
                await asyncio.to_thread(_cancel, [job.id for job in jobs])
            case Drain(jobs):
                self._drain(jobs)
            case Report(text):
                self.say(text)
            case Stop(reason, job):
                self.problem = ClusterLostError(f"{reason[:1].upper()}{reason[1:]}{self._log(job)}")

    async def _submit(self, kept: _PoolState, number: int) -> None:
        """Ask for so many jobs, one after the other, until one is refused."""
        for _ in range(number):
            if self._ending:
                return
            name = f"{kept.pool.name}-{next(self._numbers)}"
            text = script(self.profile, kept.pool, replace(self.post, worker=name))
            try:
                job = await asyncio.shield(asyncio.to_thread(self._sbatch, text))
            except SlurmError as error:
                self._refused(kept, error)
                return
            kept.fleet = kept.fleet.took(Job(job, name, time.monotonic()))

    def _sbatch(self, text: str) -> str:
        job = slurm("sbatch", "--parsable", script=text).split()[0].partition(";")[0]
        self._guard.add(job)  # in this thread, whatever becomes of who waits for it
        return job

    def _refused(self, kept: _PoolState, error: SlurmError) -> None:
        self.say(f"Slurm took no further {kept.pool.name} job: {error}.")
        if not error.passing:
            now = time.monotonic()
            kept.fleet = kept.fleet.failing(1, Stop(f"Slurm refused it: {error}"), now, kept.rules)

    def _drain(self, jobs: tuple[Job, ...]) -> None:
        """Let workers offer nothing any more, which the driver hears of; what runs there is not disturbed."""
        for worker in list(self.scheduler.workers.values()):
            if any(job.held({str(worker.name): 0}) for job in jobs):
                nothing = dict.fromkeys(worker.resources, 0)
                self.scheduler.add_resources(worker=worker.address, resources=nothing)

    def _tell(self, look: Snapshot) -> None:
        """Report how the jobs stand whenever other reasons hold them up; the live page shows it always."""
        rows = self._own(look)
        self.scheduler.log_event(CLUSTER, {"text": f"Jobs: {summary(rows)}"})
        reasons = sorted({row.reason or row.state for row in rows if row.pending})
        if (text := ", ".join(reasons)) != self._told:
            self._told = text
            if reasons:
                self.say(f"Jobs: {summary(rows)}.")

    def _own(self, look: Snapshot) -> list[QueuedJob]:
        ids = {job.id for kept in self.pools.values() for job in kept.fleet.jobs}
        return [row for row in look.rows.values() if row.id in ids]

    def _log(self, job: Job | None) -> str:
        """The end of a job's log, as it is shown below the reason."""
        if job is None:
            return ""
        path = Path(self.profile.logs) / f"{job_name(self.post.run)}-{job.id}.log"
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return f"\nIt left no log '{path}': do the nodes see this folder?"
        return f"\nThe end of its log '{path}':\n" + "\n".join(f"  {line}" for line in lines[-TAIL:])

    def end(self) -> None:
        """Have all jobs cancelled. It blocks until Slurm knows."""
        self._ending = True
        try:
            self._guard.release()
        except SlurmError as error:
            self.say(f"The jobs could not be cancelled ({error}); they end by themselves within two minutes.")


def rehearse(profile: Cluster, run: str) -> None:
    """Have Slurm check a job of each pool before anything is started.

    Raises
    ------
    ConfigError
        With Slurm's words, if it would refuse one.
    """
    for pool in pools(profile):
        try:
            said = commands.rehearse(script(profile, pool, LaunchInfo(run=run)))
        except SlurmError as error:
            raise ConfigError(f"Slurm cannot be asked for jobs: {error}.") from None
        if said.refusal:
            raise ConfigError(
                f"Slurm would not take the {pool.name} jobs of this profile: {said.refusal}. Nothing was submitted. "
                "See its partition, account, qos, walltime, gpus_per_job, memory and directives."
            )


def _kept(pool: WorkerPool, profile: Cluster) -> _PoolState:
    rules = Rules(
        processes=pool.processes,
        max_jobs=pool.max_jobs,
        failures=profile.failures,
        connect_within=profile.connect_within,
        lead=min(LEAD, parse_walltime(pool.walltime) / 10),
        early=early(pool),
    )
    return _PoolState(pool, rules, pool.workers, pool.fewest)


def _cancel(jobs: list[str]) -> None:
    with suppress(SlurmError):  # it has ended meanwhile, or will be asked for again at the end
        slurm("scancel", *jobs)


# it reads ids until the pipe closes, which the system sees to even after a SIGKILL
READ_AND_CANCEL = """
trap '' HUP INT TERM
while read -r id; do ids="$ids $id"; done
[ -z "$ids" ] || exec scancel $ids
"""


class CancelOnExit:
    """Knows the ids of all jobs. It outlives the driver by the moment that it takes to cancel them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", READ_AND_CANCEL],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # of jobs that have ended it would say so
            text=True,
            start_new_session=True,  # what ends the driver's group must not end it
        )

    def add(self, job: str) -> None:
        """Answer for a job; one that comes when all is over is cancelled at once."""
        with self._lock:
            if self._process.stdin and not self._process.stdin.closed:
                self._process.stdin.write(f"{job}\n")
                self._process.stdin.flush()
                return
        slurm("scancel", job)

    def release(self) -> None:
        """Have all jobs cancelled and wait until Slurm knows.

        Raises
        ------
        SlurmError
            If it could not be told: the jobs then end by themselves, a minute after their workers miss the scheduler.
        """
        with self._lock:
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            raise SlurmError("scancel did not answer within 60 s") from None
