"""Slurm's commands and what they print, as values.

Every function that runs a command raises SlurmError if Slurm does not answer, SlurmRefusal if it
refuses the request, and ConfigError where it is not installed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.text import parse_walltime, shortened

SHOWN = 200  # characters of an answer that is not understood
LOOKS = (0, 2, 8)  # seconds before each look for a job after sbatch did not answer
TIMEOUT = 60.0  # seconds for a command to answer, which on a busy site can be slow
QUEUE_FORMAT = "%i|%T|%S|%L|%N|%r"  # the reason last: it may contain any character
PENDING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
ENDED = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
         "REVOKED", "TIMEOUT")  # fmt: skip
# what Slurm's commands print where the controller does not answer
TRANSIENT = re.compile("Unable to contact|Socket timed out|Connection refused")
# also where the controller that hands the configuration out is not reached
NOT_CONFIGURED = re.compile(
    "establish a configuration source|nable to (read|process) (config|slurm)", re.IGNORECASE
)
# variables that are options of Slurm's commands: they would change what a profile or we ask for,
# and in which form the answer comes
OPTIONS = re.compile(r"(SBATCH|SQUEUE|SCANCEL|SINFO|SACCT|SCONTROL)_|SLURM_(HINT|TIME_FORMAT)$")

RUNNING: ContextVar[set[subprocess.Popen[str]]] = ContextVar("RUNNING")
"""The commands that run in a context which ends them with `end_all`."""


class SlurmError(DaskmetricsError):
    """A command of Slurm failed."""


class SlurmRefusal(SlurmError):
    """Slurm answered, and refused; the message is its own."""


@dataclass(frozen=True)
class QueuedJob:
    """A job as Slurm shows it."""

    id: str
    state: str  # in Slurm's long form, such as ``PENDING``
    reason: str  # why it waits or how it ended, such as ``Priority``, ``NonZeroExitCode``, or empty
    # when it started, or is expected to, in the cluster's own time zone
    start: datetime | None = None
    left: int | None = None  # seconds of its time limit, now or when it ended; None without a limit
    nodes: str = ""
    exit: str = ""  # its exit code and signal, such as ``1:0``, if scontrol was asked

    @property
    def pending(self) -> bool:
        return self.state in PENDING

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def exit_code(self) -> str:
        return self.exit.partition(":")[0]

    @property
    def alive(self) -> bool:
        """Whether it takes work: it has not ended, and is not ``COMPLETING``."""
        return not self.ended and self.state != "COMPLETING"


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


def environment() -> dict[str, str]:
    """The variables that Slurm's commands get: without those that are options of theirs."""
    return {name: value for name, value in os.environ.items() if not OPTIONS.match(name)}


def ignored_options() -> str:
    """A line for the user about variables that would change jobs.

    Empty if there are none.
    """
    names = sorted(name for name in os.environ if name.startswith("SBATCH_"))
    if not names:
        return ""
    return (
        f"Not used for jobs: {shortened(names, 8)} of the environment. Jobs ask for what the profile"
        " says: set its partition, account or directives instead."
    )


def end_all(running: Iterable[subprocess.Popen[str]]) -> None:
    """End commands that do not answer, with what they have started."""
    for process in list(running):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _run(*words: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    command = words[0]
    require(command)
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL if script is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",  # a site's remark may have any bytes
            env=environment(),
            start_new_session=True,  # Ctrl-C must not leave a job whose id is not known
        )
    except OSError as error:  # a login node limits the number of processes of a user
        raise SlurmError(f"{command} cannot be started: {error}") from None
    running = RUNNING.get(set())
    running.add(process)
    with process:
        try:
            printed, errors = process.communicate(script, TIMEOUT)
        except subprocess.TimeoutExpired:
            raise SlurmError(f"{command} did not answer within {TIMEOUT:.0f} s") from None
        finally:
            if process.poll() is None:
                end_all([process])
            running.discard(process)
    if process.returncode < 0:
        raise SlurmError(f"{command} was ended by signal {-process.returncode}")
    if process.returncode:
        raise _failure(command, errors or printed)
    return subprocess.CompletedProcess(words, 0, printed, errors)


def _failure(command: str, printed: str) -> SlurmError:
    if NOT_CONFIGURED.search(printed):
        return SlurmError(
            f"Slurm is not configured on this machine: {command} finds no slurm.conf and no "
            "controller. Run on the cluster's login node, or with: --cluster local"
        )
    # each line begins with the name of the program
    messages = re.sub(r"^ *\w+: (error: |fatal: )?", "", printed, flags=re.MULTILINE).splitlines()
    kind = SlurmError if TRANSIENT.search(printed) else SlurmRefusal
    return kind(
        "; ".join(dict.fromkeys(filter(str.strip, messages)))
        or f"{command} failed without a message"
    )


def queue(name: str) -> tuple[QueuedJob, ...]:
    """The user's jobs of this name, by one call of ``squeue``.

    Those that ended some minutes ago are among them.
    """
    filters = ("--noheader", "--states=all", f"--user={os.getuid()}", f"--name={name}")
    return parse_queue(slurm("squeue", *filters, f"--format={QUEUE_FORMAT}"))


def parse_queue(printed: str) -> tuple[QueuedJob, ...]:
    """The jobs of a queue printed in `QUEUE_FORMAT`.

    >>> [job] = parse_queue("7|PENDING|N/A|1:00:00||Nodes required for job are down|x")
    >>> job.state, job.reason, job.left, job.start
    ('PENDING', 'Nodes required for job are down|x', 3600, None)
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
    """Seconds of ``D-HH:MM:SS``, whose leading parts may be missing.

    None for UNLIMITED and the like.

    >>> seconds_left("1-02:03:04"), seconds_left("9:59"), seconds_left("UNLIMITED")
    (93784, 599, None)
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
    reasons = Counter(job.reason for job in pending if job.reason)
    if reasons:
        text += f": {', '.join(reason for reason, _ in reasons.most_common())}"
    starts = [job.start for job in pending if job.start]
    if starts:
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


def rehearse(script: str) -> datetime | None:
    """When Slurm would start a job, of which nothing is submitted.

    None if it does not say, SlurmRefusal if it would refuse the job.
    """
    return parse_rehearsal(_run("sbatch", "--test-only", script=script).stderr)


def parse_rehearsal(printed: str) -> datetime | None:
    """The start in the output of a successful ``sbatch --test-only``.

    >>> text = "sbatch: Job 9 to start at 2030-01-01T14:05:00 using 8 processors on nodes g1 in partition p"
    >>> parse_rehearsal(text).hour
    14
    """
    match = re.search(r"to start at (\S+)", printed)
    return time_of(match[1]) if match else None


def submit(script: str, name: str, comment: str) -> str:
    """Submit a job, whose script has this name and comment; returns its id.

    A job whose id cannot be read from the output of ``sbatch``, which some sites replace, is looked
    up in the queue.
    """
    try:
        return parse_job_id(slurm("sbatch", "--parsable", script=script))
    except SlurmError as error:  # Slurm may have accepted the job nevertheless
        looks = LOOKS if not isinstance(error, SlurmRefusal) else LOOKS[:1]
        for pause in looks:
            time.sleep(pause)
            if job := _job_with(name, comment):
                return job
        raise


def _job_with(name: str, comment: str) -> str | None:
    user = f"--user={os.getuid()}"
    rows = ""
    with suppress(SlurmError):
        rows = slurm("squeue", user, "--noheader", f"--name={name}", "--format=%k %i")
    jobs = dict(row.split() for row in rows.splitlines() if len(row.split()) == 2)
    return jobs.get(comment)


def parse_job_id(printed: str) -> str:
    """The id of a job, from the output of ``sbatch --parsable``.

    Remarks of the site are ignored.

    SlurmRefusal if no line is an id, or several are.

    >>> parse_job_id("sbatch: your project has 3 hours left\\n4711;alpha\\n")
    '4711'
    """
    ids = set(re.findall(r"^\s*(?:Submitted batch job )?(\d+)(?:;.*)?\s*$", printed, re.MULTILINE))
    if len(ids) != 1:
        raise SlurmRefusal(
            f"sbatch printed {len(ids)} job ids instead of one: {printed.strip()[:SHOWN]!r}"
        )
    return str(ids.pop())


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs, given by their ids."""
    slurm("scancel", *jobs)


def job_state(job: str) -> QueuedJob | None:
    """The state of a job; None if Slurm has forgotten it."""
    try:
        return parse_job_state(slurm("scontrol", "--oneliner", "show", "job", job))
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return None
        raise


def parse_job_state(printed: str) -> QueuedJob:
    """A job, from the output of ``scontrol -o show job``.

    >>> job = parse_job_state("JobId=7 JobState=PENDING Reason=Priority StartTime=Unknown ExitCode=0:0")
    >>> job.id, job.state, job.reason, job.start, job.exit
    ('7', 'PENDING', 'Priority', None, '0:0')
    """
    pairs = defaultdict(str, parse_pairs(printed))
    limit, ran = (seconds_left(pairs[key]) for key in ("TimeLimit", "RunTime"))
    time_left = None
    if limit is not None and ran is not None:
        time_left = limit - ran
    return QueuedJob(
        pairs["JobId"],
        (pairs["JobState"] or "UNKNOWN").rstrip("+"),
        pairs["Reason"].removeprefix("None"),
        time_of(pairs["StartTime"]),
        time_left,
        pairs["NodeList"],
        pairs["ExitCode"],
    )


def parse_pairs(line: str) -> dict[str, str]:
    """The ``Key=Value`` pairs of a line that scontrol printed.

    A value may contain equal signs.

    >>> parse_pairs("PartitionName=gpu MaxTime=1-00:00:00 TRES=cpu=16,node=2")["TRES"]
    'cpu=16,node=2'
    """
    return dict(word.split("=", 1) for word in line.split() if "=" in word)
