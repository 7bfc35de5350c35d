"""What misbehaves: functions that workers run. Each leaves a trace of every invocation where that
is counted.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from daskmetrics import store
from daskmetrics.domain.names import Checkpoint, Suite
from daskmetrics.execution import Journal, Settings, Sweep, WorkUnit, run

REVISIONS = 600


def suite() -> Suite:
    return Suite("m", tuple(f"step{i}" for i in range(REVISIONS)), (0, 1), 1)


def count(folder: str, name: str) -> int:
    """Leaves a trace of every invocation, and says which one this is."""
    path = Path(folder) / name
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


def nap(seconds: float, value: object = None) -> object:
    time.sleep(seconds)
    return value


def wait_for(path: str, seconds: float) -> None:
    """Ends when a file is there, or after some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not Path(path).exists():
        time.sleep(0.1)


def write_chunk(path: str, number: int, seconds: float) -> list[list[float]]:
    """A unit as the project's own: it computes, writes its own chunk, and returns what the journal
    then vouches for.
    """
    time.sleep(seconds)
    values = np.random.default_rng(number).normal(size=(2, 3))
    block = store.Block(values, np.abs(values), np.ones(values.shape, np.uint8))
    store.write(Path(path), "metrics", Checkpoint("m", f"step{number}"), block)
    return values.tolist()


def leave() -> None:
    """What a crash in C does: no exception, no farewell."""
    os._exit(13)


def hang_in_c() -> None:
    ctypes.CDLL(None).sleep(1000)


def hang_with_the_lock() -> None:
    """Python's lock is kept: not one line of Python runs in this process any more."""
    ctypes.PyDLL(None).sleep(1000)


def nap_with_the_lock(seconds: int, file: str) -> int:
    """Write this process's number into a file, and let it run no Python for so long."""
    Path(file).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(seconds)
    return os.getpid()


def freeze_once(folder: str) -> int:
    """Stop the whole process, its timers with it, the first time."""
    number = count(folder, "frozen")
    if number == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1)  # a stop takes a moment to arrive
    return number


def eat(megabytes: int) -> int:
    """Take memory, step by step, as fast as a nanny can watch."""
    eaten = []
    for _ in range(megabytes // 10):
        eaten.append(np.ones(10 * 2**17))
        time.sleep(0.05)
    time.sleep(5)
    return len(eaten)


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""


def out_of_device_memory(folder: str) -> None:
    count(folder, "cuda")
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def no_room_until(folder: str, good: int) -> int:
    number = count(folder, "full")
    if number < good:
        raise OSError(28, "No space left on device")
    return number


def allow_room(has_room: bool) -> None:
    """Whether the disk of the run takes anything, as this worker sees it."""
    from daskmetrics.execution import _worker

    _worker.has_room = lambda folder: has_room


def drive(folder: str, seconds: float, units: int) -> None:
    """A driver of its own process: naps on two workers."""
    from daskmetrics.cluster import connect
    from daskmetrics.config import Cluster

    place = Path(folder)
    work = [WorkUnit(f"u{i}", f"u{i}", "demo", nap, (seconds, i)) for i in range(units)]
    with (
        Journal(place / "journal.jsonl", place / "lock") as journal,
        connect(Cluster(workers=2)) as client,
    ):
        run(
            Sweep(work),
            client,
            journal,
            Settings(stop_grace=20.0),
            lambda record: print(record.key, flush=True),
        )


if __name__ == "__main__":
    drive(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
