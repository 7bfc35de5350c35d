"""Slurm's commands and what they print, as values.

Every function that runs a command raises SlurmError if it fails, and ConfigError where Slurm is not
installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from daskmetrics.cluster.slurm.script import LaunchInfo, pools, script
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.text import parse_walltime

TIMEOUT = 60.0  # seconds for a command to answer, which on a busy site can be slow
QUEUE_FORMAT = "%i|%T|%S|%L|%N|%r"  # the reason last: it may contain any character
PENDING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
ENDED = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
         "REVOKED", "TIMEOUT")  # fmt: skip
TRANSIENT = re.compile(
    "Unable to contact|Socket timed out|Connection refused|did not answer|cannot be started"
    "|is not configured"
)
# also where the controller that hands the configuration out is not reached
NOT_CONFIGURED = re.compile(
    "establish a configuration source|nable to (read|process) (config|slurm)", re.IGNORECASE
)


class SlurmError(DaskmetricsError):
    """A command of Slurm failed; the message is Slurm's own."""

    @property
    def is_transient(self) -> bool:
        """Whether the controller did not answer, which says nothing about the request."""
        return bool(TRANSIENT.search(str(self)))


@dataclass(frozen=True)
class QueuedJob:
    """A job as the queue shows it."""

    id: str
    state: str  # in Slurm's long form, such as ``PENDING``
    reason: str  # why it waits or how it ended, such as ``Priority``, ``NonZeroExitCode``, or empty
    start: datetime | None  # when it started, or is expected to, in the cluster's own time zone
    left: int | None  # seconds until its time limit; None without a limit
    nodes: str

    @property
    def pending(self) -> bool:
        return self.state in PENDING

    @property
    def alive(self) -> bool:
        """Whether it has not ended; a job in the state ``COMPLETING`` counts as ended."""
        return self.state not in (*ENDED, "COMPLETING")


@dataclass(frozen=True)
class Rehearsal:
    """Whether Slurm would accept a job, of which nothing is submitted."""

    start: datetime | None = None  # when the job would start
    refusal: str | None = None  # why it would be refused, in Slurm's words


def slurm(*words: str, script: str | None = None) -> str:
    """The standard output of one of Slurm's commands; a script is its standard input."""
    return _run(*words, script=script).stdout


def require(command: str) -> None:
    """Raise ConfigError if one of Slurm's commands is not installed."""
    if shutil.which(command) is None:
        raise ConfigError(
            f"The command '{command}' is not on PATH. Run on the cluster's login node, or with: "
            "--cluster local"
        )


def _run(*words: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    command = words[0]
    require(command)
    try:
        done = subprocess.run(
            words, input=script, capture_output=True, text=True, check=False, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command} did not answer within {TIMEOUT:.0f} s") from None
    except OSError as error:  # a login node limits the number of processes of a user
        raise SlurmError(f"{command} cannot be started: {error}") from None
    if not done.returncode:
        return done
    printed = done.stderr or done.stdout
    if NOT_CONFIGURED.search(printed):
        raise SlurmError(
            f"Slurm is not configured on this machine: {command} finds no slurm.conf and no "
            "controller. Run on the cluster's login node, or with: --cluster local"
        )
    # each line begins with the name of the program
    messages = re.sub(r"^ *\w+: (error: |fatal: )?", "", printed, flags=re.MULTILINE).splitlines()
    raise SlurmError(
        "; ".join(dict.fromkeys(filter(str.strip, messages)))
        or f"{command} failed without a message"
    )


def queue(name: str) -> tuple[QueuedJob, ...]:
    """The user's own jobs of this name, also those that ended some minutes ago, by one call of
    ``squeue``.
    """
    filters = ("--noheader", "--states=all", f"--user={os.getuid()}", f"--name={name}")
    return parse_queue(slurm("squeue", *filters, f"--format={QUEUE_FORMAT}"))


def parse_queue(printed: str) -> tuple[QueuedJob, ...]:
    """The jobs of a queue printed in `QUEUE_FORMAT`.

    >>> [job] = parse_queue("7|PENDING|N/A|1:00:00||Priority")
    >>> job.state, job.reason, job.left, job.start
    ('PENDING', 'Priority', 3600, None)
    """
    jobs = []
    for line in printed.splitlines():
        if line.count("|") < 5:  # a remark of the site
            continue
        number, state, start, time_left, nodes, reason = line.strip().split("|", 5)
        if reason in ("None", "(null)"):
            reason = ""
        jobs.append(
            QueuedJob(number, state, reason, time_of(start), seconds_left(time_left), nodes)
        )
    return tuple(jobs)


def time_of(text: str) -> datetime | None:
    """A date and time of Slurm; None for N/A and the like."""
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    return None


def seconds_left(text: str) -> int | None:
    """Seconds of ``D-HH:MM:SS``, whose leading parts may be missing; None for UNLIMITED and the
    like.
    """
    if not re.fullmatch(r"(\d{1,4}-)?(\d{1,5}:)?\d{1,2}:\d{1,2}", text):
        return None
    if not text.strip("0:-"):
        return 0
    return parse_walltime(text)


def summary(jobs: Iterable[QueuedJob]) -> str:
    """How many jobs run and wait, in one line.

    >>> start = datetime(2030, 1, 1, 14, 5)
    >>> summary([QueuedJob("8", "PENDING", "Priority", start, 60, "")])
    '0 running, 1 pending: Priority, first starts about 2030-01-01 14:05'
    """
    alive = [job for job in jobs if job.alive]
    pending = [job for job in alive if job.pending]
    text = f"{len(alive) - len(pending)} running, {len(pending)} pending"
    if reasons := Counter(job.reason for job in pending if job.reason):
        text += f": {', '.join(reason for reason, _ in reasons.most_common())}"
    if starts := [job.start for job in pending if job.start]:
        text += f", first starts about {min(starts):%Y-%m-%d %H:%M}"
    return text


def queue_text(name: str) -> str:
    """The summary of the user's jobs with a name, or why it is unknown."""
    try:
        return summary(queue(name=name))
    except (SlurmError, ConfigError) as error:
        return f"unknown: {error}"


def draining() -> frozenset[str]:
    """Names of the nodes that take no more jobs."""
    return frozenset(
        slurm("sinfo", "--noheader", "--Node", "--states=drain", "--format=%N").split()
    )


def rehearse(script: str) -> Rehearsal:
    """Ask Slurm whether and when it would start a job; an error that is not transient is a
    refusal.
    """
    try:
        return parse_rehearsal(_run("sbatch", "--test-only", script=script).stderr)
    except SlurmError as error:
        if error.is_transient:
            raise
        return Rehearsal(refusal=str(error))


def parse_rehearsal(printed: str) -> Rehearsal:
    """The output of a successful ``sbatch --test-only``.

    >>> text = "sbatch: Job 9 to start at 2030-01-01T14:05:00 using 8 processors on nodes g1 in partition p"
    >>> parse_rehearsal(text).start.hour
    14
    """
    match = re.search(r"to start at (\S+)", printed)
    if match is None:
        return Rehearsal()
    return Rehearsal(time_of(match[1]))


def rehearse_workers(profile: Cluster, launch: LaunchInfo) -> None:
    """Raise ConfigError, with Slurm's message, if it would refuse the smallest or the largest job
    of one of the pools.
    """
    for pool in pools(profile):
        for memory in dict.fromkeys((pool.memories[0], pool.memories[-1])):
            job = script(pool.with_profile(memory=memory), replace(launch, worker=f"{pool.name}-0"))
            try:
                refusal = rehearse(job).refusal
            except SlurmError as error:
                raise ConfigError(f"Slurm cannot check the jobs: {error}.") from None
            if refusal:
                raise ConfigError(
                    f"Slurm would refuse the {pool.name} jobs of this profile with "
                    f"{memory or 'the default memory'} per worker: {refusal}. Nothing was"
                    " submitted. Check its partition, account, walltime, gpus_per_job, memory"
                    " and directives."
                )


def submit(script: str, name: str, comment: str) -> str:
    """Submit a job, whose script has this name and comment; returns its id.

    A job whose id cannot be read from the output of ``sbatch``, which some sites replace, is looked
    up in the queue.
    """
    try:
        return parse_job_id(slurm("sbatch", "--parsable", script=script))
    except SlurmError:  # Slurm may have accepted the job nevertheless
        with suppress(SlurmError):
            user = f"--user={os.getuid()}"
            rows = slurm("squeue", user, "--noheader", f"--name={name}", "--format=%k %i")
            jobs = dict(row.split() for row in rows.splitlines() if len(row.split()) == 2)
            if comment in jobs:
                return jobs[comment]
        raise


def parse_job_id(printed: str) -> str:
    """The id of a job, from the output of ``sbatch --parsable``; remarks of the site are ignored.

    SlurmError if no line is an id, or several are.

    >>> parse_job_id("sbatch: your project has 3 hours left\\n4711;alpha\\n")
    '4711'
    """
    ids = set(re.findall(r"^\s*(?:Submitted batch job )?(\d+)(?:;.*)?\s*$", printed, re.MULTILINE))
    if len(ids) != 1:
        raise SlurmError(f"sbatch printed {len(ids)} job ids instead of one: {printed.strip()}")
    return str(ids.pop())


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs, given by their ids."""
    slurm("scancel", *jobs)


@dataclass(frozen=True)
class JobState:
    """The state of a job."""

    name: str  # Slurm's word, such as ``PENDING``
    reason: str = ""  # Slurm's reason for it, if there is one
    starts: str = ""  # when it is expected to start, or did
    exit: str = ""  # its exit code and signal, such as ``1:0``
    seconds_left: int | None = None  # of its walltime, when it ended or now

    @property
    def ended(self) -> bool:
        return self.name in ENDED


def job_state(job: str) -> JobState | None:
    """The state of a job; None if Slurm has forgotten it."""
    try:
        return parse_job_state(slurm("scontrol", "--oneliner", "show", "job", job))
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return None
        raise


def parse_job_state(printed: str) -> JobState:
    """The state of a job, from the output of ``scontrol -o show job``.

    >>> parse_job_state("JobId=7 JobState=PENDING Reason=Priority StartTime=Unknown ExitCode=0:0")
    JobState(name='PENDING', reason='Priority', starts='', exit='0:0', seconds_left=None)
    """
    pairs = parse_pairs(printed)
    limit, ran = (seconds_left(pairs.get(key, "")) for key in ("TimeLimit", "RunTime"))
    time_left = None
    if limit is not None and ran is not None:
        time_left = limit - ran
    return JobState(
        pairs.get("JobState", "UNKNOWN").rstrip("+"),
        pairs.get("Reason", "").removeprefix("None"),
        pairs.get("StartTime", "").removeprefix("Unknown"),
        pairs.get("ExitCode", ""),
        time_left,
    )


def parse_pairs(line: str) -> dict[str, str]:
    """The ``Key=Value`` pairs of a line that scontrol printed; a value may contain equal signs.

    >>> parse_pairs("PartitionName=gpu MaxTime=1-00:00:00 TRES=cpu=16,node=2")["TRES"]
    'cpu=16,node=2'
    """
    return dict(word.split("=", 1) for word in line.split() if "=" in word)
