"""Workers inside a job that is there already: one step of ``srun`` for each, one GPU for each step."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import Scheduler, Security, SpecCluster
from distributed.deploy.spec import ProcessInterface

from daskmetrics.cluster.queue import slurm
from daskmetrics.cluster.settings import RESOURCES
from daskmetrics.cluster.site import gpus, pairs_of
from daskmetrics.config import Cluster
from daskmetrics.errors import ConfigError

JOB = "SLURM_JOB_ID"
ENDING = 10.0  # seconds that a step is given to end before it is killed


@dataclass(frozen=True)
class Allocation:
    """What the present job holds.

    Attributes
    ----------
    job : str
    cpus, gpus : int
        On all its nodes together.
    """

    job: str
    cpus: int
    gpus: int

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
    Allocation(job='7', cpus=8, gpus=4)
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
    return Allocation(job, int(pairs["NumCPUs"].partition("-")[0]), count)


def allocation_cluster(profile: Cluster, prefix: str) -> SpecCluster:
    """A scheduler in this process, and a step of the present job for each worker.

    Raises
    ------
    ConfigError
        If there is no allocation, or not room for so many workers.
    """
    room = present(os.environ)
    slots = room.slots(profile.threads)
    if profile.workers > slots:
        raise ConfigError(
            f"{profile.workers} workers do not fit into job {room.job}: it has {room.gpus} GPUs and {room.cpus} CPUs, "
            f"room for {slots}. Ask for --workers {slots}, or for a larger job."
        )
    security = Security.temporary()
    logs = Path(profile.logs)
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    step = Steps(profile, room, _environment(security), str(logs.resolve()))
    where = {"interface": profile.interface} if profile.interface else {}
    scheduler = {
        "cls": Scheduler,
        "options": {
            **where,
            "protocol": "tls://",
            "security": security,
            "dashboard_address": "127.0.0.1:0",
            "http_prefix": prefix,
        },
    }
    workers = {f"step-{i}": {"cls": Step, "options": {"steps": step}} for i in range(profile.workers)}
    return SpecCluster(workers=workers, scheduler=scheduler, security=security, silence_logs=False)


def _environment(security: Security) -> dict[str, str]:
    """Dask's settings for the workers, with the certificates: an environment is its user's alone, and no file."""
    names = security.get_tls_config_for_role("worker")
    keys = {"ca_file": "ca-file", "cert": "worker.cert", "key": "worker.key"}
    tls = {f"distributed.comm.tls.{keys[name]}": text for name, text in names.items() if name in keys}
    with dask.config.set({**tls, "distributed.comm.require-encryption": True}):
        return {"DASK_INTERNAL_INHERIT_CONFIG": dask.config.serialize(dask.config.global_config)}


@dataclass(frozen=True)
class Steps:
    """What all steps of a cluster share."""

    profile: Cluster
    room: Allocation
    environment: Mapping[str, str]
    logs: str

    def command(self, scheduler: str, name: str) -> Sequence[str]:
        """What starts a worker."""
        profile = self.profile
        resources = ",".join(f"{what}={count}" for what, count in RESOURCES.items())
        return [
            *("srun", "--jobid", self.room.job, "--export=ALL", "--nodes=1", "--ntasks=1", "--exact"),
            *(f"--cpus-per-task={profile.threads}", "--mem=0", "--job-name", name),  # the job's memory is shared
            *(["--gres=gpu:1"] if self.room.gpus else ["--gres=none"]),
            *("--output", f"{self.logs}/{name}-%J.log", "--unbuffered"),
            *(sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--name", name),
            *("--nthreads", "1", "--nanny", "--death-timeout", "60", "--resources", resources),
            *("--memory-limit", profile.memory or "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"),
            *(["--interface", profile.interface] if profile.interface else []),
        ]


class Step(ProcessInterface):  # type: ignore[misc]  # distributed has no types
    """A worker as a step of the present job: `SpecCluster` starts and closes it."""

    def __init__(self, scheduler: str, name: str, steps: Steps, **_: Any) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.steps = steps
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = self.steps.command(self.address or self.scheduler, str(self.name))
        own = {**os.environ, **self.steps.environment}
        self.process = await asyncio.create_subprocess_exec(*command, env=own, start_new_session=True)
        await super().start()

    async def close(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()  # srun hands it on to the worker
            try:
                await asyncio.wait_for(self.process.wait(), ENDING)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    self.process.kill()
        await super().close()
