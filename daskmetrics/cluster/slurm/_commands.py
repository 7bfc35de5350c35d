"""What Slurm says of jobs: one batched question to its queue, and the rehearsal of a submission; read as values."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from daskmetrics.core._times import parse_walltime
from daskmetrics.core.errors import ConfigError, DaskmetricsError

WITHIN = 60.0  # seconds for Slurm's commands to answer, which on a busy site can be slow
FORMAT = "%i|%j|%T|%S|%L|%N|%P|%r"  # the reason last: what it may contain is not known
PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
ALIVE = PENDING | {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}


PASSING = re.compile(r"Unable to contact|Socket timed out|Connection refused|did not answer|cannot be started")


class SlurmError(DaskmetricsError):
    """Slurm did not do as it was asked; the message is Slurm's own."""

    @property
    def passing(self) -> bool:
        """Whether its controller only did not answer, which says nothing of what was asked."""
        return bool(PASSING.search(str(self)))


@dataclass(frozen=True)
class QueuedJob:
    """A job as the queue shows it.

    Attributes
    ----------
    id, name, state : str
        The state in Slurm's long form, such as ``PENDING``.
    reason : str
        Why it waits or how it ended, in Slurm's word: ``Priority``, ``NonZeroExitCode``; empty if there is none.
    start : datetime or None
        When it started, or when Slurm expects it to, in the cluster's own time zone.
    left : int or None
        Seconds of its walltime that are left.
    nodes, partition : str
    """

    id: str
    name: str
    state: str
    reason: str
    start: datetime | None
    left: int | None
    nodes: str
    partition: str

    @property
    def pending(self) -> bool:
        return self.state in PENDING

    @property
    def alive(self) -> bool:
        """Whether it has not ended: a job that completes has done so for us."""
        return self.state in ALIVE


def queue(ids: Collection[str] | None = None, name: str | None = None) -> tuple[QueuedJob, ...]:
    """One's own jobs, by one call: those with these ids, or of this name, or all.

    Jobs that ended some minutes ago are still among them.

    Raises
    ------
    SlurmError
        If Slurm does not answer.
    """
    # asked by ids it would fail for a single one that is forgotten
    which = [f"--name={name}"] if name else []
    shown = slurm("squeue", f"--user={os.getuid()}", "--noheader", "--states=all", f"--format={FORMAT}", *which)
    rows = parsed(shown)
    return rows if ids is None else tuple(row for row in rows if row.id in ids)


def draining() -> frozenset[str]:
    """Nodes that are to take no more jobs.

    Raises
    ------
    SlurmError
        If Slurm does not answer.
    """
    return frozenset(slurm("sinfo", "--noheader", "--Node", "--states=drain", "--format=%N").split())


def parsed(shown: str) -> tuple[QueuedJob, ...]:
    """The rows of a queue printed in `FORMAT`.

    Examples
    --------
    >>> [row] = parsed("7|daskmetrics-demo|PENDING|N/A|1:00:00||gpu|Priority")
    >>> row.state, row.reason, row.left, row.start
    ('PENDING', 'Priority', 3600, None)
    """
    return tuple(_row(line) for line in shown.splitlines() if line.count("|") >= 7)


def _row(line: str) -> QueuedJob:
    number, name, state, start, left, nodes, partition, reason = line.strip().split("|", 7)
    reason = "" if reason in ("None", "(null)") else reason
    return QueuedJob(number, name, state, reason, _time(start), _left(left), nodes, partition)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _left(text: str) -> int | None:
    """Seconds of ``D-HH:MM:SS``, from which leading parts may lack; None for UNLIMITED and the like."""
    if not re.fullmatch(r"(\d+-)?(\d+:)?\d+:\d+", text):
        return None
    return parse_walltime(text) if text.strip("0:-") else 0  # a span is never nothing, what is left of it may be


def summary(rows: Iterable[QueuedJob]) -> str:
    """How jobs stand, in one line.

    Examples
    --------
    >>> summary(parsed("7|a|RUNNING|N/A|1:00|g0|gpu|None\\n8|a|PENDING|2030-01-01T14:05:00|1:00||gpu|Priority"))
    '1 running, 1 pending: Priority, first starts about 2030-01-01 14:05'
    """
    alive = [row for row in rows if row.alive]
    waiting = [row for row in alive if row.pending]
    text = f"{len(alive) - len(waiting)} running, {len(waiting)} pending"
    if not waiting:
        return text
    reasons = Counter(row.reason for row in waiting if row.reason)
    text += f": {', '.join(reason for reason, _ in reasons.most_common())}" if reasons else ""
    starts = [row.start for row in waiting if row.start]
    return f"{text}, first starts about {min(starts):%Y-%m-%d %H:%M}" if starts else text


@dataclass(frozen=True)
class Rehearsal:
    """What ``sbatch --test-only`` says of a job that it does not submit.

    Attributes
    ----------
    start : datetime or None
        When it would start.
    nodes : str
        Where.
    refusal : str or None
        Why it would not be taken, in Slurm's words.
    """

    start: datetime | None = None
    nodes: str = ""
    refusal: str | None = None


def rehearse(script: str) -> Rehearsal:
    """Ask Slurm whether and when it would start a job, without submitting it.

    Raises
    ------
    SlurmError
        If Slurm does not answer, which is no refusal.
    """
    try:
        return rehearsed(slurm("sbatch", "--test-only", script=script))
    except SlurmError as error:
        if error.passing:
            raise
        return Rehearsal(refusal=str(error))


def rehearsed(said: str) -> Rehearsal:
    """What a successful ``sbatch --test-only`` printed.

    Examples
    --------
    >>> rehearsed("sbatch: Job 9 to start at 2030-01-01T14:05:00 using 8 processors on nodes g1 in partition p").nodes
    'g1'
    """
    found = re.search(r"to start at (\S+)(?: a\d+)? using .* on nodes (\S+)", said)
    return Rehearsal(_time(found[1]), found[2]) if found else Rehearsal()


def slurm(*words: str, script: str | None = None) -> str:
    """What one of Slurm's commands prints, on either of its channels.

    Parameters
    ----------
    *words : str
        The command.
    script : str, optional
        Its standard input.

    Raises
    ------
    ConfigError
        If there is no Slurm on this machine.
    SlurmError
        If the command fails or does not answer.
    """
    if shutil.which(words[0]) is None:
        raise ConfigError(f"There is no '{words[0]}' here. Run on the cluster's login node, or with: --cluster local")
    try:
        done = subprocess.run(words, input=script, capture_output=True, text=True, check=False, timeout=WITHIN)
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{words[0]} did not answer within {WITHIN:.0f} s") from None
    except OSError as error:  # a login node limits how many processes one may have
        raise SlurmError(f"{words[0]} cannot be started: {error}") from None
    if done.returncode:
        raise SlurmError(_words(done.stderr or done.stdout, words))
    return done.stdout + done.stderr


def _words(text: str, words: Sequence[str]) -> str:
    """Slurm's message in one line, without the names of its programs before each."""
    lines = (re.sub(r"^\w+: (error: |fatal: )?", "", line.strip()) for line in text.splitlines())
    return "; ".join(dict.fromkeys(line for line in lines if line)) or f"{words[0]} failed and said nothing"
