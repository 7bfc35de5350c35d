"""The supervisor of a cluster's jobs: reads the queue, submits jobs, reports to the user.

The decisions are made in `daskmetrics.cluster.slurm._jobs`.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeVar

from distributed import Scheduler, SchedulerPlugin
from distributed.threadpoolexecutor import ThreadPoolExecutor

from daskmetrics.cluster._dask_config import withdraw
from daskmetrics.cluster._preload import OVER_MEMORY
from daskmetrics.cluster.slurm import commands
from daskmetrics.cluster.slurm._jobs import Job, JobFailure, JobSet, Rules, Snapshot, decide, demand
from daskmetrics.cluster.slurm.commands import SlurmError, SlurmRefusal
from daskmetrics.cluster.slurm.script import (
    PROLOGUE_ENDED,
    LaunchInfo,
    WorkerPool,
    job_name,
    pools,
    script,
)
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ClusterLostError, describe
from daskmetrics.core.text import OnMessage, parse_walltime, plural
from daskmetrics.domain.events import CLUSTER, REFUSED

TICK = 0.5  # seconds between two looks at the scheduler's workers, which cost nothing
URGENT = 0.1  # share of `poll_seconds` after which the queue is read if a worker has left
# seconds before a job's time limit at which the next is submitted; less for a short job
LEAD = 600.0
HANGS_AFTER = 10.0  # seconds without an answer of Slurm before the user gets a message
REFUSED_FOR = 600.0  # seconds for which Slurm refuses all jobs until the run ends
END_WITHIN = 10.0  # seconds for the job of an idle worker to end by itself before it is cancelled
DEMAND_WINDOW = 60.0  # seconds of past demand that an adaptive pool considers
TAIL = 20  # lines of a failed job's log that are shown
PROLOGUE_TAIL = 5  # and of the output of its prologue before them

# It reads ids until the pipe closes, which the system does even after a SIGKILL of the driver.
# After the word "end", it cancels the jobs behind it at once, and the others unless they soon end
# by themselves. Then it looks for jobs whose ids it does not know, by their name and the first word
# of their comment, until none is left: Slurm may not answer, and sbatch may have been slow.
CANCEL_ON_EXIT = """
trap '' HUP INT TERM
while read -r id others; do
  case $id in
    end) pauses="1 1 1 2 2 3"; [ -z "$others" ] || timeout 60 scancel $others ;;
    *) ids="$ids $id" ;;
  esac
done
for pause in $pauses; do
  sleep $pause
  running=$(timeout 10 squeue --noheader --user="$(id -u)" --name="$1" --states=RUNNING)
  [ -n "$running" ] || break
done
state=1
for pause in 0 1 2 4 8 15 30 60; do
  sleep $pause
  [ -z "$ids" ] || timeout 60 scancel $ids
  queue=$(timeout 60 squeue --noheader --user="$(id -u)" --name="$1" \
    --states=PENDING,CONFIGURING,RUNNING,SUSPENDED --format='%i %k') || continue
  others=$(echo "$queue" | while read -r id comment; do
    case "$comment $ids " in "$2"/*|*" $id "*) echo "$id" ;; esac
  done)
  [ -n "$others" ] || { state=0; break; }
  ids=$(echo $others)
  timeout 60 scancel $ids && state=0 && break
done
rm -rf "$3"
exit $state
"""


T = TypeVar("T")


async def patiently(call: Callable[[], T], report: OnMessage) -> T:
    """The result of a call of Slurm, made in a thread.

    Reported if it hangs.
    """
    # Dask's own: unlike for those of asyncio, neither its event loop nor Python waits for it
    thread = ThreadPoolExecutor(1, thread_name_prefix="slurm")
    running = asyncio.get_running_loop().run_in_executor(thread, copy_context().run, call)
    thread.shutdown(wait=False)
    done, _ = await asyncio.wait([running], timeout=HANGS_AFTER)
    if not done:
        report(f"no answer within {HANGS_AFTER:g} s")
    return await running


class WorkerArrivals(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """The workers that were ever connected, and those that were refused.

    It also knows whether one has left or was refused since the queue was read.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # by address, of all workers so far
        self.refused: set[str] = set()
        self.has_left = False

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self.names[worker] = str(scheduler.workers[worker].name)

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: object) -> None:
        self.has_left = True

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == REFUSED:
            self.refused.add(msg)
            self.has_left = True


@dataclass
class _PoolState:
    """A pool with the state of its jobs."""

    pool: WorkerPool
    rules: Rules
    minimum: int  # of workers; between the two their number follows the work
    maximum: int
    jobs: JobSet = field(default_factory=JobSet)
    demands: deque[tuple[float, int]] = field(default_factory=deque)
    submission: asyncio.Task[None] | None = None  # the latest one
    refusals: int = 0  # of Slurm since it last accepted a job
    latest_refusal: str = ""

    def target(self, snapshot: Snapshot) -> int:
        """The number of workers that the pool should have now: the largest recent demand."""
        if self.minimum == self.maximum:
            return self.maximum
        task_counts: list[int] = []
        for job in self.jobs.jobs:
            if not job.drained:
                task_counts += job.task_counts(snapshot.workers)
        self.demands.append((snapshot.now, demand(task_counts)))
        while self.demands[0][0] < snapshot.now - DEMAND_WINDOW:
            self.demands.popleft()
        largest = max(workers for _, workers in self.demands)
        return max(self.minimum, min(self.maximum, largest))


class Supervisor:
    """Manages the jobs of one cluster, in the event loop of its `distributed.Scheduler`."""

    def __init__(
        self,
        profile: Cluster,
        launch: LaunchInfo,
        scheduler: Scheduler,
        on_message: OnMessage,
        keys: Path,
    ) -> None:
        self.profile = profile
        self.launch = launch
        self.scheduler = scheduler
        self.on_message = on_message
        self.job_name = job_name(launch.run)
        self.pools: dict[str, _PoolState] = {}
        for pool in pools(profile):
            rules = Rules(
                processes=pool.processes,
                connect_within=profile.connect_within,
                lead=min(LEAD, parse_walltime(pool.profile.walltime) / 10),
                early=pool.early,
                memories=pool.memories,
                patience=min(profile.patience, REFUSED_FOR),
            )
            workers = pool.profile.workers
            fewest = pool.profile.fewest or workers
            self.pools[pool.name] = _PoolState(pool, rules, fewest, workers)
        self.problem: ClusterLostError | None = None
        self._arrivals = WorkerArrivals()
        self._canceller = CancelOnExit(self.job_name, launch.owner, keys)
        self._calls: set[subprocess.Popen[str]] = set()  # commands of Slurm that run now
        self._dismissed: dict[str, float] = {}  # when jobs that end by themselves are cancelled
        self._numbers = count()
        self._is_ending = False
        self._reported_reasons: set[str] = set()
        self._reported_failure = ""
        self._is_silent = False

    def scale(self, minimum: int, maximum: int) -> None:
        """Set the number of workers of the main pool.

        Between the two it follows the work.
        """
        main = next(iter(self.pools.values()))
        main.minimum = minimum
        main.maximum = maximum

    async def run(self) -> None:
        """Manage the pools, again after each failure of its own.

        If jobs keep failing, set `problem` and close the scheduler.
        """
        self.scheduler.add_plugin(self._arrivals)
        commands.RUNNING.set(self._calls)
        while self.problem is None:
            [error] = await asyncio.gather(self._manage(), return_exceptions=True)
            if error is not None:
                self._report_failure(describe(error))
                await asyncio.sleep(self.profile.poll_seconds)
        await self.scheduler.close(reason=str(self.problem))

    async def _manage(self) -> None:
        read_at = -math.inf
        while self.problem is None:
            self._revive_canceller()
            interval = self.profile.poll_seconds
            is_unsettled = any(state.jobs.is_unsettled for state in self.pools.values())
            if self._arrivals.has_left or is_unsettled:
                interval *= URGENT
            if time.monotonic() - read_at >= interval:
                read_at = time.monotonic()
                self._arrivals.has_left = False
                await self._update_pools()
            await asyncio.sleep(min(TICK, self.profile.poll_seconds))

    def _report_failure(self, reason: str) -> None:
        if reason != self._reported_failure and not self._is_ending:
            self.on_message(
                f"The supervision of the Slurm jobs failed ({reason}). It starts again."
            )
        self._reported_failure = reason

    def _revive_canceller(self) -> None:
        code = self._canceller.revive()
        if code is not None:
            self.on_message(
                f"The process that cancels the Slurm jobs after the run has ended (code {code}). It"
                " was started again."
            )

    async def _update_pools(self) -> None:
        snapshot = await self._snapshot()
        if snapshot is None or self._is_ending:  # the driver itself ends the jobs
            return
        for state in self.pools.values():
            decision = decide(state.jobs, snapshot, state.rules, state.target(snapshot))
            state.jobs = decision.jobs
            # at each snapshot: a worker may have come back meanwhile
            drained = [job for job in state.jobs.jobs if job.drained]
            names = [name for name in snapshot.workers if any(job.owns(name) for job in drained)]
            withdraw(self.scheduler, names)
            for line in decision.lines:
                self.on_message(line)
            for job in decision.newly_excluded:
                self.on_message(
                    f"{state.jobs.failed_on[job.node]} jobs were lost at their start on {job.node}:"
                    f" further {state.pool.name} jobs exclude it.{self._end_of_log(job)}"
                )
            late = [job for job, end in self._dismissed.items() if end <= snapshot.now]
            if ids := [*self._dismiss(decision.cancel), *late]:
                # a job may have ended meanwhile; what remains is cancelled again at the end
                with suppress(SlurmError):
                    await patiently(partial(commands.cancel, ids), self._on_silence)
                for job_id in late:
                    del self._dismissed[job_id]
            if decision.stop:
                log = self._end_of_log(decision.stop.job)
                self.problem = ClusterLostError(f"{decision.stop.reason}{log}")
            # a submission that hangs holds up neither the other pool nor the reading of the queue
            if state.submission is None or state.submission.done():
                ended = state.submission
                state.submission = asyncio.ensure_future(self._submit(state, decision.submit))
                if ended:
                    ended.result()
        self._report_queue(snapshot)

    async def _snapshot(self) -> Snapshot | None:
        """The present state, or None if Slurm does not answer: then nothing is decided."""
        asked_at = time.monotonic()
        try:
            queue = await patiently(partial(commands.queue, name=self.job_name), self._on_silence)
            draining = await patiently(commands.draining, self._on_silence)
        except SlurmError as error:
            self._on_silence(str(error))
            return None
        if self._is_silent:
            self.on_message("Slurm answers again.")
        self._is_silent = False
        names = self._arrivals.names
        kills = {event["worker"] for _, event in self.scheduler.get_events(OVER_MEMORY)}
        return Snapshot(
            now=asked_at,
            queue={job.id: job for job in queue},
            workers=self._task_counts(),
            arrivals=frozenset(names.values()),
            draining=draining,
            killed=frozenset(name for address, name in names.items() if address in kills),
            refused=frozenset(self._arrivals.refused),
        )

    def _task_counts(self) -> Mapping[str, int]:
        workers = self.scheduler.workers.values()
        return {str(worker.name): len(worker.processing) for worker in workers}

    def _dismiss(self, jobs: Iterable[Job]) -> list[str]:
        """End the idle workers of jobs, which completes these jobs; the ids of the other jobs."""
        task_counts = self._task_counts()
        others = []
        for job in jobs:
            counts = job.task_counts(task_counts)
            if not counts or any(counts):
                others.append(job.id)
                continue
            self._dismissed[job.id] = time.monotonic() + END_WITHIN
            for worker in list(self.scheduler.workers.values()):
                if job.owns(str(worker.name)):
                    self.scheduler.loop.add_callback(self.scheduler.close_worker, worker.address)
        return others

    def _on_silence(self, reason: str) -> None:
        if not self._is_silent and not self._is_ending:
            self.on_message(
                f"Slurm does not answer ({reason}). Jobs continue; lost jobs are replaced later."
            )
        self._is_silent = True

    async def _submit(self, state: _PoolState, number: int) -> None:
        pool = state.pool.with_memory(state.rules.memories[state.jobs.step])
        try:
            for _ in range(number):
                if self._is_ending:
                    return
                launch = replace(
                    self.launch,
                    worker=f"{pool.name}-{next(self._numbers)}",
                    exclude=state.jobs.excluded,
                )
                job_id = await patiently(
                    partial(self._sbatch, pool, launch),
                    lambda reason: self.on_message(
                        f"sbatch gave {reason}: further {pool.name} jobs wait for it, and the run"
                        " goes on."
                    ),
                )
                if state.refusals:
                    self.on_message(
                        f"Slurm accepts {pool.name} jobs again, after "
                        f"{plural(state.refusals, 'refusal')}."
                    )
                state.refusals = 0
                state.latest_refusal = ""
                job = Job(job_id, launch.worker, time.monotonic(), step=state.jobs.step)
                state.jobs = replace(state.jobs, jobs=(*state.jobs.jobs, job))
        except SlurmError as error:
            state.refusals += 1
            if str(error) != state.latest_refusal:
                state.latest_refusal = str(error)
                self.on_message(f"Slurm refused a further {pool.name} job: {error}.")
            if not isinstance(error, SlurmRefusal):
                return
            if state.jobs.excluded:  # perhaps no other node has what the jobs need
                self.on_message(f"Jobs may use {', '.join(state.jobs.excluded)} again.")
                state.jobs = replace(state.jobs, failed_on={})
            failure = JobFailure(f"Slurm refused it: {error}")
            state.jobs = state.jobs.with_failures([failure], time.monotonic(), state.rules)

    def _sbatch(self, pool: WorkerPool, launch: LaunchInfo) -> str:
        job = commands.submit(script(pool, launch), self.job_name, launch.comment)
        # in this thread, even if the coroutine that waits for it is cancelled
        self._canceller.add(job)
        return job

    def _report_queue(self, snapshot: Snapshot) -> None:
        """Report the jobs to the user when the reasons that they wait for change.

        The live page shows them always.
        """
        jobs = chain.from_iterable(state.jobs.jobs for state in self.pools.values())
        queued = [snapshot.queue[job.id] for job in jobs if job.id in snapshot.queue]
        text = f"Jobs: {commands.summary(queued)}"
        self.scheduler.log_event(CLUSTER, {"text": text})
        reasons = {job.reason or job.state for job in queued if job.pending}
        if reasons and reasons != self._reported_reasons:
            self.on_message(f"{text}.")
        self._reported_reasons = reasons

    def _end_of_log(self, job: Job | None) -> str:
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
        shown = lines[-TAIL:]
        ended = [n for n, line in enumerate(lines) if line.startswith(PROLOGUE_ENDED)]
        if ended and ended[-1] < len(lines) - TAIL:
            after = ended[-1] + 1
            shown = [*lines[max(0, after - PROLOGUE_TAIL) : after], "...", *shown]
        return "\n  ".join([f"\nThe end of its log '{path}':", *shown])

    def end(self) -> None:
        """End all jobs: those of idle workers by themselves, the others are cancelled.

        Returns when Slurm has received the request, at once if it was sent.
        """
        if self._is_ending:
            return
        self._is_ending = True
        commands.end_all(self._calls)
        jobs = [job for state in self.pools.values() for job in state.jobs.jobs]
        others = self._dismiss(jobs)
        try:
            self._canceller.cancel_all(others if self._dismissed else None)
        except SlurmError as error:
            self.on_message(
                f"Slurm does not answer ({error}). A process in the background goes on cancelling "
                "the jobs, and they end by themselves within two minutes."
            )


class CancelOnExit:
    """A process that cancels jobs when the driver ends, however it does.

    The jobs are those of a name and an owner; it removes their keys, too.
    """

    def __init__(self, name: str, owner: str, keys: Path) -> None:
        self._words = (name, owner, str(keys))
        self._lock = threading.Lock()
        self._jobs: list[str] = []
        self._is_closed = False
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", CANCEL_ON_EXIT, "sh", *self._words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it would complain about jobs that have ended
            bufsize=0,
            env=commands.environment(),
            start_new_session=True,  # a signal to the driver's process group must not end it
        )

    def _send(self, lines: Iterable[str]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it was killed: its successor gets all
            self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())

    def add(self, job: str) -> None:
        """Add a job; after `cancel_all` it is cancelled at once."""
        with self._lock:
            self._jobs.append(job)
            if not self._is_closed:
                self._send([job])
                return
        commands.cancel([job])

    def revive(self) -> int | None:
        """Start the process again if it was killed, and return its exit code."""
        with self._lock:
            code = self._process.poll()
            if code is not None and not self._is_closed:
                self._process = self._start()
                self._send(self._jobs)
                return code
        return None

    def cancel_all(self, at_once: Iterable[str] | None = None) -> None:
        """Cancel all jobs; given some, these at once, and others that do not end by themselves.

        Returns when Slurm has received it, SlurmError if it does not answer.
        """
        self.revive()
        timeout = HANGS_AFTER
        with self._lock:
            self._is_closed = True
            if at_once is not None:
                timeout += END_WITHIN
                self._send([f"end {' '.join(at_once)}"])
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise SlurmError(f"no answer within {timeout:g} s") from None
        if code:
            raise SlurmError(f"scancel ended with code {code}")
