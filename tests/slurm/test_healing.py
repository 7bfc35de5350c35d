"""What happens to jobs in mid-run, and what becomes of it: real faults of a real Slurm, the seconds to heal printed.

One run goes on through all of them; in the end every unit that it asked for must be recorded, once.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import daskmetrics.cluster.slurm._cluster  # noqa: F401  # in the main thread, as it must be
from daskmetrics import config
from daskmetrics.cluster import connect
from daskmetrics.cluster.slurm._commands import QueuedJob, queue
from daskmetrics.core._workers import workers
from daskmetrics.core.errors import ClusterLostError, ConfigError
from daskmetrics.execution import Journal, Record, Settings, WorkUnit, run
from daskmetrics.execution._journal import read
from tests.slurm import units
from tests.slurm.site import SCRIPT, comes_true, command, driver, needs_slurm, profile

pytestmark = needs_slurm

WORKERS = 4


class Endless:
    """A source of naps that ends when it is told to."""

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
    """A run on a cluster, driven by a thread, and all that it said."""

    def __init__(self, folder: Path, wanted: config.Cluster, name: str, seconds: float = 0.5) -> None:
        self.folder, self.wanted, self.name = folder, wanted, name
        self.source, self.lines, self.problems = Endless(folder, seconds), [], []
        self.client: Any = None
        self.thread = threading.Thread(target=self._drive)
        self.thread.start()

    def _drive(self) -> None:
        try:
            with (
                connect(self.wanted, self.name, self.lines.append) as self.client,
                Journal(self.folder / "journal.jsonl", self.folder / "lock") as journal,
            ):
                run(self.source, self.client, journal, Settings(), say=self.lines.append)
        except BaseException as error:  # the test's thread looks at it
            self.problems.append(error)

    def alive(self) -> list[QueuedJob]:
        return [row for row in queue(name=f"daskmetrics-{self.name}") if row.alive]

    def rows(self) -> list[QueuedJob]:
        return [row for row in self.alive() if row.state == "RUNNING"]

    def whole(self, without: set[str] = frozenset()) -> bool:
        """Whether all workers are there, none of them from one of these jobs."""
        rows = self.rows()
        if len(rows) != self.wanted.workers or without & {row.id for row in rows}:
            return False
        return self.client is not None and len(workers(self.client)) == self.wanted.workers

    def heals(self, what: str, lost: set[str]) -> None:
        """Wait until all workers are there again, and one unit more was done by each."""
        took = comes_true(lambda: self.whole(without=lost))
        assert took is not None, (what, self.lines, self.problems)
        before = len(self.source.records)
        assert comes_true(lambda: len(self.source.records) >= before + WORKERS) is not None, what
        print(f"\n{what}: healed after {took:.1f} s")

    def end(self) -> None:
        self.source.over = True
        self.thread.join(timeout=120)
        assert not self.thread.is_alive()
        assert not self.problems, self.problems
        records = self.source.records
        assert Counter(record.key for record in records) == {f"u{i}": 1 for i in range(self.source.asked)}
        assert all(record.ok for record in records)


@pytest.fixture(scope="module")
def living(slurm, tmp_path_factory) -> Iterator[Living]:
    """Four workers, each on a node of its own."""
    folder = tmp_path_factory.mktemp("living")
    wanted = config.cluster(profile(slurm, workers=WORKERS, threads=16, connect_within=60))
    living = Living(folder, wanted, "living")
    try:
        assert comes_true(living.whole) is not None, (living.lines, living.problems)
        yield living
    finally:
        living.end()
    assert comes_true(lambda: not living.alive()) is not None


@pytest.fixture(scope="module", autouse=True)
def short(slurm, tmp_path_factory) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A run of a process of its own, whose jobs last for a minute, while the other faults are tried."""
    folder = tmp_path_factory.mktemp("short")
    wanted = profile(slurm, workers=1, walltime="00:01:00", partition="cpu")
    with driver(folder, wanted, seconds=2.0, count=45) as process:
        yield folder, process


def hurt(living: Living, count: int = 1) -> set[str]:
    """Cancel so many of its jobs behind its back."""
    lost = {row.id for row in living.rows()[:count]}
    command("scancel", *lost)
    return lost


def resume(node: str) -> None:
    """Take a node into service again, unless its daemon did so already."""
    subprocess.run(["scontrol", "update", f"nodename={node}", "state=resume"], capture_output=True, check=False)


def test_cancelled_jobs_are_replaced(living):
    lost = hurt(living, 2)
    living.heals("scancel of two of four jobs", lost)
    assert any(set(re.findall(r"\d+", line)) & lost for line in living.lines), living.lines


def test_a_job_that_is_lost_before_its_worker_came_is_replaced(living):
    known = {row.id for row in living.alive()}
    lost = hurt(living)
    assert comes_true(lambda: {row.id for row in living.alive()} - known) is not None
    early = {row.id for row in living.alive()} - known
    command("scancel", *early)
    living.heals("a job lost before its worker came", lost | early)


def test_a_node_that_goes_down_is_replaced(living):
    row = living.rows()[0]
    command("scontrol", "update", f"nodename={row.nodes}", "state=down", "reason=test")
    living.heals("a node set down", {row.id})
    assert any(f"Job {row.id} " in line for line in living.lines), living.lines
    resume(row.nodes)


def test_a_draining_node_is_left_when_its_unit_is_done(living):
    row = living.rows()[0]
    attempts = living.folder.joinpath("journal.jsonl").read_text().count('"attempt"')
    command("scontrol", "update", f"nodename={row.nodes}", "state=drain", "reason=test")
    living.heals("a node drained", {row.id})
    resume(row.nodes)
    assert living.folder.joinpath("journal.jsonl").read_text().count('"attempt"') == attempts, "nothing was cut off"


def test_what_slurm_refuses_in_mid_run_is_told_at_once_and_heals(living):
    command("scontrol", "update", "partitionname=gpu", "state=drain")
    lost = hurt(living)
    assert comes_true(lambda: any("Slurm refused a further gpu job: " in line for line in living.lines)) is not None
    print(f"\n{next(line for line in living.lines if 'refused a further' in line)}")
    command("scontrol", "update", "partitionname=gpu", "state=up")
    living.heals("a partition closed and opened again", lost)


def test_a_controller_that_is_away_changes_nothing(living, slurm):
    lost = {living.rows()[0].id}
    subprocess.run([SCRIPT, "controller-down", str(slurm)], check=True)
    assert comes_true(lambda: any("Slurm does not answer" in line for line in living.lines)) is not None
    done = len(living.source.records)
    assert comes_true(lambda: len(living.source.records) > done + WORKERS) is not None, "work goes on"
    subprocess.run([SCRIPT, "controller-up", str(slurm)], check=True)
    ping = ["scontrol", "ping"]
    assert comes_true(lambda: subprocess.run(ping, capture_output=True, check=False).returncode == 0) is not None
    command("scancel", *lost)
    living.heals("slurmctld stopped and started, and a job cancelled", lost)
    assert "Slurm answers again." in living.lines


def test_workers_are_replaced_before_their_walltime_ends(short):
    folder, process = short
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    entries = read(folder / "journal.jsonl")
    records = [entry for entry in entries if entry["type"] == "record"]
    assert Counter(record["key"] for record in records) == {f"u{i}": 1 for i in range(45)}
    assert len({record["worker"] for record in records}) >= 2
    assert not [entry for entry in entries if entry["type"] == "attempt"], "nothing was cut off"
    ended = Counter(row.state for row in queue(name="daskmetrics-units"))
    print(f"\na walltime of one minute under 90 s of work: nothing cut off, jobs ended as {dict(ended)}")


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"partition": "nowhere"}, ConfigError, "would refuse the gpu jobs .*: invalid partition specified: nowhere"),
        ({"partition": "paid", "account": "other"}, ConfigError, "Invalid account or account/partition combination"),
        ({"gpus_per_job": 9}, ConfigError, "Requested node configuration is not available"),
        (
            {"prologue": ["echo no module named cuda", "exit 3"]},
            ClusterLostError,
            r"(?s)jobs in a row failed; the last: job \d+ (ended as FAILED|is ending).*no module named cuda",
        ),
    ],
    ids=["partition", "account", "gpus", "prologue"],
)
def test_what_cannot_be_is_said_with_its_reason(slurm, changes, error, words):
    wanted = config.cluster(profile(slurm, workers=3, failures=3, **changes))
    began = time.monotonic()
    with pytest.raises(error, match=words) as caught, connect(wanted, "wrong", lambda line: None):
        pass
    print(f"\n{changes}: told after {time.monotonic() - began:.1f} s: {caught.value}")
    assert comes_true(lambda: not [row for row in queue(name="daskmetrics-wrong") if row.alive]) is not None
