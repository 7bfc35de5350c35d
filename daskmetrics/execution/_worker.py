"""Runs one attempt on a worker: reports its start, keeps its deadline, and classifies its errors.

A deadline stops any call, even a C call that never returns or that holds the interpreter's lock. In
such a call no Python code runs, and a thread receives no signals. ``faulthandler`` has a timer in C
that writes the traceback of all threads and ends the process; a nanny starts it again. A process
has one such timer, so it is always set to the earliest deadline of its threads.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import json
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from daskmetrics.core.errors import (
    NO_ROOM,
    ConfigError,
    DamageError,
    DataError,
    StorageError,
    UndefinedError,
    describe,
    is_out_of_memory,
    unsigned,
)
from daskmetrics.core.files import opened
from daskmetrics.core.keys import content_key
from daskmetrics.core.machine import close_input
from daskmetrics.core.progress import heard
from daskmetrics.domain.results import result_as_json
from daskmetrics.domain.retry import Fault
from daskmetrics.execution._units import TaskId

SHORT = 10_000  # characters of a result that its worker sends along with the report of the end
SMALL_FILE = 1 << 16  # bytes that the disk of a run takes unless it is full
REPORT_EVERY = 5.0  # seconds between two reports of how far a call is
WHOLE = 0.999  # a sum of parts that were rounded
_PDEATHSIG = 1  # of prctl: the signal that a process gets when its parent ends
LONGEST_TRACE = 8000  # characters of a traceback that are kept


def perform(
    task: TaskId,
    packed: bytes,
    topic: str,
    scratch: str,
    timeout: float | None,
    shared: bool,
    *given: object,
) -> object:
    """Run an attempt.

    Returns the result of a shared input, or the JSON of a long value and its seconds.

    The start and the end are reported to the topic, a short value with its end: the driver needs no
    request to get it. Raises RuntimeError after an exception of the function, of any class: the
    report says what it was.

    Parameters
    ----------
    task : str
    packed : bytes
        Pickle of the function and its arguments, so that only the attempt loads them.
    topic : str
        The Dask topic of the reports.
    scratch : str
        The folder for the traceback at a deadline.
    timeout : float or None
        Seconds until the deadline.
    shared : bool
        Whether the result stays on the worker, or goes to the journal as JSON.
    *given : object
        The result of the unit's input, if it has one.
    """
    # readers of results need no Dask
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    settle()
    path = trace_file(Path(scratch), worker.address)
    with DEADLINES.within(task, timeout, path):
        # wait for the answer: if the function kills this process at once, the driver knows what was
        # running
        sync(worker.loop, worker.scheduler.log_event, topic=topic, msg=["started", task])
        started = time.perf_counter()
        try:
            function, args = _loaded(packed)
            with heard(_reporter(lambda share: worker.log_event(topic, ["doing", task, share]))):
                result = function(*given, *args)
            seconds = time.perf_counter() - started
            if not shared:
                value = _as_json(result)
        except BaseException as error:  # nothing else raises in this thread
            fault = blame(error)
            if fault is Fault.DISK and isinstance(error, OSError) and has_room(path.parent):
                fault = Fault.EXCEPTION  # what is full is the function's own disk or quota
            reason = str(error) if fault is Fault.DAMAGE else describe(error)
            worker.log_event(topic, ["failed", task, fault.value, reason, trace_of(error)])
            raise RuntimeError(reason) from None
    if shared:
        worker.log_event(topic, ["finished", task])
        return result
    if len(value) > SHORT:
        worker.log_event(topic, ["stored", task])
        return value, seconds
    return worker.log_event(topic, ["finished", task, value, seconds])


def _reporter(report: Callable[[float], object]) -> Callable[[float], None]:
    """Reports now and then how far a long call is, and its end."""
    done, latest = 0.0, time.monotonic()

    def on_part(part: float) -> None:
        nonlocal done, latest
        done += part
        if time.monotonic() - latest > REPORT_EVERY or done > WHOLE:
            latest = time.monotonic()
            report(done)

    return on_part


@functools.cache
def settle() -> None:
    """Let functions on a worker start processes of their own.

    These read nothing of the driver's standard input; `multiprocessing` lets them be children of a
    worker, which it starts as a daemon; and what it forks ends with the worker, also if that is killed.
    """
    process = multiprocessing.current_process()
    if multiprocessing.parent_process() is None:  # the worker is a thread of the user's program
        return
    close_input()
    process.daemon = False
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl

        def end_with_worker() -> None:
            # the kernel means the thread that forks: those of Dask live as long as the worker
            if "Dask-" in threading.current_thread().name:
                prctl(_PDEATHSIG, signal.SIGKILL)

        os.register_at_fork(after_in_child=end_with_worker)


def _loaded(packed: bytes) -> tuple[Callable[..., object], tuple[object, ...]]:
    try:
        function, args = pickle.loads(packed)
    except ImportError as error:
        raise ConfigError(f"The worker cannot import it ({describe(error)}).") from error
    return function, args


def _as_json(result: object) -> str:
    try:
        return json.dumps(result_as_json(result), allow_nan=False)
    except TypeError as error:
        raise ConfigError(f"A unit must return what JSON can hold: {error}.") from None
    except ValueError as error:
        raise UndefinedError(f"The value is not a number: {error}.") from None


def has_room(folder: Path) -> bool:
    """Whether the disk of the run takes a small file."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(SMALL_FILE))
            os.fsync(file.fileno())
    except OSError:
        return False
    return True


def blame(error: BaseException) -> Fault:
    """The kind of fault that an exception means."""
    match error:
        case UndefinedError():
            return Fault.UNDEFINED
        case _ if is_out_of_memory(error):
            return Fault.MEMORY
        case StorageError():
            return Fault.DISK
        case OSError() if error.errno in NO_ROOM:
            return Fault.DISK
        case DamageError():
            return Fault.DAMAGE
        case ConfigError() | DataError():
            return Fault.PERMANENT
    return Fault.EXCEPTION


def trace_of(error: BaseException) -> str:
    """The end of the traceback, which names the line."""
    return unsigned("".join(traceback.format_exception(error)))[-LONGEST_TRACE:]


class Deadlines:
    """The deadlines of a process's threads.

    The clock is monotonic, so a change of the system time affects none.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[TaskId, tuple[float, Path]] = {}
        self._file = -1  # for the traceback

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
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if not self._open:
            return
        task = min(self._open, key=lambda task: self._open[task][0])
        deadline, path = self._open[task]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = opened(path, os.O_WRONLY | os.O_CREAT)
        # cut behind the name: some file systems write a file that was emptied to the disk at once
        os.ftruncate(self._file, os.write(self._file, f"{json.dumps(task)}\n".encode()))
        seconds = max(0.001, deadline - self._clock())
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._file)


DEADLINES = Deadlines()  #: the deadlines of this process


def trace_file(scratch: Path, worker: str) -> Path:
    """The file for the traceback of a worker at its deadline.

    The driver reads it.
    """
    return scratch / f"{content_key(worker)}.trace"


def last_words(scratch: Path, worker: str) -> dict[TaskId, str]:
    """The attempt at whose deadline a worker ended itself, and its traceback.

    Empty if it died otherwise.
    """
    path = trace_file(scratch, worker)
    try:
        task, _, trace = path.read_text(encoding="utf-8", errors="replace").partition("\n")
        path.unlink()
    except FileNotFoundError:
        return {}
    if trace:
        return {json.loads(task): trace[:LONGEST_TRACE]}
    return {}
