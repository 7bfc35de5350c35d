"""The driver as a Slurm job: its script, its submission and its state."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from dask.utils import parse_bytes

from daskmetrics.cluster.slurm import _commands as commands
from daskmetrics.cluster.slurm._commands import JobState
from daskmetrics.cluster.slurm._script import output
from daskmetrics.config import Cluster
from daskmetrics.core._files import atomic_write, private
from daskmetrics.core.errors import ConfigError

SUBMITTED = "job.json"  # the latest job, in the folder of a run's driver
WARNING = 120  # seconds before its time limit at which Slurm signals the driver to stop


@dataclass(frozen=True)
class Submitted:
    """A driver's job, as recorded in the run's folder."""

    job: str  # its id
    log: str  # the file of its output
    since: str  # when it was submitted, local time with the offset from UTC


def script(profile: Cluster, name: str, folder: Path, command: Iterable[str], comment: str) -> str:
    """The script of a driver's job, exactly as ``sbatch`` gets it; the profile's account also applies to the driver."""
    directives = [f"--job-name={job_name(name)}", f"--comment={comment}", *_directives(profile, folder)]
    lines = ["#!/usr/bin/env bash", *(f"#SBATCH {directive}" for directive in directives)]
    # Slurm's signals reach the driver itself: it finishes running work, and cancels its workers' jobs
    return "\n".join([*lines, "", f"exec {shlex.join(command)}", ""])


def job_name(run: str) -> str:
    return f"daskmetrics:driver:{run}"  # no run's own name contains a colon


def _directives(profile: Cluster, folder: Path) -> list[str]:
    needs = profile.driver
    optional = {
        "partition": needs.partition,
        "account": needs.account or profile.account,
        "qos": needs.qos,
        "mem": needs.memory and f"{-(-parse_bytes(needs.memory) // 2**20)}M",
    }
    return [
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={needs.cpus}",
        f"--time={needs.walltime}",
        *(f"--{option}={value}" for option, value in optional.items() if value),
        output(folder, "%j.log"),
        f"--signal=B:TERM@{WARNING}",
        "--no-requeue",  # it would be a second driver beside the first one's jobs
        *needs.directives,
    ]


def submit(profile: Cluster, name: str, folder: Path, config: str) -> Submitted:
    """Write the driver's job and the configuration (YAML) into its folder, and submit the job.

    Later changes of the user's configuration do not reach the job. It is a ConfigError if a driver's job of this run is
    waiting or running, and a SlurmError if Slurm refuses the job.
    """
    run, before = folder.parent, submitted(folder)
    if before and (state := commands.job_state(before.job)) and not state.ended:
        raise ConfigError(
            f"Job {before.job} already drives this run ({state.name.lower()}). Follow it with: daskmetrics attach "
            f"{run}, or end it with: scancel {before.job}"
        )
    with private():
        folder.mkdir(parents=True, exist_ok=True)
    kept = atomic_write(folder / "config.yaml", config)
    # -P: a module of the working folder must not replace one of Python's own
    command = [sys.executable, "-P", "-u", "-m", "daskmetrics", "run", str(kept), "--folder", str(run)]
    comment = secrets.token_hex(8)
    written = atomic_write(folder / "driver.sbatch", script(profile, name, folder, command, comment))
    job = commands.submit(written, job_name(name), comment)
    result = Submitted(job, str(folder / f"{job}.log"), time.strftime("%Y-%m-%d %H:%M:%S %z"))
    atomic_write(folder / SUBMITTED, json.dumps(asdict(result)))
    return result


def submitted(folder: Path) -> Submitted | None:
    """The latest driver's job in a run's folder of them, or None if it never had one."""
    file = folder / SUBMITTED
    return Submitted(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None


def describe(job: Submitted, state: JobState | None) -> str:
    """A driver's job in one sentence.

    >>> describe(Submitted("7", "7.log", "today"), JobState("PENDING", "Priority", "2030-01-01T14:05:00"))
    'Job 7 is pending: Priority, expected to start at 2030-01-01T14:05:00. Its log: 7.log'
    """
    if state is None:
        return f"Slurm has forgotten job {job.job}, submitted {job.since}. Its log: {job.log}"
    reason = f": {state.reason}" if state.reason else ""
    start = f", expected to start at {state.starts}" if state.starts and state.name == "PENDING" else ""
    code = f", exit code {state.exit.partition(':')[0]}" if state.ended else ""
    return f"Job {job.job} is {state.name.lower()}{reason}{start}{code}. Its log: {job.log}"
