"""The driver as a Slurm job: its script, its submission and its state."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from daskmetrics.cluster.slurm import commands
from daskmetrics.cluster.slurm.commands import QueuedJob, SlurmError, SlurmRefusal
from daskmetrics.cluster.slurm.refusals import rehearse_workers
from daskmetrics.cluster.slurm.script import LaunchInfo, batch_script, output
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import atomic_write, private
from daskmetrics.core.text import OnMessage

SUBMITTED = "job.json"  # the latest job, in the folder of a run's driver
WARNING = 120  # seconds before its time limit at which Slurm signals the driver to stop
EARLIER = 65  # seconds by which Slurm may be earlier
TAIL = 30  # lines shown of the log of a driver that failed
STOPPED = "130"  # exit code of a driver that a signal has stopped


@dataclass(frozen=True)
class Submitted:
    """A driver's job, as recorded in the run's folder."""

    job: str  # its id
    log: str  # the file of its output
    since: str  # when it was submitted, local time with the offset from UTC

    def is_out_of_time(self, state: QueuedJob) -> bool:
        """Whether it ended, in this state, because its walltime did.

        Slurm stops the driver before.
        """
        if state.state == "TIMEOUT":
            return True
        stopped = state.ended and state.exit_code == STOPPED
        return stopped and state.left is not None and state.left <= WARNING + EARLIER


def script(
    profile: Cluster,
    job: str,
    folder: Path,
    command: Iterable[str],
    comment: str,
) -> str:
    """The script of a driver's job of this name, exactly as ``sbatch`` gets it.

    The profile's account also applies to the driver.
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
    profile: Cluster,
    name: str,
    folder: Path,
    words: Sequence[str],
    on_message: OnMessage,
    config: str = "",
) -> Submitted:
    """Write the driver's job and its configuration (YAML), if it has one, and submit the job.

    ``words`` are the command of the job, which gets the file of the configuration. Later changes of
    the user's configuration do not reach the job. It is a ConfigError if a driver's job of this run
    is waiting or running, or Slurm would refuse the workers' jobs, and a SlurmError if it refuses
    the driver's.
    """
    run = folder.parent
    if previous := submitted(folder):
        state = commands.job_state(previous.job)
        if state and not state.ended:
            raise ConfigError(
                f"Job {previous.job} already drives '{run}' ({state.state.lower()}). Follow it "
                f"with: daskmetrics status --follow {run}, or end it with: scancel {previous.job}"
            )
    if line := commands.ignored_options():
        on_message(line)
    if profile.kind == "slurm":
        rehearse_workers(profile, LaunchInfo())
    with private():
        folder.mkdir(parents=True, exist_ok=True)
    # -P: a module of the working folder must not replace one of Python's own
    python = [sys.executable, "-P", "-u", "-m", "daskmetrics"]
    command = [*python, *words]
    if config:
        command.append(str(atomic_write(folder / "config.yaml", config)))
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
    """The latest driver's job in a run's folder of them, if any."""
    file = folder / SUBMITTED
    if not file.is_file():
        return None
    return Submitted(**json.loads(file.read_text(encoding="utf-8")))


def state_text(job: Submitted, state: QueuedJob | None) -> str:
    """The state of a driver's job in a sentence, and where its log is."""
    if state is None:
        sentence = f"Slurm has forgotten job {job.job}, submitted {job.since}."
    elif job.is_out_of_time(state):
        sentence = (
            f"Job {job.job} ran out of its walltime. Submit the same command again to resume; for"
            " more time, set cluster.driver_directives: ['--time=...']."
        )
    else:
        text = f"Job {job.job} is {state.state.lower()}"
        if state.reason:
            text += f": {state.reason}"
        if state.start and state.state == "PENDING":
            text += f", expected to start at {state.start.isoformat()}"
        if state.ended:
            text += f", exit code {state.exit_code}"
        sentence = f"{text}."
    return f"{sentence} Its log: {job.log}"


def ended_text(job: Submitted | None, state: QueuedJob | None) -> str:
    """How a driver ended before its run was finished, with the end of its log."""
    driver = f"Job {job.job}" if job else "The driver"
    reason = ""
    if job and state:
        reason = f" ({state.state.lower()}, exit code {state.exit_code})"
        if job.is_out_of_time(state):
            reason = " (out of walltime)"
    text = (
        f"{driver} ended{reason} before the run was finished; run the same command again to resume."
    )
    if job and Path(job.log).is_file():
        lines = Path(job.log).read_text(errors="replace").splitlines()[-TAIL:]
        log = "".join(f"\n  {line}" for line in lines)
        text += f"\nThe end of its log, {job.log}:{log}"
    return text
