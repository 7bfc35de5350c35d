"""Workers inside the present Slurm job: each is a job step, started by ``srun``, with one GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from distributed import Client

from daskmetrics.cluster._certificates import cluster_security, inherited
from daskmetrics.cluster._client import client_of
from daskmetrics.cluster.slurm._cluster import PrivateCluster
from daskmetrics.cluster.slurm.commands import parse_pairs, slurm, time_of
from daskmetrics.cluster.slurm.partitions import parse_gpus
from daskmetrics.cluster.slurm.script import worker_command
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import open_own
from daskmetrics.core.serialization import readable
from daskmetrics.core.text import OnMessage

JOB = "SLURM_JOB_ID"
CLOSE_TIMEOUT = 5.0  # seconds for workers to close by themselves
TERM_TIMEOUT = 10.0  # seconds for srun to end its step before it is killed


@dataclass(frozen=True)
class Allocation:
    """The resources of the present job."""

    job: str
    cpus: int  # on all its nodes together
    gpus: int  # likewise
    ends: datetime | None = None  # when its time limit is reached

    def slots(self, threads: int, workers: int | None = None) -> int:
        """How many workers with this number of CPUs fit: one per GPU, if any.

        The given number if it fits, else ConfigError.

        >>> Allocation("7", cpus=16, gpus=4).slots(threads=2), Allocation("7", 8, 0).slots(3)
        (4, 2)
        """
        by_cpus = self.cpus // threads
        needed = max(1, self.gpus)
        if by_cpus < needed:
            raise ConfigError(
                f"Job {self.job} has {self.cpus} CPUs and {self.gpus} GPUs: too few CPUs for "
                f"{needed} workers with {threads} CPUs each. Request more CPUs, or use fewer with: "
                "--set cluster.threads=1"
            )
        slots = self.gpus or by_cpus
        if (workers or 0) > slots:
            raise ConfigError(
                f"{workers} workers do not fit into job {self.job}: its {self.gpus} GPUs and "
                f"{self.cpus} CPUs suffice for {slots}. Use --workers {slots}, or a larger job."
            )
        return workers or slots


def present(environment: Mapping[str, str]) -> Allocation:
    """The allocation that this process runs in; ConfigError if it runs in none."""
    job = environment.get(JOB)
    if job is None or shutil.which("srun") is None:
        raise ConfigError(
            f"--in-job needs a Slurm allocation, but this process is not in one ({JOB} is not set)."
            " Make one with 'salloc --gres=gpu:4' and run this inside it, or from a job script; or"
            " let daskmetrics submit its own jobs, with --cluster PROFILE instead of --in-job."
        )
    return parse_allocation(job, slurm("scontrol", "--oneliner", "--details", "show", "job", job))


@readable("The job", "the output of scontrol")
def parse_allocation(job: str, printed: str) -> Allocation:
    """The resources of a job, from the output of ``scontrol -o -d show job``.

    >>> parse_allocation("7", "NumNodes=2 NumCPUs=8 TRES=cpu=8,node=2 JOB_GRES=gpu:l40s:4")
    Allocation(job='7', cpus=8, gpus=4, ends=None)

    Of two types, of 23.11 with GPUs accounted for, and of a job without GPUs:

    >>> printed = "JOB_GRES=gpu:a100:2,gpu:l40s:1", "AllocTRES=cpu=8,gres/gpu=6,gres/gpu:a100=6", ""
    >>> [parse_allocation("7", f"NumCPUs=8 {resources}").gpus for resources in printed]
    [3, 6, 0]
    """
    pairs = parse_pairs(printed)
    count = sum(parse_gpus(pairs.get("JOB_GRES", "")).values())
    total = re.search(r"gres/gpu=(\d+)", pairs.get("AllocTRES", ""))
    if total and not count:
        count = int(total[1])
    cpus = int(pairs["NumCPUs"].partition("-")[0])
    return Allocation(job, cpus, count, time_of(pairs.get("EndTime", "")))


@contextmanager
def job_steps(profile: Cluster, prefix: str, on_message: OnMessage) -> Iterator[Client]:
    """A client of workers in the present job.

    All its steps end with the block.
    """
    allocation = present(os.environ)
    allocation.slots(profile.threads, profile.workers)
    logs = Path(profile.logs).absolute()
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    security = cluster_security()
    # with the keys of the cluster, which only the user can read
    environment = {**os.environ, **inherited(security)}
    if allocation.ends:  # Slurm itself sets it since 23.02
        environment["SLURM_JOB_END_TIME"] = str(int(allocation.ends.timestamp()))
    is_ending = threading.Event()

    def start(name: str, address: str) -> subprocess.Popen[bytes]:
        log = logs / f"{name}-{allocation.job}.log"
        command = [
            *("srun", "--quiet", "--export=ALL", "--nodes=1", "--ntasks=1", "--exact"),
            *("--jobid", allocation.job, "--job-name", name),
            f"--cpus-per-task={profile.threads}",
            "--mem=0",  # the job's memory is shared
            "--gres=gpu:1" if allocation.gpus else "--gres=none",
            *("--output", str(log), "--open-mode=append", "--unbuffered"),
            sys.executable,
            *worker_command(address, name, profile.memory, profile.interface),
        ]
        with open_own(log, "ab") as file:
            # in a new session, so that a Ctrl-C at the terminal reaches only the driver
            step = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

        def report_end() -> None:
            code = step.wait()
            if not is_ending.is_set():  # it is not replaced
                on_message(f"Worker {name} ended (srun's exit code {code}). Its log: {log}")

        threading.Thread(target=report_end, daemon=True).start()
        return step

    cluster = PrivateCluster(profile, prefix, security)
    with client_of(cluster, on_message) as client:
        steps: list[subprocess.Popen[bytes]] = []
        try:
            address = cluster.scheduler_address
            steps.extend(start(f"step-{number}", address) for number in range(profile.workers))
            yield client
        finally:
            is_ending.set()
            with suppress(OSError):  # the scheduler is gone, and its workers end without it
                client.retire_workers(close_workers=True)
            _end(steps)


def _end(steps: Sequence[subprocess.Popen[bytes]]) -> None:
    """End steps whose workers the scheduler has asked to close.

    ``srun`` ends its step on SIGTERM.
    """
    deadline = time.monotonic() + CLOSE_TIMEOUT
    while time.monotonic() < deadline and any(step.poll() is None for step in steps):
        time.sleep(0.1)
    for step in steps:
        step.terminate()
    for step in steps:
        try:
            step.wait(TERM_TIMEOUT)
        except subprocess.TimeoutExpired:
            step.kill()
            step.wait()
