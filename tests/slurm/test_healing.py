"""Recovery of a run from real faults of a real Slurm; prints the seconds until it has recovered.

One run continues through all faults; at its end every requested unit must be recorded once.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daskmetrics import config
from daskmetrics.cluster import connect
from daskmetrics.cluster.slurm.commands import QueuedJob, queue
from daskmetrics.core.errors import ClusterLostError, ConfigError
from daskmetrics.core.machine import workers
from daskmetrics.domain.events import AttemptFailed
from daskmetrics.execution import Journal, Record, Settings, WorkUnit, run
from daskmetrics.execution.journal import read
from tests.slurm import units
from tests.slurm.site import SCRIPT, comes_true, command, driver, needs_slurm, profile

pytestmark = needs_slurm

WORKERS = 4


class Endless:
    """A source of naps that ends when `over` is set."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds, self.over, self.asked = folder, seconds, False, 0
        self.records: list[Record] = []

    def ask(self, n: int) -> list[WorkUnit]:
        if self.over:
            return []
        first, self.asked = self.asked, self.asked + n
        return units.naps(self.folder, self.seconds, self.asked)[first:]

    def tell(self, record: Record) -> None:
        self.records.append(record)


class Living:
    """A run on a cluster, driven by a thread, with its messages."""

    def __init__(
        self, folder: Path, cluster: config.Cluster, name: str, seconds: float = 0.5
    ) -> None:
        self.folder, self.cluster, self.name = folder, cluster, name
        self.source, self.lines, self.problems = Endless(folder, seconds), [], []
        self.client: Any = None
        self.thread = threading.Thread(target=self._drive)
        self.thread.start()

    def _drive(self) -> None:
        try:
            with (
                connect(self.cluster, self.name, self.lines.append) as self.client,
                Journal(self.folder / "journal.jsonl", self.folder / "lock") as journal,
            ):
                run(self.source, self.client, journal, Settings(), say=self.lines.append)
        except BaseException as error:  # checked by the test's thread
            self.problems.append(error)

    def alive(self) -> list[QueuedJob]:
        return [job for job in queue(name=f"daskmetrics-{self.name}") if job.alive]

    def running(self) -> list[QueuedJob]:
        return [job for job in self.alive() if job.state == "RUNNING"]

    def says(self, text: str) -> bool:
        return comes_true(lambda: any(text in line for line in self.lines)) is not None

    def attempts(self) -> int:
        return (self.folder / "journal.jsonl").read_text().count('"attempt"')

    def is_complete(self, without: set[str] = frozenset()) -> bool:
        """Whether all workers are present, none of them from one of these jobs."""
        running = self.running()
        if len(running) != self.cluster.workers or without & {job.id for job in running}:
            return False
        return self.client is not None and len(workers(self.client)) == self.cluster.workers

    def recovers(self, what: str, lost: set[str]) -> None:
        """Wait until all workers are present again, and have completed further units."""
        took = comes_true(lambda: self.is_complete(without=lost))
        assert took is not None, (what, self.lines, self.problems)
        before = len(self.source.records)
        assert comes_true(lambda: len(self.source.records) >= before + WORKERS) is not None, what
        print(f"\n{what}: recovered after {took:.1f} s")

    def end(self) -> None:
        self.source.over = True
        self.thread.join(timeout=120)
        assert not self.thread.is_alive()
        assert not self.problems, self.problems
        records = self.source.records
        assert Counter(record.key for record in records) == {
            f"u{i}": 1 for i in range(self.source.asked)
        }
        assert all(record.ok for record in records)


@pytest.fixture(scope="module")
def living(slurm, tmp_path_factory) -> Iterator[Living]:
    """Four workers on four nodes."""
    folder = tmp_path_factory.mktemp("living")
    cluster = config.cluster(profile(slurm, workers=WORKERS, threads=16, connect_within=60))
    living = Living(folder, cluster, "living")
    try:
        assert comes_true(living.is_complete) is not None, (living.lines, living.problems)
        yield living
    finally:
        living.end()
    assert comes_true(lambda: not living.alive()) is not None


@pytest.fixture(scope="module", autouse=True)
def short(slurm, tmp_path_factory) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A run of another process, whose jobs last for a minute, beside the tests of the other faults."""
    folder = tmp_path_factory.mktemp("short")
    settings = profile(slurm, workers=1, walltime="00:01:00", partition="cpu")
    with driver(folder, settings, seconds=2.0, count=45) as process:
        yield folder, process


def cancel_jobs(living: Living, count: int = 1) -> set[str]:
    """Cancel some of its running jobs without its knowledge."""
    lost = {job.id for job in living.running()[:count]}
    command("scancel", *lost)
    return lost


def resume(node: str) -> None:
    """Put a node back into service, unless its daemon has done so."""
    subprocess.run(
        ["scontrol", "update", f"nodename={node}", "state=resume"], capture_output=True, check=False
    )


def test_cancelled_jobs_are_replaced(living):
    lost = cancel_jobs(living, 2)
    living.recovers("scancel of two of four jobs", lost)
    assert any(set(re.findall(r"\d+", line)) & lost for line in living.lines), living.lines


def test_a_job_lost_before_its_worker_arrived_is_replaced(living):
    known = {job.id for job in living.alive()}
    lost = cancel_jobs(living)
    assert comes_true(lambda: {job.id for job in living.alive()} - known) is not None
    early = {job.id for job in living.alive()} - known
    command("scancel", *early)
    living.recovers("a job lost before its worker arrived", lost | early)


def test_a_node_that_goes_down_is_replaced(living):
    job = living.running()[0]
    command("scontrol", "update", f"nodename={job.nodes}", "state=down", "reason=test")
    living.recovers("a node set down", {job.id})
    assert any(f"Job {job.id} " in line for line in living.lines), living.lines
    resume(job.nodes)


def test_a_job_on_a_draining_node_ends_when_its_unit_is_done(living):
    job = living.running()[0]
    attempts = living.attempts()
    command("scontrol", "update", f"nodename={job.nodes}", "state=drain", "reason=test")
    living.recovers("a node drained", {job.id})
    resume(job.nodes)
    assert living.attempts() == attempts, "a unit was interrupted"


def test_a_run_reports_at_once_what_slurm_refuses_and_recovers(living):
    command("scontrol", "update", "partitionname=gpu", "state=drain")
    lost = cancel_jobs(living)
    assert living.says("Slurm refused a further gpu job: ")
    state = living.client.cluster.supervisor.pools["gpu"]
    assert comes_true(lambda: state.refusals >= 3) is not None
    assert sum("refused a further" in line for line in living.lines) == 1, "it is the same"
    command("scontrol", "update", "partitionname=gpu", "state=up")
    living.recovers("a partition closed and opened again", lost)
    assert any("Slurm accepts gpu jobs again, after " in line for line in living.lines)


def test_a_run_continues_without_the_controller(living, slurm):
    lost = {living.running()[0].id}
    subprocess.run([SCRIPT, "controller-down", str(slurm)], check=True)
    assert living.says("Slurm does not answer")
    done = len(living.source.records)
    continues = comes_true(lambda: len(living.source.records) > done + WORKERS)
    assert continues is not None
    subprocess.run([SCRIPT, "controller-up", str(slurm)], check=True)
    ping = ["scontrol", "ping"]
    assert comes_true(lambda: not subprocess.run(ping, capture_output=True).returncode) is not None
    command("scancel", *lost)
    living.recovers("slurmctld stopped and started, and a job cancelled", lost)
    assert "Slurm answers again." in living.lines


def test_workers_are_replaced_before_their_walltime_ends(short):
    folder, process = short
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    entries = read(folder / "journal.jsonl")
    records = [entry for entry in entries if isinstance(entry, Record)]
    assert Counter(record.key for record in records) == {f"u{i}": 1 for i in range(45)}
    assert len({record.worker for record in records}) >= 2
    # no unit was interrupted
    assert not [entry for entry in entries if isinstance(entry, AttemptFailed)]


NOWHERE = "would refuse the gpu jobs .*: invalid partition specified: nowhere"
PROLOGUE = ["echo no module named cuda", "exit 3"]
FAILED = r"(?s)jobs in a row failed; the last: job \d+ (ended as FAILED|is ending).*no module named"


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"partition": "nowhere"}, ConfigError, NOWHERE),
        ({"partition": "paid", "account": "other"}, ConfigError, "Invalid account"),
        ({"walltime": "9-00:00:00"}, ConfigError, "Requested time limit is invalid"),
        ({"gpus_per_job": 9}, ConfigError, "Requested node configuration is not available"),
        ({"memory": "1GiB", "max_memory": "9TiB"}, ConfigError, "profile with 9TiB per worker"),
        ({"prologue": PROLOGUE}, ClusterLostError, FAILED),
    ],
    ids=["partition", "account", "time", "gpus", "memory", "prologue"],
)
def test_an_impossible_profile_is_refused_with_its_reason(slurm, changes, error, words):
    cluster = config.cluster(profile(slurm, workers=3, **changes))
    with pytest.raises(error, match=words), connect(cluster, "wrong", lambda line: None):
        pass
    none_is_left = comes_true(lambda: not [job for job in queue("daskmetrics-wrong") if job.alive])
    assert none_is_left is not None
