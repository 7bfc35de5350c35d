"""Workers inside the present Slurm job: each is a job step, started by ``srun``, with one GPU."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from distributed import Client, SpecCluster
from distributed.deploy.spec import ProcessInterface

from daskmetrics.cluster._certificates import INHERITED, cluster_security, inherited_settings
from daskmetrics.cluster._dask_config import worker_command
from daskmetrics.cluster.links import PrivateDashboard
from daskmetrics.cluster.slurm._cluster import private_scheduler
from daskmetrics.cluster.slurm.commands import parse_pairs, slurm, time_of
from daskmetrics.cluster.slurm.partitions import parse_gpus, require_interface
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.serialization import readable

JOB = "SLURM_JOB_ID"
CLOSE_TIMEOUT = 5.0  # seconds for a worker to close by itself
TERM_TIMEOUT = 10.0  # seconds for srun to end its step before it is killed


@dataclass(frozen=True)
class Allocation:
    """The resources of the present job."""

    job: str
    cpus: int  # on all its nodes together
    gpus: int  # likewise
    ends: datetime | None = None  # when its time limit is reached

    def slots(self, threads: int) -> int:
        """How many workers with this number of CPUs fit: one per GPU, or by CPUs alone if the job
        has no GPU.
        """
        by_cpus = self.cpus // threads
        needed = max(1, self.gpus)
        if by_cpus < needed:
            raise ConfigError(
                f"Job {self.job} has {self.cpus} CPUs and {self.gpus} GPUs: too few CPUs for "
                f"{needed} workers with {threads} CPUs each. Request more CPUs, or use fewer with: "
                "--set cluster.threads=1"
            )
        return self.gpus or by_cpus

    def require(self, workers: int, threads: int) -> None:
        """Raise ConfigError if so many workers do not fit."""
        if workers > (slots := self.slots(threads)):
            raise ConfigError(
                f"{workers} workers do not fit into job {self.job}: its {self.gpus} GPUs and "
                f"{self.cpus} CPUs suffice for {slots}. Use --workers {slots}, or a larger job."
            )


def present(environment: Mapping[str, str]) -> Allocation:
    """The allocation that this process runs in; ConfigError if it runs in none."""
    job = environment.get(JOB)
    if job is None or shutil.which("srun") is None:
        raise ConfigError(
            f"--in-job needs a Slurm allocation, but this process is not in one ({JOB} is not set). "
            "Make one with 'salloc --gres=gpu:4' and run this inside it, or from a job script; or "
            "let daskmetrics submit its own jobs, with --cluster PROFILE instead of --in-job."
        )
    return parse_allocation(job, slurm("scontrol", "--oneliner", "--details", "show", "job", job))


@readable("The job", "the output of scontrol")
def parse_allocation(job: str, printed: str) -> Allocation:
    """The resources of a job, from the output of ``scontrol -o -d show job``.

    >>> parse_allocation("7", "NumNodes=2 NumCPUs=8 TRES=cpu=8,node=2 JOB_GRES=gpu:l40s:4")
    Allocation(job='7', cpus=8, gpus=4, ends=None)
    """
    pairs = parse_pairs(printed)
    total = re.search(r"gres/gpu=(\d+)", pairs.get("AllocTRES") or pairs.get("TRES", ""))
    if "JOB_GRES" in pairs:
        count = sum(parse_gpus(pairs["JOB_GRES"]).values())
    elif total:
        count = int(total[1])
    else:  # before 20.11
        nodes = int(pairs.get("NumNodes", "1").partition("-")[0])
        count = nodes * sum(parse_gpus(pairs.get("TresPerNode", "").removeprefix("gres:")).values())
    cpus = int(pairs["NumCPUs"].partition("-")[0])
    return Allocation(job, cpus, count, time_of(pairs.get("EndTime", "")))


class AllocationCluster(PrivateDashboard, SpecCluster):  # type: ignore[misc]  # distributed has no types
    """Workers as steps of the present job."""


@contextmanager
def allocation_client(
    profile: Cluster, prefix: str, on_message: Callable[[str], None]
) -> Iterator[Client]:
    """A client of workers in the present job, with the scheduler in this process; all steps end
    with the context.
    """
    allocation = present(os.environ)
    allocation.require(profile.workers, profile.threads)
    require_interface(profile.interface)
    security = cluster_security()
    environment = {**os.environ, INHERITED: inherited_settings(security)}
    if allocation.ends:  # Slurm itself sets it since 23.02
        environment["SLURM_JOB_END_TIME"] = str(int(allocation.ends.timestamp()))
    logs = Path(profile.logs).absolute()
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    steps = JobSteps(profile, allocation, environment, logs, on_message)
    scheduler = private_scheduler(profile, prefix, security)
    workers = {
        f"step-{i}": {"cls": JobStep, "options": {"steps": steps}} for i in range(profile.workers)
    }
    with (
        AllocationCluster(workers=workers, scheduler=scheduler, security=security) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cluster.prefix = prefix
        try:
            yield client
        finally:
            with suppress(OSError):  # the scheduler is gone, and its workers end without it
                client.retire_workers(close_workers=True)


@dataclass(frozen=True)
class JobSteps:
    """What all steps of a cluster have in common."""

    profile: Cluster
    allocation: Allocation
    environment: Mapping[str, str]  # with the keys of the cluster, which only the user can read
    logs: Path
    on_message: Callable[[str], None]

    def log(self, name: str) -> Path:
        return self.logs / f"{name}-{self.allocation.job}.log"

    def command(self, scheduler: str, name: str) -> Sequence[str]:
        """The command that starts a worker."""
        profile = self.profile
        step = [
            *("srun", "--quiet", "--export=ALL", "--nodes=1", "--ntasks=1", "--exact"),
            *("--jobid", self.allocation.job, "--job-name", name),
            f"--cpus-per-task={profile.threads}",
            "--mem=0",  # the job's memory is shared
            "--gres=gpu:1" if self.allocation.gpus else "--gres=none",
            *("--output", str(self.log(name)), "--open-mode=append", "--unbuffered"),
        ]
        worker = worker_command(scheduler, name, profile.memory, profile.interface)
        return [*step, sys.executable, *worker]


class JobStep(ProcessInterface):  # type: ignore[misc]  # distributed has no types
    """A worker as a step of the present job: `SpecCluster` starts and closes it."""

    def __init__(self, scheduler: str, name: str, steps: JobSteps, **_: Any) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.step = name
        self.steps = steps
        self.scheduler_address = scheduler
        self.process: asyncio.subprocess.Process | None = None
        self.watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        command = self.steps.command(self.scheduler_address, self.step)
        with self.steps.log(self.step).open("ab") as log:
            # in a new session, so that a Ctrl-C at the terminal reaches only the driver
            self.process = await asyncio.create_subprocess_exec(
                *command,
                env=self.steps.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.watching = asyncio.ensure_future(self._watch(self.process))
        await super().start()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Report a worker that ends early: it is not replaced."""
        code = await process.wait()
        log = self.steps.log(self.step)
        self.steps.on_message(f"Worker {self.step} ended (srun's exit code {code}). Its log: {log}")

    async def close(self) -> None:
        if self.process is not None and self.watching is not None:
            self.watching.cancel()
            # the scheduler has asked the worker to close; srun ends its step on SIGTERM
            for number, timeout in (
                (None, CLOSE_TIMEOUT),
                (signal.SIGTERM, TERM_TIMEOUT),
                (signal.SIGKILL, None),
            ):
                with suppress(ProcessLookupError):
                    if number is not None:
                        self.process.send_signal(number)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.process.wait(), timeout)
                    break
        await super().close()
