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

from daskmetrics.cluster.slurm import commands
from daskmetrics.cluster.slurm.commands import QueuedJob, SlurmError, SlurmRefusal
from daskmetrics.cluster.slurm.script import LaunchInfo, batch_script, output, rehearse_workers
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import atomic_write, private
from daskmetrics.core.text import OnMessage

SUBMITTED = "job.json"  # the latest job, in the folder of a run's driver
WARNING = 120  # seconds before its time limit at which Slurm signals the driver to stop
EARLIER = 65  # seconds by which Slurm may be earlier
STOPPED = "130"  # exit code of a driver that a signal has stopped


@dataclass(frozen=True)
class Submitted:
    """A driver's job, as recorded in the run's folder."""

    job: str  # its id
    log: str  # the file of its output
    since: str  # when it was submitted, local time with the offset from UTC

    def is_out_of_time(self, state: QueuedJob) -> bool:
        """Whether it has ended, in this state, because its walltime did: Slurm stops the driver
        before.
        """
        if state.state == "TIMEOUT":
            return True
        stopped = state.ended and state.exit.partition(":")[0] == STOPPED
        return stopped and state.left is not None and state.left <= WARNING + EARLIER


def script(
    profile: Cluster,
    job: str,
    folder: Path,
    command: Iterable[str],
    comment: str,
) -> str:
    """The script of a driver's job of this name, exactly as ``sbatch`` gets it; the profile's
    account also applies to the driver.
    """
    directives = [
        f"--job-name={job}",
        f"--comment={comment}",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=2",
        "--time=1-00:00:00",
    ]
    if profile.account:
        directives.append(f"--account={profile.account}")
    # Slurm refuses --mem beside --mem-per-cpu; of other options that are given twice the last
    # counts
    if not any(directive.startswith("--mem") for directive in profile.driver_directives):
        directives.append("--mem=4096M")
    directives += [
        output(folder, "%j.log"),
        f"--signal=B:TERM@{WARNING}",
        "--no-requeue",  # it would be a second driver beside the first one's jobs
        *profile.driver_directives,
    ]
    # Slurm's signals reach the driver itself, which ends its work and its workers' jobs
    return batch_script(directives, [f"exec {shlex.join(command)}"])


def submit(
    profile: Cluster, name: str, folder: Path, config: str, on_message: OnMessage
) -> Submitted:
    """Write the driver's job and the configuration (YAML) into its folder, and submit the job.

    Later changes of the user's configuration do not reach the job. It is a ConfigError if a
    driver's job of this run is waiting or running, or Slurm would refuse the workers' jobs, and a
    SlurmError if it refuses the driver's.
    """
    run = folder.parent
    if previous := submitted(folder):
        state = commands.job_state(previous.job)
        if state and not state.ended:
            raise ConfigError(
                f"Job {previous.job} already drives this run ({state.state.lower()}). Follow it "
                f"with: daskmetrics status --follow {run}, or end it with: scancel {previous.job}"
            )
    if line := commands.ignored_options():
        on_message(line)
    if profile.kind == "slurm":
        rehearse_workers(profile, LaunchInfo())
    with private():
        folder.mkdir(parents=True, exist_ok=True)
    config_file = atomic_write(folder / "config.yaml", config)
    # -P: a module of the working folder must not replace one of Python's own
    python = [sys.executable, "-P", "-u", "-m", "daskmetrics"]
    command = [*python, "run", str(config_file), "--folder", str(run)]
    job_name = f"daskmetrics:driver:{name}"  # no run's own name contains a colon
    comment = secrets.token_hex(8)
    job_script = script(profile, job_name, folder, command, comment)
    atomic_write(folder / "driver.sbatch", job_script)  # for the user to read
    try:
        job = commands.submit(job_script, job_name, comment)
    except SlurmRefusal:
        raise
    except SlurmError as error:
        raise SlurmError(
            f"{error}, and the queue does not show the job. If it appears nevertheless, end it"
            f" before you submit again: scancel --name={job_name}"
        ) from None
    submission = Submitted(job, str(folder / f"{job}.log"), time.strftime("%Y-%m-%d %H:%M:%S %z"))
    atomic_write(folder / SUBMITTED, json.dumps(asdict(submission)))
    return submission


def submitted(folder: Path) -> Submitted | None:
    """The latest driver's job in a run's folder of them, or None if it never had one."""
    file = folder / SUBMITTED
    if not file.is_file():
        return None
    return Submitted(**json.loads(file.read_text(encoding="utf-8")))
