"""The driver as a job of its own: its script, its submission, and what became of it."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from dask.utils import parse_bytes

from daskmetrics.cluster.slurm._commands import SlurmError, slurm
from daskmetrics.cluster.slurm._partitions import pairs_of
from daskmetrics.config import Cluster, Driver
from daskmetrics.core._files import atomic_write, private
from daskmetrics.core.errors import ConfigError

WARNING = 120  # seconds before its end at which Slurm tells the driver to stop
ENDED = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
         "TIMEOUT")  # fmt: skip


@dataclass(frozen=True)
class Submitted:
    """A driver's job, as the run's folder remembers it.

    Attributes
    ----------
    job : str
        Its number.
    log : str
        What the driver prints.
    since : str
        When it was submitted, local time with the offset from UTC.
    """

    job: str
    log: str
    since: str


@dataclass(frozen=True)
class DriverFiles:
    """Files of a driver's job, below the run's folder."""

    folder: Path

    @property
    def script(self) -> Path:
        return self.folder / "driver.sbatch"

    @property
    def config(self) -> Path:
        """The configuration at the time of submission: a change of the user's file does not reach the job."""
        return self.folder / "config.yaml"

    @property
    def submitted(self) -> Path:
        return self.folder / "job.json"


def script(profile: Cluster, name: str, place: DriverFiles, command: Iterable[str]) -> str:
    """The text of a driver's job, exactly as ``sbatch`` gets it.

    Parameters
    ----------
    profile : Cluster
        Its `driver` says what the driver needs; its account counts for the driver, too.
    name : str
        Of the run.
    place : DriverFiles
    command : iterable of str
        What drives the run.

    Raises
    ------
    ConfigError
        If the folder's name cannot stand in a job script.
    """
    wanted = profile.driver
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *(f"#SBATCH {directive}" for directive in _directives(wanted, profile, name, place)),
            "",
            # Slurm's signals reach the driver itself: it lets running work finish, and cancels its workers' jobs
            f"exec {shlex.join(command)}",
            "",
        ]
    )


def _directives(wanted: Driver, profile: Cluster, name: str, place: DriverFiles) -> list[str]:
    log = f"{place.folder}/%j.log"
    if not log.isprintable() or any(sign in log for sign in "\"'\\"):
        raise ConfigError(f"'{place.folder}' cannot stand in a job script: choose a --folder without quotes in it.")
    asked = {
        "partition": wanted.partition,
        "account": wanted.account or profile.account,
        "qos": wanted.qos,
        "mem": wanted.memory and f"{-(-parse_bytes(wanted.memory) // 2**20)}M",
    }
    return [
        f"--job-name={job_name(name)}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={wanted.cpus}",
        f"--time={wanted.walltime}",
        *(f"--{option}={value}" for option, value in asked.items() if value),
        f'--output="{log}"',
        f"--signal=B:TERM@{WARNING}",
        "--no-requeue",  # it would be a second driver while the first one's jobs are still there
        *wanted.directives,
    ]


def job_name(run: str) -> str:
    """What Slurm calls the driver's job of a run; no run's name has a colon."""
    return f"daskmetrics:driver:{run}"


def submit(profile: Cluster, name: str, place: DriverFiles, config: str) -> Submitted:
    """Write the driver's job into the run's folder and submit it.

    Parameters
    ----------
    profile : Cluster
    name : str
    place : DriverFiles
    config : str
        The configuration in force, as YAML.

    Raises
    ------
    ConfigError
        If a driver's job of this run is there already.
    SlurmError
        If Slurm refuses the job, with its words.
    """
    before = submitted(place)
    if before and (state := state_of(before.job)) and not state.ended:
        raise ConfigError(
            f"Job {before.job} drives this run already ({state.name.lower()}). Follow it with: daskmetrics attach "
            f"{place.folder.parent}, or end it with: scancel {before.job}"
        )
    with private():
        place.folder.mkdir(parents=True, exist_ok=True)
    atomic_write(place.config, config)
    command = [
        sys.executable,
        "-u",
        "-m",
        "daskmetrics",
        "run",
        str(place.config),
        "--folder",
        str(place.folder.parent),
    ]
    atomic_write(place.script, script(profile, name, place, command))
    job = job_id(slurm("sbatch", "--parsable", str(place.script)))
    told = Submitted(job, str(place.folder / f"{job}.log"), time.strftime("%Y-%m-%d %H:%M:%S %z"))
    atomic_write(place.submitted, json.dumps(asdict(told)))
    return told


def job_id(said: str) -> str:
    """The number of a job, from what ``sbatch --parsable`` printed, a site's remarks included.

    Raises
    ------
    SlurmError
        If there is none.

    Examples
    --------
    >>> job_id("sbatch: your project has 3 hours left\\n4711;alpha\\n")
    '4711'
    """
    found = re.search(r"^(\d+)(;.*)?$", said, re.MULTILINE)
    if found is None:
        raise SlurmError(f"sbatch named no job; it said: {said.strip()}")
    return found[1]


def submitted(place: DriverFiles) -> Submitted | None:
    """The latest driver's job of a run, or None if it never had one."""
    if not place.submitted.is_file():
        return None
    return Submitted(**json.loads(place.submitted.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class JobState:
    """How a job stands.

    Attributes
    ----------
    name : str
        Slurm's word, such as ``PENDING``.
    reason : str
        Why it is so, where Slurm says.
    starts : str
        When it is expected to start, or did.
    exit : str
        Its exit code and signal, such as ``1:0``.
    """

    name: str
    reason: str = ""
    starts: str = ""
    exit: str = ""

    @property
    def ended(self) -> bool:
        return self.name in ENDED


def state_of(job: str) -> JobState | None:
    """How a job stands; None if Slurm does not know it any more.

    Raises
    ------
    SlurmError
        If Slurm does not answer.
    """
    try:
        return parse_state(slurm("scontrol", "--oneliner", "show", "job", job))
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return None
        raise


def parse_state(shown: str) -> JobState:
    """How a job stands, from what ``scontrol -o show job`` printed.

    Examples
    --------
    >>> parse_state("JobId=7 JobState=PENDING Reason=Priority StartTime=Unknown ExitCode=0:0")
    JobState(name='PENDING', reason='Priority', starts='', exit='0:0')
    """
    pairs = pairs_of(shown)
    reason, starts = (pairs.get(key, "") for key in ("Reason", "StartTime"))
    return JobState(
        pairs.get("JobState", "UNKNOWN").rstrip("+"),
        "" if reason == "None" else reason,
        "" if starts == "Unknown" else starts,
        pairs.get("ExitCode", ""),
    )


def describe(job: Submitted, state: JobState | None) -> str:
    """A driver's job in words.

    Examples
    --------
    >>> describe(Submitted("7", "7.log", "today"), JobState("PENDING", "Priority", "2030-01-01T14:05:00"))
    'Job 7 is pending: Priority, expected to start at 2030-01-01T14:05:00. Its log: 7.log'
    """
    if state is None:
        return f"Job {job.job}, submitted {job.since}, is not known to Slurm any more. Its log: {job.log}"
    reason = f": {state.reason}" if state.reason else ""
    about = f", expected to start at {state.starts}" if state.starts and state.name == "PENDING" else ""
    code = f", exit code {state.exit.partition(':')[0]}" if state.ended else ""
    return f"Job {job.job} is {state.name.lower()}{reason}{about}{code}. Its log: {job.log}"
