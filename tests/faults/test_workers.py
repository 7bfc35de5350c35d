"""Workers that die, hang, freeze and swell, on a real cluster. DASKMETRICS_FAULTS=full runs the
large sizes.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from daskmetrics import store
from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core.events import AttemptFailed, Record
from daskmetrics.core.names import Checkpoint
from daskmetrics.execution import Journal, RetryPolicy, Settings, Sweep, WorkUnit, run
from tests.faults import units as work
from tests.stored import read_block

# where another run's dashboard has the port, tornado leaves the socket that it tried to the
# collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

FULL = os.environ.get("DASKMETRICS_FAULTS") == "full"
KILLS, UNITS, WORKERS, SECONDS = (200, 500, 3, 1.0) if FULL else (20, 60, 2, 0.4)
QUICK = RetryPolicy(delay=0.05)


@pytest.fixture(scope="module")
def client():
    with connect(Cluster(workers=2)) as client:
        yield client


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.jsonl", tmp_path / "lock") as journal:
        yield journal


def unit(key: str, function, *args, **options) -> WorkUnit:
    return WorkUnit(key, key, "demo", function, args, **options)


def innocents(n: int = 8, seconds: float = 0.1) -> list[WorkUnit]:
    return [unit(f"good{i}", work.nap, seconds, i) for i in range(n)]


def attempts(journal: Journal) -> list[dict]:
    return [entry for entry in journal.entries if isinstance(entry, AttemptFailed)]


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
        killed = set()
        while self.left and not self.enough.is_set():
            time.sleep(self.random.uniform(0.2, 1.2))
            pids = [nanny.pid for nanny in self.client.cluster.workers.values() if nanny.pid]
            alive = [pid for pid in pids if pid not in killed]
            if alive:
                pid = self.random.choice(alive)
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
                self.left -= 1


def test_kills_lose_nothing_and_write_nothing_twice(tmp_path):
    template = store.Template(
        (work.suite(),),
        store.Axis(("a", "b", "c"), ("1",) * 3, ("",) * 3),
        store.Axis((), (), ()),
        "faults",
        {},
    )
    hashes = []
    for name, kills in (("quiet", 0), ("killed", KILLS)):
        folder = tmp_path / name
        store.create(folder / "store.zarr", template)
        seconds = 0.02 if not kills else SECONDS
        todo = [
            unit(f"u{i}", work.write_chunk, str(folder / "store.zarr"), i, seconds)
            for i in range(UNITS)
        ]
        with (
            Journal(folder / "journal.jsonl", folder / "lock") as journal,
            connect(Cluster(workers=WORKERS)) as client,
        ):
            killer = Killer(client, kills)
            killer.start()
            run(Sweep(todo), client, journal, Settings(retry=RetryPolicy(deaths=12, delay=0.05)))
            killer.enough.set()
            killer.join()
            records = Counter(entry.key for entry in journal.entries if isinstance(entry, Record))
            assert records == Counter(f"u{i}" for i in range(UNITS))
            assert all(record.ok for record in journal.records())
            assert killer.left == 0, "the work was over before the last kill"
        hashes.append(digest(folder / "store.zarr"))
    assert hashes[0] == hashes[1]


def digest(path: Path) -> str:
    blocks = (read_block(path, "metrics", Checkpoint("m", f"step{i}")) for i in range(UNITS))
    arrays = [array for block in blocks for array in (block.values, block.stderr, block.status)]
    assert all(np.isfinite(array).all() for array in arrays)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def test_a_unit_that_ends_its_process_is_named_and_the_rest_completes(client, journal):
    run(
        Sweep([unit("poison", work.leave), *innocents()]),
        client,
        journal,
        Settings(retry=RetryPolicy(deaths=3)),
    )
    check(journal, {"poison": "quarantined"})
    assert all(entry.blamed for entry in attempts(journal))
    assert len({entry.worker for entry in attempts(journal)}) == 2, "it was not tried elsewhere"


def test_an_input_that_ends_its_process_is_what_is_blamed(client, journal):
    shared = WorkUnit("bad", "bad", "encode", work.leave)
    users = [unit(f"user{i}", work.nap, i, input=shared) for i in range(2)]
    run(Sweep([*users, *innocents()]), client, journal, Settings(retry=RetryPolicy(deaths=2)))
    assert {entry.key for entry in attempts(journal)} == {"bad"}
    failed = [record for record in journal.records() if not record.ok]
    assert {record.key: record.status for record in failed} == {
        "user0": "quarantined",
        "user1": "quarantined",
    }
    assert all("Its encode bad: The worker died" in record.reason for record in failed)


@pytest.mark.parametrize("hang", [work.hang_in_c, work.hang_with_the_lock])
def test_a_hang_is_stopped_at_its_deadline_with_a_traceback(client, journal, hang):
    run(
        Sweep([unit("hang", hang, timeout=1.5), *innocents()]),
        client,
        journal,
        Settings(retry=QUICK),
    )
    assert not (journal.path.parent / "scratch").exists()
    check(journal, {"hang": "timeout"})
    assert len(attempts(journal)) == 2
    assert all(hang.__name__ in entry.trace for entry in attempts(journal))
    # both are back
    run(Sweep([unit(f"after{i}", work.nap, 2.0, i) for i in range(8)]), client, journal, Settings())
    assert {record.worker for record in journal.records() if record.key.startswith("after")} == {
        "0",
        "1",
    }


def test_a_process_that_is_stopped_is_given_up_and_replaced(client, journal, tmp_path):
    settings = Settings(retry=QUICK, grace=1.0)
    run(
        Sweep([unit("frozen", work.freeze_once, str(tmp_path), timeout=2.0), *innocents()]),
        client,
        journal,
        settings,
    )
    (record,) = [record for record in journal.records() if record.key == "frozen"]
    assert (record.status, record.value, record.attempts) == ("ok", 2, 2)
    assert [(entry.key, entry.fault) for entry in attempts(journal)] == [("frozen", "timeout")]


def test_a_process_that_goes_on_after_it_was_given_up_changes_nothing(client, journal, tmp_path):
    """Stopped, given up, and continued before its nanny is asked to end it."""
    pids = {nanny.pid for nanny in client.cluster.workers.values()}

    def wake() -> None:
        time.sleep(2.9)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    waker = threading.Thread(target=wake)
    waker.start()
    settings = Settings(retry=QUICK, grace=1.0)
    run(
        Sweep([unit("frozen", work.freeze_once, str(tmp_path), timeout=2.0), *innocents()]),
        client,
        journal,
        settings,
    )
    waker.join()
    assert (
        Counter(entry.key for entry in journal.entries if isinstance(entry, Record))["frozen"] == 1
    )
    check(journal, {}) if not attempts(journal) else None


def test_memory_of_the_host_runs_out(journal):
    with connect(Cluster(workers=2, memory="500MiB")) as client:
        run(
            Sweep([unit("hog", work.eat, 900), *innocents()]),
            client,
            journal,
            Settings(retry=QUICK),
        )
    check(journal, {"hog": "oom"})


def test_memory_of_the_device_runs_out(client, journal, tmp_path):
    todo = [unit("cuda", work.out_of_device_memory, str(tmp_path)), *innocents()]
    run(Sweep(todo), client, journal, Settings(retry=QUICK))
    check(journal, {"cuda": "oom"})
    assert (tmp_path / "cuda").stat().st_size == 2


@pytest.mark.parametrize("full", [True, False])
def test_a_full_disk_pauses_the_run_and_a_limit_of_a_unit_is_its_own_error(
    client, journal, tmp_path, full
):
    """A unit finds no room: a pause if the run's disk takes nothing, too, and else its own fault."""
    client.run(work.allow_room, not full)
    said: list[str] = []
    todo = [unit("full", work.no_room_until, str(tmp_path), 3 if full else 99), *innocents()]
    run(Sweep(todo), client, journal, Settings(pause=0.3, retry=QUICK), say=said.append)
    client.run(work.allow_room, True)
    if full:
        check(journal, {})
        assert len(said) == 2 and "has no room on its disk: the run pauses" in said[0]
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
