"""What runs on a worker: one attempt, announced before it begins, within its deadline, its errors told by kind."""

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

from daskmetrics.core.errors import NO_ROOM, ConfigError, DataError, UndefinedError
from daskmetrics.execution._deadline import DEADLINES, LONGEST_TRACE, trace_file
from daskmetrics.execution._messages import TaskId
from daskmetrics.execution._retry import Fault


@dataclass(frozen=True)
class Order:
    """An attempt as it is sent: function and arguments are packed, so that only the attempt itself unpacks them.

    Attributes
    ----------
    task : str
    packed : bytes
        Pickle of the function and its arguments.
    topic : str
        Where its start is announced.
    scratch : str
        The folder for the traceback at a deadline.
    timeout : float or None
    shared : bool
        Whether the result stays on the worker as it is, or goes to the journal as JSON.
    """

    task: TaskId
    packed: bytes
    topic: str
    scratch: str
    timeout: float | None = None
    shared: bool = False


class AttemptError(Exception):
    """Why an attempt failed, in plain values: whatever was raised, this can be sent."""

    def __init__(self, fault: Fault, reason: str, trace: str) -> None:
        super().__init__(fault, reason, trace)
        self.fault, self.reason, self.trace = fault, reason, trace

    def __str__(self) -> str:
        return self.reason


def perform(order: Order, *given: Any) -> Any:
    """Run an attempt; the JSON of its value with its seconds, or a shared input's result as it is.

    Raises
    ------
    AttemptError
        For whatever the function raises.
    """
    worker = get_worker()
    with DEADLINES.within(order.task, order.timeout, trace_file(Path(order.scratch), worker.address)):
        # the answer is waited for: should the function kill this process at once, it is known what was running
        sync(worker.loop, worker.scheduler.log_event, topic=order.topic, msg=order.task)
        started = time.perf_counter()
        try:
            function, args = _unpack(order.packed)
            result = function(*given, *args)
            seconds = time.perf_counter() - started
            return result if order.shared else (_as_json(result), seconds)
        except (Exception, SystemExit) as error:
            raise AttemptError(blame(error), describe(error), _trace(error)) from None


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
    """Which kind of fault an exception stands for."""
    if isinstance(error, UndefinedError):
        return Fault.UNDEFINED
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Fault.MEMORY
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return Fault.DISK
    if isinstance(error, ConfigError | DataError):
        return Fault.PERMANENT
    return Fault.EXCEPTION


def describe(error: BaseException) -> str:
    """One line that names the error, short enough for a table."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500]


def _trace(error: BaseException) -> str:
    """The end of the traceback, which names the place."""
    return "".join(traceback.format_exception(error))[-LONGEST_TRACE:]


def kill(dask_worker: Any) -> None:
    """Runs in a nanny: end the worker's process, even a stopped one. The nanny then starts another."""
    os.kill(dask_worker.process.pid, signal.SIGKILL)
