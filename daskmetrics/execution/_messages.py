"""What the loop is told and what it wants done: frozen values, so that a simulator can speak to it as Dask does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from daskmetrics.core._events import WorkerJoined
from daskmetrics.execution._retry import Fault
from daskmetrics.execution._units import WorkUnit

TaskId: TypeAlias = str
"""Names one attempt, so that what an earlier attempt still sends can be told apart and dropped."""


@dataclass(frozen=True)
class Joined:
    """A worker can take work.

    Attributes
    ----------
    worker, name : str
        Its address, new after each restart, and its name, which stays.
    threads : int
    resources : mapping
    remaining : float or None
        Seconds until its walltime ends.
    about : WorkerJoined or None
        Versions and devices, for the journal.
    """

    worker: str
    name: str
    threads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)
    remaining: float | None = None
    about: WorkerJoined | None = None


@dataclass(frozen=True)
class Offers:
    """A worker offers something else than before: nothing, if it is to leave once what it runs is finished."""

    worker: str
    resources: Mapping[str, float]


@dataclass(frozen=True)
class Left:
    """A worker is gone.

    Attributes
    ----------
    worker : str
    expired : mapping
        The attempt at whose deadline the worker ended itself, with its traceback.
    memory : bool
        Whether its nanny ended it for taking too much memory.
    """

    worker: str
    expired: Mapping[TaskId, str] = field(default_factory=dict)
    memory: bool = False


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
    """An attempt failed, and its worker lives to tell."""

    task: TaskId
    fault: Fault
    reason: str
    trace: str = ""


@dataclass(frozen=True)
class Vanished:
    """An attempt or its result was lost on the way; nobody is to blame."""

    task: TaskId


@dataclass(frozen=True)
class StopAsked:
    """The user wants to stop: finish what is running, for ``grace`` seconds at most."""

    grace: float


Message: TypeAlias = Joined | Offers | Left | Started | Finished | Failed | Vanished | StopAsked


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
    """An attempt is of no interest any more: stop it if that is still possible, and free its result."""

    task: TaskId


@dataclass(frozen=True)
class Kill:
    """A worker does not answer: have it ended."""

    worker: str


@dataclass(frozen=True)
class Say:
    """A line for the user."""

    text: str


Action: TypeAlias = Submit | Release | Kill | Say
