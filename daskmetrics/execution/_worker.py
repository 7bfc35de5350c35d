"""Runs one attempt on a worker: reports its start, keeps its deadline, and classifies its errors."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import get_worker
from distributed.utils import sync

from daskmetrics.core._text import unsigned
from daskmetrics.core.errors import NO_ROOM, ConfigError, DataError, StorageError, UndefinedError, is_out_of_memory
from daskmetrics.execution._deadline import DEADLINES, LONGEST_TRACE, trace_file
from daskmetrics.execution._messages import TaskId
from daskmetrics.execution._retry import Fault

SHORT = 10_000  # characters of a result that its worker sends along with the report of the end


@dataclass(frozen=True)
class Assignment:
    """An attempt as it is sent to a worker; function and arguments are pickled, so that only the attempt loads them."""

    task: TaskId
    packed: bytes  # pickle of the function and its arguments
    topic: str  # the Dask topic on which its start is reported, and its end with a short result
    scratch: str  # the folder for the traceback at a deadline
    timeout: float | None = None
    shared: bool = False  # whether the result stays on the worker, or goes to the journal as JSON


class AttemptError(Exception):
    """Why an attempt failed, as text, so that it can always be sent."""

    def __init__(self, fault: Fault, reason: str, trace: str) -> None:
        super().__init__(fault, reason, trace)
        self.fault, self.reason, self.trace = fault, reason, trace

    def __str__(self) -> str:
        return self.reason


def perform(assignment: Assignment, *given: Any) -> Any:
    """Run an attempt; returns the JSON of its value and its seconds, or the result of a shared input itself.

    A short value is reported instead, before the end of the task: the driver needs no request to get it. Raises
    AttemptError for any exception of the function.
    """
    worker = get_worker()
    with DEADLINES.within(assignment.task, assignment.timeout, trace_file(Path(assignment.scratch), worker.address)):
        # wait for the answer: if the function kills this process at once, the driver knows what was running
        sync(worker.loop, worker.scheduler.log_event, topic=assignment.topic, msg=assignment.task)
        started = time.perf_counter()
        try:
            function, args = _unpack(assignment.packed)
            result = function(*given, *args)
            seconds = time.perf_counter() - started
            if assignment.shared:
                return result
            value = _as_json(result)
            if len(value) > SHORT:
                return value, seconds
            return worker.log_event(assignment.topic, [assignment.task, value, seconds])
        except (Exception, SystemExit) as error:
            raise AttemptError(blame(error), describe(error), trace_of(error)) from None


def _unpack(packed: bytes) -> Any:
    try:
        return pickle.loads(packed)
    except ImportError as error:
        raise ConfigError(f"The worker cannot import what it is to run ({describe(error)}).") from error


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except TypeError as error:
        raise ConfigError(f"A unit must return what JSON can hold: {error}.") from None
    except ValueError as error:
        raise UndefinedError(f"The value holds what is not a number: {error}.") from None


def blame(error: BaseException) -> Fault:
    """The kind of fault that an exception means."""
    if isinstance(error, UndefinedError):
        return Fault.UNDEFINED
    if is_out_of_memory(error):
        return Fault.MEMORY
    if isinstance(error, StorageError) or (isinstance(error, OSError) and error.errno in NO_ROOM):
        return Fault.DISK
    if isinstance(error, ConfigError | DataError):
        return Fault.PERMANENT
    return Fault.EXCEPTION


def describe(error: BaseException) -> str:
    """One line that names the error, short enough for a table."""
    try:
        text = unsigned(" ".join(str(error).split()))
    except Exception:  # a user's class of exceptions can raise anything
        text = "its text cannot be read"
    return f"{type(error).__name__}: {text}"[:500]


def trace_of(error: BaseException) -> str:
    """The end of the traceback, which names the line."""
    return unsigned("".join(traceback.format_exception(error)))[-LONGEST_TRACE:]


def kill(dask_worker: Any) -> None:
    """Runs in a nanny: kill the process of the worker, even a stopped one. The nanny then starts another."""
    os.kill(dask_worker.process.pid, signal.SIGKILL)
