"""How earlier work on a partition ended: the evidence for an option's chance of success, or none."""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from daskmetrics.cluster.slurm._commands import SlurmError, slurm
from daskmetrics.cluster.slurm._script import job_name
from daskmetrics.config import Cluster
from daskmetrics.core._estimate import Interval
from daskmetrics.core._events import RunStarted, is_finished
from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.execution._journal import holder, read

DAYS = 30  # of Slurm's accounts that count
LATEST = 50  # runs that count
LOST = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "PREEMPTED", "BOOT_FAIL", "DEADLINE")


@dataclass(frozen=True)
class TrackRecord:
    """How many of some earlier jobs or runs ended well."""

    well: int
    ended: int
    what: str  # were counted
    lost: Mapping[str, int] = field(default_factory=dict, hash=False)  # by Slurm's state

    @property
    def chance(self) -> Interval:
        """The share that ends well, with the 90 % interval of a binomial proportion (Jeffreys).

        >>> chance = TrackRecord(9, 10, "jobs").chance
        >>> chance.value, round(chance.low, 2), round(chance.high, 2)
        (0.9, 0.67, 0.98)
        """
        from scipy.stats import beta

        low, high = beta.ppf([0.05, 0.95], self.well + 0.5, self.ended - self.well + 0.5)
        value = self.well / self.ended
        return Interval(min(float(low), value), value, max(float(high), value))

    def __str__(self) -> str:
        low, value, high = (f"{100 * share:.0f} %" for share in self.chance.bounds)
        lost = ", ".join(f"{count} {state.lower()}" for state, count in self.lost.items())
        counted = f"{self.well} of {self.ended} {self.what} ended well"
        return f"{counted}{f' ({lost})' if lost else ''}: {value} ({low} to {high})"


def of_partition(partition: str | None, profile: Cluster, runs: Path, ask: bool = True) -> TrackRecord | None:
    """The record of one's own jobs on a partition by ``sacct``; where it does not answer, of the runs in a folder.

    ``ask`` says whether the Slurm here is the one of the partition.
    """
    found = None
    if partition and ask:
        try:
            since, columns = f"--starttime=now-{DAYS}days", "--format=JobName%120,State%30"
            text = slurm(
                "sacct", "-X", "-n", "-P", f"--user={getpass.getuser()}", f"--partition={partition}", since, columns
            )
        except (SlurmError, ConfigError):  # there are no accounts here
            pass
        else:
            found = of_jobs(text.splitlines(), partition)
    return found or _of_runs(profile, runs)


def of_jobs(lines: Sequence[str], partition: str) -> TrackRecord | None:
    """The record in lines of ``sacct``, names and states.

    Jobs that are not over do not count, nor those that the user cancelled, except our own workers: they are cancelled
    when their run ends.

    >>> jobs = ("a|COMPLETED", "b|TIMEOUT", "c|RUNNING", "d|CANCELLED by 7", "daskmetrics-x|CANCELLED by 7")
    >>> print(of_jobs(jobs, "gpu"))
    2 of 3 of your jobs on gpu in 30 days ended well (1 timeout): 67 % (24 % to 94 %)
    """
    well, lost = 0, Counter[str]()
    for line in lines:
        name, _, state = line.strip().rpartition("|")
        word = (state.split() or [""])[0].rstrip("+")
        well += word == "COMPLETED" or (word == "CANCELLED" and name.startswith(job_name("")))
        lost.update([word] if word in LOST else [])
    ended = well + lost.total()
    return TrackRecord(well, ended, f"of your jobs on {partition} in {DAYS} days", lost) if ended else None


def _of_runs(profile: Cluster, folder: Path) -> TrackRecord | None:
    """The record of earlier runs on the partition of a profile, by their journals; runs in progress do not count."""
    finished = []
    journals = sorted(folder.glob("*/journal.jsonl"), key=lambda path: -path.stat().st_mtime)
    for run in (RunFolder(path.parent) for path in journals[:LATEST]):
        try:
            config, entries = yaml.safe_load(run.config.read_text(encoding="utf-8")), list(read(run.journal))
        except (OSError, DataError):  # a map, or a damaged run
            continue
        cluster = config["cluster"]
        started = any(isinstance(entry, RunStarted) for entry in entries)
        if started and (cluster["kind"], cluster["partition"]) == (profile.kind, profile.partition):
            finished += [is_finished(entries)] if holder(run.lock) is None else []
    where = f"on {profile.partition}" if profile.partition else f"with 'kind: {profile.kind}'"
    return TrackRecord(sum(finished), len(finished), f"earlier runs {where} here") if finished else None
