"""Messages to the loop and actions that it returns: frozen values, so that a simulator can replace Dask."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from daskmetrics.core._events import WorkerJoined
from daskmetrics.execution._retry import Fault
from daskmetrics.execution._units import WorkUnit

TaskId: TypeAlias = str  #: names one attempt, so that late messages of an earlier attempt can be dropped


@dataclass(frozen=True)
class Joined:
    """A worker is ready."""

    worker: str  # its address, new after each restart
    name: str  # stays the same
    threads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    remaining: float | None = None  # seconds until its walltime ends
    about: WorkerJoined | None = None  # versions and devices, for the journal
    memory: float = math.inf  # bytes that it may use


@dataclass(frozen=True)
class OfferChanged:
    """A worker offers other resources than before: none, if it will leave after its running units."""

    worker: str
    resources: Mapping[str, float]


@dataclass(frozen=True)
class Left:
    """A worker is gone."""

    worker: str
    expired: Mapping[TaskId, str] = field(default_factory=dict)  # the attempt at whose deadline it ended: traceback
    memory: bool = False  # whether its nanny killed it because it used too much memory


@dataclass(frozen=True)
class Started:
    """An attempt has begun to run on its worker."""

    task: TaskId


@dataclass(frozen=True)
class Finished:
    """An attempt succeeded. A shared input has no value here: its result stays on the worker."""

    task: TaskId
    value: Any = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Failed:
    """An attempt failed, and its worker is alive."""

    task: TaskId
    fault: Fault
    reason: str
    trace: str = ""


@dataclass(frozen=True)
class Vanished:
    """An attempt or its result was lost; nothing is blamed."""

    task: TaskId


@dataclass(frozen=True)
class StopRequested:
    """The user requests a stop: running units may finish within ``grace`` seconds."""

    grace: float


Message: TypeAlias = Joined | OfferChanged | Left | Started | Finished | Failed | Vanished | StopRequested


@dataclass(frozen=True)
class Submit:
    """Run a unit on a worker, with the result of the attempt ``given`` as its first argument if there is one."""

    task: TaskId
    unit: WorkUnit
    worker: str
    shared: bool = False
    given: TaskId | None = None


@dataclass(frozen=True)
class Release:
    """An attempt is no longer needed: stop it if possible, and free its result."""

    task: TaskId


@dataclass(frozen=True)
class Kill:
    """A worker does not answer: kill it."""

    worker: str


@dataclass(frozen=True)
class Notice:
    """A line for the user."""

    text: str


Action: TypeAlias = Submit | Release | Kill | Notice
