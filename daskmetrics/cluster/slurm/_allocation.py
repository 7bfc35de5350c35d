"""Workers inside a job that is there already: one step of ``srun`` for each, one GPU for each step."""

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

import dask
from distributed import Client, Scheduler, Security, SpecCluster
from distributed.deploy.spec import ProcessInterface

from daskmetrics.cluster._dask_config import RESOURCES
from daskmetrics.cluster.slurm._commands import slurm
from daskmetrics.cluster.slurm._partitions import gpus, pairs_of
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError

JOB = "SLURM_JOB_ID"
LEAVING = 5.0  # seconds that a worker is given to leave, as the scheduler has told it
ENDING = 10.0  # seconds that srun is given to end its step before it is killed


@dataclass(frozen=True)
class Allocation:
    """What the present job holds.

    Attributes
    ----------
    job : str
    cpus, gpus : int
        On all its nodes together.
    ends : datetime or None
        When its walltime is over.
    """

    job: str
    cpus: int
    gpus: int
    ends: datetime | None = None

    def slots(self, threads: int) -> int:
        """How many workers with so many CPUs each find room: one per GPU, or by CPUs alone where there is none.

        Raises
        ------
        ConfigError
            If there is not room for one per GPU.
        """
        by_cpus = self.cpus // threads
        if by_cpus < max(1, self.gpus):
            raise ConfigError(
                f"Job {self.job} has {self.cpus} CPUs and {self.gpus} GPUs: too few for {max(1, self.gpus)} workers "
                f"with {threads} CPUs each. Ask for more CPUs, or use fewer with: --set cluster.threads=1"
            )
        return self.gpus or by_cpus

    def require(self, workers: int, threads: int) -> None:
        """Refuse more workers than find room.

        Raises
        ------
        ConfigError
            With how many do.
        """
        if workers > (slots := self.slots(threads)):
            raise ConfigError(
                f"{workers} workers do not fit into job {self.job}: it has {self.gpus} GPUs and {self.cpus} CPUs, room "
                f"for {slots}. Ask for --workers {slots}, or for a larger job."
            )


def present(environment: Mapping[str, str]) -> Allocation:
    """The allocation that this process runs in.

    Raises
    ------
    ConfigError
        If it runs in none.
    """
    job = environment.get(JOB)
    if job is None or shutil.which("srun") is None:
        raise ConfigError(
            f"--in-job needs a Slurm allocation, and there is none here ({JOB} is not set). Make one with "
            "'salloc --gres=gpu:4' and run this inside it, or from a job script; or let daskmetrics submit jobs "
            "of its own, with --cluster PROFILE instead of --in-job."
        )
    return parse_allocation(job, slurm("scontrol", "--oneliner", "--details", "show", "job", job))


def parse_allocation(job: str, shown: str) -> Allocation:
    """What a job holds, from what ``scontrol -o -d show job`` printed.

    Examples
    --------
    >>> parse_allocation("7", "NumNodes=2 NumCPUs=8 TRES=cpu=8,node=2 JOB_GRES=gpu:l40s:4")
    Allocation(job='7', cpus=8, gpus=4, ends=None)
    """
    pairs = pairs_of(shown)
    total = re.search(r"gres/gpu=(\d+)", pairs.get("AllocTRES") or pairs.get("TRES", ""))
    if "JOB_GRES" in pairs:
        count = sum(gpus(pairs["JOB_GRES"]).values())
    elif total:
        count = int(total[1])
    else:  # before 20.11
        nodes = int(pairs.get("NumNodes", "1").partition("-")[0])
        count = nodes * sum(gpus(pairs.get("TresPerNode", "").removeprefix("gres:")).values())
    ends = pairs.get("EndTime", "")
    known = datetime.fromisoformat(ends) if ends[:1].isdigit() else None
    return Allocation(job, int(pairs["NumCPUs"].partition("-")[0]), count, known)


@contextmanager
def allocation_client(profile: Cluster, prefix: str, say: Callable[[str], None]) -> Iterator[Client]:
    """A client of workers in the present job, with the scheduler in this process; no step is left behind.

    Parameters
    ----------
    profile : Cluster
    prefix : str
        Of the dashboard.
    say : callable
        Is told of workers that ended.

    Raises
    ------
    ConfigError
        If there is no allocation, or not room for so many workers.
    """
    room = present(os.environ)
    room.require(profile.workers, profile.threads)
    security = Security.temporary()
    with (
        SpecCluster(
            workers=_workers(profile, room, security, say),
            scheduler=_scheduler(profile, prefix, security),
            security=security,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        try:
            yield client
        finally:
            with suppress(OSError):  # the scheduler went away, and its workers will
                client.retire_workers(close_workers=True)


def _scheduler(profile: Cluster, prefix: str, security: Security) -> dict[str, Any]:
    where = {"interface": profile.interface} if profile.interface else {}
    pages = {"dashboard_address": "127.0.0.1:0", "http_prefix": prefix}
    return {"cls": Scheduler, "options": {**where, **pages, "protocol": "tls://", "security": security}}


def _workers(profile: Cluster, room: Allocation, security: Security, say: Callable[[str], None]) -> dict[str, Any]:
    logs = Path(profile.logs).absolute()
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    steps = JobSteps(profile, room, _environment(security, room), logs, say)
    return {f"step-{i}": {"cls": JobStep, "options": {"steps": steps}} for i in range(profile.workers)}


def _environment(security: Security, room: Allocation) -> dict[str, str]:
    """Dask's settings for the workers, with the certificates: an environment is its user's alone, and no file."""
    ends = {"SLURM_JOB_END_TIME": str(int(room.ends.timestamp()))} if room.ends else {}  # Slurm says so since 23.02
    names = security.get_tls_config_for_role("worker")
    keys = {"ca_file": "ca-file", "cert": "worker.cert", "key": "worker.key"}
    tls = {f"distributed.comm.tls.{keys[name]}": text for name, text in names.items() if name in keys}
    with dask.config.set({**tls, "distributed.comm.require-encryption": True}):
        return {**ends, "DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(dask.config.global_config)}


@dataclass(frozen=True)
class JobSteps:
    """What all steps of a cluster share."""

    profile: Cluster
    room: Allocation
    environment: Mapping[str, str]
    logs: Path
    say: Callable[[str], None]

    def log(self, name: str) -> Path:
        return self.logs / f"{name}-{self.room.job}.log"

    def command(self, scheduler: str, name: str) -> Sequence[str]:
        """What starts a worker."""
        profile = self.profile
        resources = ",".join(f"{what}={count}" for what, count in RESOURCES.items())
        return [
            *("srun", "--quiet", "--jobid", self.room.job, "--export=ALL", "--nodes=1", "--ntasks=1", "--exact"),
            *(f"--cpus-per-task={profile.threads}", "--mem=0", "--job-name", name),  # the job's memory is shared
            *(["--gres=gpu:1"] if self.room.gpus else ["--gres=none"]),
            *("--output", str(self.log(name)), "--open-mode=append", "--unbuffered"),
            *(sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--name", name),
            *("--nthreads", "1", "--nanny", "--death-timeout", "60", "--resources", resources),
            *("--memory-limit", profile.memory or "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"),
            *(["--interface", profile.interface] if profile.interface else []),
        ]


class JobStep(ProcessInterface):  # type: ignore[misc]  # distributed has no types
    """A worker as a step of the present job: `SpecCluster` starts and closes it."""

    def __init__(self, scheduler: str, name: str, steps: JobSteps, **_: Any) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.step, self.steps, self.at = name, steps, scheduler
        self.process: asyncio.subprocess.Process | None = None
        self.watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        own = {**os.environ, **self.steps.environment}
        with self.steps.log(self.step).open("ab") as log:
            # a session of its own, so that a Ctrl-C at the terminal is for the driver alone
            self.process = await asyncio.create_subprocess_exec(
                *self.steps.command(self.at, self.step), env=own, stdout=log, stderr=log, start_new_session=True
            )
        self.watching = asyncio.ensure_future(self._watch(self.process))
        await super().start()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Tell if a worker ends before it is meant to: nobody replaces it."""
        code = await process.wait()
        self.steps.say(f"Worker {self.step} ended (srun's exit code {code}). Its log: {self.steps.log(self.step)}")

    async def close(self) -> None:
        if self.process is not None and self.watching is not None:
            self.watching.cancel()
            for hurry, patience in ((None, LEAVING), (signal.SIGTERM, ENDING), (signal.SIGKILL, None)):
                if await _has_ended(self.process, hurry, patience):
                    break
        await super().close()


async def _has_ended(process: asyncio.subprocess.Process, hurry: int | None, patience: float | None) -> bool:
    with suppress(ProcessLookupError):
        if hurry is not None:
            process.send_signal(hurry)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), patience)
    return process.returncode is not None
