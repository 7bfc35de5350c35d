"""Workers that die, hang, freeze and swell, on a real cluster. DASKMETRICS_FAULTS=full runs the
large sizes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client, Scheduler

from daskmetrics import store
from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.domain.events import AttemptFailed
from daskmetrics.domain.names import Checkpoint
from daskmetrics.domain.record import Record
from daskmetrics.execution import Journal, RetryPolicy, Settings, Sweep, WorkUnit, run, runner
from tests.events import metric, planned
from tests.faults import units as work
from tests.stored import read_block

# where another run's dashboard has the port, tornado leaves the socket that it tried to the
# collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

FULL = os.environ.get("DASKMETRICS_FAULTS") == "full"
KILLS, UNITS, WORKERS, SECONDS = (200, 500, 3, 1.0) if FULL else (8, 30, 2, 0.4)
QUICK = RetryPolicy(delay=0.05)


def test_a_scheduler_that_may_open_no_file_is_a_system_error(monkeypatch):
    async def refused(scheduler):
        raise OSError(errno.EMFILE, "Too many open files", "/tmp/key")

    monkeypatch.setattr(Scheduler, "start_unsafe", refused)
    with pytest.raises(OSError, match="Too many open files"), connect(Cluster(workers=1)):
        pass


@pytest.fixture(scope="module")
def client():
    with connect(Cluster(workers=2)) as client:
        yield client


def unit(key: str, function, *args, **options) -> WorkUnit:
    return WorkUnit(key, key, "demo", function, args, **options)


def innocents(n: int = 8, seconds: float = 0.1) -> list[WorkUnit]:
    return [unit(f"good{i}", work.nap, seconds, i) for i in range(n)]


def attempts(journal: Journal, key: str = "") -> list[AttemptFailed]:
    failed = [entry for entry in journal.entries if isinstance(entry, AttemptFailed)]
    return [entry for entry in failed if key in ("", entry.key)]


def check(journal: Journal, bad: dict[str, str], n: int = 8) -> None:
    """The bad are named with their status; the others are done, and none of them was ever
    suspected.
    """
    records = {record.key: record for record in journal.records()}
    assert {key: record.status for key, record in records.items() if not record.ok} == bad
    assert {key for key, record in records.items() if record.ok} >= {f"good{i}" for i in range(n)}
    assert {entry.key for entry in attempts(journal)} <= bad.keys()


class Killer(threading.Thread):
    """Kills random workers of a cluster, one after the other, until it has killed enough."""

    def __init__(self, client: Client, kills: int) -> None:
        super().__init__(daemon=True)
        self.client, self.left, self.enough = client, kills, threading.Event()
        self.random = random.Random(0)

    def run(self) -> None:
        killed = {None}
        while self.left and not self.enough.is_set():
            time.sleep(self.random.uniform(0.2, 1.2))
            pids = {nanny.pid for nanny in self.client.cluster.workers.values()} - killed
            if pids:
                pid = self.random.choice(sorted(pids))
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
                self.left -= 1


def test_a_silent_worker_is_lost_only_if_it_runs_no_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "FROZEN", 3.0)
    busy = tmp_path / "busy"
    limit = {"distributed.scheduler.worker-ttl": "1s"}  # of a site

    def stop_the_other(pids: set[int]) -> None:
        while not (busy.exists() and busy.read_text()):
            time.sleep(0.1)
        [other] = pids - {int(busy.read_text())}
        os.kill(other, signal.SIGSTOP)

    with (
        dask.config.set(limit),
        connect(Cluster(workers=2), wait=2) as client,
        Journal(tmp_path / "journal.jsonl", tmp_path / "lock") as journal,
    ):
        pids = {nanny.pid for nanny in client.cluster.workers.values()}
        stops = threading.Thread(target=stop_the_other, args=(pids,))
        stops.start()
        silent = unit("silent", work.nap_with_the_lock, 20, str(busy))
        run(Sweep([silent]), client, journal, Settings())
        stops.join()
        [record] = journal.records()
        assert record.value == int(busy.read_text()) and not attempts(journal)
        after = {nanny.pid for nanny in client.cluster.workers.values()}
        assert len(after & pids) == 1, "the stopped one was replaced"


def test_kills_lose_nothing_and_write_nothing_twice(tmp_path):
    plan = planned((work.suite(),), metrics=[metric(name) for name in "abc"])
    settings = Settings(retry=RetryPolicy(deaths=12, delay=0.05))
    hashes = []
    for name, kills, seconds in (("quiet", 0, 0.02), ("killed", KILLS, SECONDS)):
        folder = tmp_path / name
        path = folder / "store.zarr"
        store.create(path, plan, {})
        todo = [unit(f"u{i}", work.write_chunk, str(path), i, seconds) for i in range(UNITS)]
        with (
            Journal(folder / "journal.jsonl", folder / "lock") as journal,
            connect(Cluster(workers=WORKERS)) as client,
        ):
            killer = Killer(client, kills)
            killer.start()
            run(Sweep(todo), client, journal, settings)
            killer.enough.set()
            killer.join()
            records = Counter(entry.key for entry in journal.entries if isinstance(entry, Record))
            assert records == Counter(f"u{i}" for i in range(UNITS))
            assert all(record.ok for record in journal.records())
            assert killer.left == 0, "the work was over before the last kill"
        hashes.append(digest(path))
    assert hashes[0] == hashes[1]


def digest(path: Path) -> str:
    blocks = (read_block(path, "metrics", Checkpoint("m", f"step{i}")) for i in range(UNITS))
    arrays = [array for block in blocks for array in (block.values, block.stderr, block.status)]
    assert all(np.isfinite(array).all() for array in arrays)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


HANGS = {hang.__name__: hang for hang in (work.hang_in_c, work.hang_with_the_lock)}


@pytest.fixture(scope="module")
def struck(client, tmp_path_factory) -> Journal:
    """The journal of one run of units that misbehave in every way, among others that do not."""
    folder = tmp_path_factory.mktemp("struck")
    shared = WorkUnit("bad", "bad", "encode", work.leave)
    units = [
        *(unit(name, hang, timeout=1.5) for name, hang in HANGS.items()),
        unit("frozen", work.freeze_once, str(folder), timeout=2.0),
        unit("cuda", work.out_of_device_memory, str(folder)),
        *(unit(f"user{i}", work.nap, i, input=shared) for i in range(2)),
    ]
    settings = Settings(retry=RetryPolicy(deaths=2, delay=0.05), grace=1.0)
    with Journal(folder / "journal.jsonl", folder / "lock") as journal:
        run(Sweep([*units, *innocents()]), client, journal, settings)
    assert not (folder / "scratch").exists()
    return journal


def record_of(journal: Journal, key: str) -> Record:
    [record] = [record for record in journal.records() if record.key == key]
    return record


def test_only_a_unit_that_ends_its_process_fails_and_is_named(client, journal):
    settings = Settings(retry=RetryPolicy(deaths=3))
    run(Sweep([unit("poison", work.leave), *innocents()]), client, journal, settings)
    check(journal, {"poison": "quarantined"})
    assert all(entry.blamed for entry in attempts(journal))
    assert len({entry.worker for entry in attempts(journal)}) == 2, "it was not tried elsewhere"


def test_an_input_that_ends_its_process_is_what_is_blamed(struck):
    for key in ("user0", "user1"):
        record = record_of(struck, key)
        assert record.status == "quarantined"
        assert "Its encode bad: The worker died" in record.reason
    assert {f"good{i}" for i in range(8)} <= {each.key for each in struck.records() if each.ok}
    assert {entry.key for entry in attempts(struck)} == {*HANGS, "frozen", "cuda", "bad"}


@pytest.mark.parametrize("hang", HANGS)
def test_a_hang_is_stopped_at_its_deadline_with_a_traceback(struck, hang):
    assert record_of(struck, hang).status == "timeout"
    traces = [entry.trace for entry in attempts(struck, hang)]
    assert len(traces) == 2 and all(hang in trace for trace in traces)


def test_a_process_that_is_stopped_is_given_up_and_replaced(struck):
    record = record_of(struck, "frozen")
    assert (record.status, record.value, record.attempts) == ("ok", 2, 2)
    assert [entry.fault for entry in attempts(struck, "frozen")] == ["timeout"]


def test_memory_of_the_device_runs_out(struck):
    assert record_of(struck, "cuda").status == "oom" and len(attempts(struck, "cuda")) == 2


def test_all_workers_are_back_after_their_deaths(struck, client, journal):
    run(Sweep(innocents(8, 2.0)), client, journal, Settings())
    assert {record.worker for record in journal.records()} == {"0", "1"}


def test_a_process_given_up_that_goes_on_changes_nothing(client, journal, tmp_path):
    """Stopped, given up, and continued before its nanny is asked to end it."""
    pids = {nanny.pid for nanny in client.cluster.workers.values()}

    def wake() -> None:
        time.sleep(2.9)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    waker = threading.Thread(target=wake)
    waker.start()
    settings = Settings(retry=QUICK, grace=1.0)
    frozen = unit("frozen", work.freeze_once, str(tmp_path), timeout=2.0)
    run(Sweep([frozen, *innocents()]), client, journal, settings)
    waker.join()
    assert record_of(journal, "frozen").ok
    assert {entry.key for entry in attempts(journal)} <= {"frozen"}


def test_memory_of_the_host_runs_out(journal):
    with connect(Cluster(workers=2, memory="500MiB")) as client:
        units = [unit("hog", work.eat, 900), *innocents()]
        run(Sweep(units), client, journal, Settings(retry=QUICK))
    check(journal, {"hog": "oom"})


@pytest.mark.parametrize("full", [True, False])
def test_a_full_disk_pauses_the_run_and_a_units_limit_fails_it(client, journal, tmp_path, full):
    """A unit finds no room: a pause if the run's disk takes nothing, too, and else its own fault."""
    client.run(work.allow_room, not full)
    said: list[str] = []
    todo = [unit("full", work.no_room_until, str(tmp_path), 3 if full else 99), *innocents()]
    run(Sweep(todo), client, journal, Settings(pause=0.3, retry=QUICK), say=said.append)
    client.run(work.allow_room, True)
    if full:
        check(journal, {})
        assert len(said) == 2 and "cannot write its files: the run pauses" in said[0]
    else:
        check(journal, {"full": "error"})
        assert not said and len(attempts(journal)) == 3


def test_a_straggler_holds_nobody_up(client, journal, tmp_path):
    """It ends when all others are recorded; what waits behind it has to be moved."""
    order: list[str] = []
    others_done = tmp_path / "done"

    def note(record: Record) -> None:
        order.append(record.key)
        if len(order) == 20:
            others_done.touch()

    todo = [unit("slow", work.wait_for, str(others_done), 60.0), *innocents(20, 0.1)]
    run(Sweep(todo), client, journal, Settings(), note)
    assert order[-1] == "slow" and len(order) == 21
