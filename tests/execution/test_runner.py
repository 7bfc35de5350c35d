from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import Client, wait

from daskmetrics.core.errors import ConfigError, UndefinedError, describe, room_for
from daskmetrics.core.progress import tell
from daskmetrics.domain.events import AttemptFailed, WorkerJoined
from daskmetrics.domain.record import Record
from daskmetrics.domain.retry import Fault
from daskmetrics.execution import Journal, RetryPolicy, Settings, Sweep, WorkUnit, run
from daskmetrics.execution.loop import Failed, Vanished
from daskmetrics.execution.runner import _DaskBackend

SETTINGS = Settings(slots=4, retry=RetryPolicy(delay=0.05))


def square(x: int) -> int:
    return x * x


def count(folder: str, name: str) -> int:
    """Leaves a trace of every invocation, and says which one this is."""
    path = Path(folder) / name
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


def fail_until(folder: str, name: str, good: int) -> int:
    number = count(folder, name)
    if number < good:
        raise RuntimeError(f"attempt {number} of {name}")
    return number


def raise_(error: Exception) -> None:
    raise error


def not_a_number() -> float:
    return float("nan")


def leave_politely() -> None:
    sys.exit(3)


def halves() -> int:
    tell(0.5)
    tell(0.5)
    return 2


def add(first: int, second: int) -> int:
    return first + second


def unit(key: str, function, *args, **options) -> WorkUnit:
    return WorkUnit(key, key, "demo", function, args, **options)


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.jsonl", tmp_path / "lock") as journal:
        yield journal


def values(journal) -> dict[str, object]:
    return {record.key: record.value for record in journal.records() if record.ok}


def test_what_the_user_has_beside_the_journal_stays(client, journal, tmp_path):
    mine = tmp_path / "scratch" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("whole")
    run(Sweep([unit("u", square, 3, timeout=60.0)]), client, journal, SETTINGS)
    assert mine.read_text() == "whole" and list(mine.parent.iterdir()) == [mine]


def test_a_call_says_how_far_it_is(client, journal):
    heard = []
    units = [unit("u", halves)]
    on_share = {"on_share": lambda unit, share: heard.append((unit.name, share))}
    run(Sweep(units), client, journal, SETTINGS, **on_share)
    assert heard == [("u", 1.0)] and values(journal) == {"u": 2}


def test_a_stop_signal_with_the_last_unit_stops_the_run(client, journal):
    def stop(record):
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        run(Sweep([unit("u", square, 2)]), client, journal, SETTINGS, stop)
    assert values(journal) == {"u": 4}


def test_an_exception_is_tried_again_within_its_budget(client, journal, tmp_path):
    run(Sweep([unit("heals", fail_until, str(tmp_path), "a", 3)]), client, journal, SETTINGS)
    run(Sweep([unit("never", fail_until, str(tmp_path), "b", 9)]), client, journal, SETTINGS)
    heals, never = journal.records()
    assert (heals.status, heals.value, heals.attempts) == ("ok", 3, 3)
    assert (never.status, never.value, never.attempts) == ("error", None, 3)
    assert never.reason == "RuntimeError: attempt 3 of b"
    attempts = [entry for entry in journal.entries if isinstance(entry, AttemptFailed)]
    assert [entry.fault for entry in attempts] == ["exception"] * 5
    workers = [entry for entry in journal.entries if isinstance(entry, WorkerJoined)]
    assert {entry.worker for entry in attempts} <= {worker.name for worker in workers}
    assert all("in fail_until" in entry.trace for entry in attempts)
    assert all(worker.versions["daskmetrics"] for worker in workers)


def test_a_shared_input_is_computed_once(client, journal, tmp_path):
    shared = unit("in", count, str(tmp_path), "input")
    units = [unit(f"u{i}", add, i, input=shared) for i in range(8)]
    run(Sweep(units), client, journal, SETTINGS)
    assert values(journal) == {f"u{i}": 1 + i for i in range(8)}
    assert (tmp_path / "input").stat().st_size == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_disk_that_cannot_be_written_only_pauses_the_run(client, journal, number):
    refusals = [OSError(number, os.strerror(number))] * 2
    tried: list[str] = []
    said: list[str] = []

    class Full(type(journal)):
        def append(self, *entries, wait=True):
            if keys := [entry.key for entry in entries if isinstance(entry, Record)]:
                tried.extend(keys)
                if refusals:
                    with room_for("the journal"):
                        raise refusals.pop()
            super().append(*entries, wait=wait)

    journal.__class__ = Full
    run(Sweep([unit("u", square, 3)]), client, journal, Settings(pause=0.05), say=said.append)
    assert values(journal) == {"u": 9}
    assert tried == ["u"] * 3
    assert len(said) == 2 and f"({os.strerror(number)})" in said[0] and "continues" in said[1]


def test_a_journal_error_that_no_wait_can_cure_ends_the_run(client, journal, monkeypatch):
    def broken(*entries, wait):
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(journal, "append", broken)
    with pytest.raises(OSError, match="Bad file"):
        run(Sweep([unit("u", square, 3)]), client, journal, SETTINGS)


@pytest.mark.parametrize(
    ("call", "status", "reason"),
    [
        ((object,), "error", "A unit must return what JSON can hold"),
        ((float,), "ok", None),
        ((not_a_number,), "nan", "not a number"),
        ((leave_politely,), "error", "SystemExit"),
        ((raise_, ConfigError("wrong")), "error", "wrong"),
        ((raise_, UndefinedError("undefined")), "nan", "undefined"),
        ((square, threading.Lock()), "error", "It cannot be sent to a worker"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_comes_back_is_what_a_journal_can_hold(client, journal, call, status, reason):
    units = [unit("u", *call), unit("v", square, 2)]
    run(Sweep(units), client, journal, Settings(retry=RetryPolicy(exceptions=1)))
    assert values(journal)["v"] == 4
    (record,) = (record for record in journal.records() if record.key == "u")
    assert (record.status, record.attempts) == (status, 1)
    assert reason is None or reason in record.reason


def test_a_short_result_needs_no_request_but_a_long_one_does(client, journal, monkeypatch):
    fetched, gather = [], client.gather

    def counted(futures, **options):
        fetched.append(futures[0].key)
        return gather(futures, **options)

    monkeypatch.setattr(client, "gather", counted)
    units = [unit("short", square, 3), unit("long", "x".__mul__, 20_000)]
    run(Sweep(units), client, journal, SETTINGS)
    assert values(journal) == {"short": 9, "long": "x" * 20_000}
    assert len(fetched) == 1 and fetched[0].startswith("demo-long-")


def test_an_error_whose_text_cannot_be_read_has_its_name():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    assert describe(Odd()) == "Odd: <exception str() failed>"


def test_a_result_lost_before_it_is_fetched_stalls_nothing(tmp_path):
    """Its worker ends before the report is handled."""
    with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
        [address] = client.scheduler_info()["workers"]
        future = client.submit(square, 3, workers=[address], pure=False)
        wait(future)

        async def lose(dask_scheduler):
            await dask_scheduler.remove_worker(address, stimulus_id="test")

        client.run_on_scheduler(lose)
        until = time.monotonic() + 60
        while future.status == "finished" and time.monotonic() < until:
            time.sleep(0.01)
        assert future.status not in ("finished", "error")
        backend = _DaskBackend(client, tmp_path, SETTINGS, print)
        backend.futures["square"] = future
        assert list(backend._on_report(["stored", "square"])) == []
        future.release()  # as the loop does once it knows of the worker
        assert backend.events.get(timeout=60) == Vanished("square")


def test_attempts_cancelled_or_unable_to_begin_end_unreported(client, tmp_path):
    backend = _DaskBackend(client, tmp_path, SETTINGS, print)
    backend.futures["cancelled"] = client.submit(square, 3, pure=False)
    backend.futures["cancelled"].cancel()
    backend.futures["broken"] = client.submit(raise_, ValueError("no"), pure=False)
    assert backend.futures["broken"].exception(timeout=60)
    backend._find_unreported_ends()
    assert backend.events.get_nowait() == Vanished("cancelled")
    assert backend.events.get_nowait() == Failed("broken", Fault.EXCEPTION, "ValueError: no")


def test_a_late_answer_about_the_workers_removes_none(tmp_path):
    workers, delays = {}, [0.05, 0.0]

    async def identity(n_workers: int) -> dict:
        answer = {"workers": dict(workers)}
        await asyncio.sleep(delays.pop(0))
        return answer

    client = SimpleNamespace(scheduler=SimpleNamespace(identity=identity))
    backend = _DaskBackend(client, tmp_path, SETTINGS, print)
    backend._post = lambda work: work.close()

    async def look_twice() -> None:
        first = asyncio.create_task(backend._look())
        await asyncio.sleep(0)
        workers["w"] = {"name": "w", "resources": {}, "metrics": {}}
        await asyncio.gather(first, backend._look())

    asyncio.run(look_twice())
    assert list(backend.offers) == ["w"] and not backend.leaving
