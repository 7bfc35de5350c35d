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

WARNING = 120  # seconds before its time limit at which Slurm signals the driver to stop


@dataclass(frozen=True)
class Submitted:
    """A driver's job, as recorded in the run's folder."""

    job: str  # its id
    log: str  # the file of its output
    since: str  # when it was submitted, local time with the offset from UTC


@dataclass(frozen=True)
class DriverFiles:
    """Files of a driver's job, below the run's folder."""

    folder: Path

    @property
    def script(self) -> Path:
        return self.folder / "driver.sbatch"

    @property
    def config(self) -> Path:
        """The configuration at the time of submission: later changes of the user's file do not reach the job."""
        return self.folder / "config.yaml"

    @property
    def submitted(self) -> Path:
        return self.folder / "job.json"


def script(profile: Cluster, name: str, files: DriverFiles, command: Iterable[str], comment: str) -> str:
    """The script of a driver's job, exactly as ``sbatch`` gets it; the profile's account also applies to the driver."""
    directives = [f"--job-name={job_name(name)}", f"--comment={comment}", *_directives(profile, files)]
    lines = ["#!/usr/bin/env bash", *(f"#SBATCH {directive}" for directive in directives)]
    # Slurm's signals reach the driver itself: it finishes running work, and cancels its workers' jobs
    return "\n".join([*lines, "", f"exec {shlex.join(command)}", ""])


def job_name(run: str) -> str:
    return f"daskmetrics:driver:{run}"  # no run's own name contains a colon


def _directives(profile: Cluster, files: DriverFiles) -> list[str]:
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
        output(files.folder, "%j.log"),
        f"--signal=B:TERM@{WARNING}",
        "--no-requeue",  # it would be a second driver beside the first one's jobs
        *needs.directives,
    ]


def submit(profile: Cluster, name: str, files: DriverFiles, config: str) -> Submitted:
    """Write the driver's job and the configuration (YAML) into the run's folder, and submit the job.

    ConfigError if a driver's job of this run is waiting or running; SlurmError if Slurm refuses the job.
    """
    folder = files.folder.parent
    before = submitted(files)
    if before and (state := commands.job_state(before.job)) and not state.ended:
        raise ConfigError(
            f"Job {before.job} already drives this run ({state.name.lower()}). Follow it with: daskmetrics attach "
            f"{folder}, or end it with: scancel {before.job}"
        )
    with private():
        files.folder.mkdir(parents=True, exist_ok=True)
    atomic_write(files.config, config)
    # -P: a module of the working folder must not replace one of Python's own
    command = [sys.executable, "-P", "-u", "-m", "daskmetrics", "run", str(files.config), "--folder", str(folder)]
    comment = secrets.token_hex(8)
    written = atomic_write(files.script, script(profile, name, files, command, comment))
    job = commands.submit(written, job_name(name), comment)
    result = Submitted(job, str(files.folder / f"{job}.log"), time.strftime("%Y-%m-%d %H:%M:%S %z"))
    atomic_write(files.submitted, json.dumps(asdict(result)))
    return result


def submitted(files: DriverFiles) -> Submitted | None:
    """The latest driver's job of a run, or None if it never had one."""
    if not files.submitted.is_file():
        return None
    return Submitted(**json.loads(files.submitted.read_text(encoding="utf-8")))


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
