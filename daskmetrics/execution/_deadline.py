"""A deadline that stops any call, even a C call that never returns or that holds the interpreter's lock.

In such a call no Python code runs, and a thread receives no signals. ``faulthandler`` has a timer in C that writes the
traceback of all threads and ends the process; a nanny starts it again. A process has one such timer, so it is always
set to the earliest deadline of its threads.
"""

from __future__ import annotations

import faulthandler
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from daskmetrics.core.names import content_key
from daskmetrics.execution._messages import TaskId

LONGEST_TRACE = 8000  # characters of a traceback that are kept


def trace_file(scratch: Path, worker: str) -> Path:
    """The file for the traceback of a worker at its deadline; the driver reads it."""
    return scratch / f"{content_key(worker)}.trace"


def last_words(scratch: Path, worker: str) -> dict[TaskId, str]:
    """The attempt at whose deadline a worker ended itself, and its traceback; empty if it died otherwise."""
    path = trace_file(scratch, worker)
    try:
        head, _, trace = path.read_text(encoding="utf-8", errors="replace").partition("\n")
        path.unlink()
    except FileNotFoundError:
        return {}
    return {json.loads(head): trace[:LONGEST_TRACE]} if trace else {}


class Deadlines:
    """The deadlines of a process's threads; the clock is monotonic, so a change of the system time affects none."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[TaskId, tuple[float, Path]] = {}
        self._file = -1  # the file at this path
        self._path: Path | None = None

    @contextmanager
    def within(self, task: TaskId, seconds: float | None, path: Path) -> Iterator[None]:
        """End this process if the block takes longer; None sets no deadline."""
        if seconds is None:
            yield
            return
        with self._lock:
            self._open[task] = self._clock() + seconds, path
            self._arm()
        try:
            yield
        finally:
            with self._lock:
                del self._open[task]
                self._arm()

    def _arm(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        if not self._open:
            return
        task, (at, path) = min(self._open.items(), key=lambda one: one[1])
        if path != self._path:
            if self._path is not None:
                os.close(self._file)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file, self._path = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), path
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{json.dumps(task)}\n".encode(), 0)
        os.lseek(self._file, 0, os.SEEK_END)
        faulthandler.dump_traceback_later(max(0.001, at - self._clock()), exit=True, file=self._file)


DEADLINES = Deadlines()  #: the deadlines of this process
