"""The settings of a run of work units."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from daskmetrics.core.retry import RetryPolicy


@dataclass(frozen=True)
class Settings:
    """Settings of `run`; all times in seconds.

    Attributes
    ----------
    slots : int or None
        Most units in flight; None for one per thread of the workers, and `ahead` more per worker.
    retry : RetryPolicy
    spare_inputs : int
        Shared inputs that stay on the workers although no unit in flight needs them.
    ahead : int
        Units that may wait on a worker behind the running ones, so that it is not idle while the
        driver decides.
    grace : float
        How long after a deadline the driver waits for the timer of the worker before it kills the
        worker: a stopped process has no timer.
    margin : float
        A unit starts on a worker with a walltime only if ``margin`` times the longest unit of its
        kind still fits.
    patience : float
        How long no unit may run because no worker can take one, before `run` raises an error.
    pause : float
        Pause after a full disk.
    stop_grace : float
        How long running units may continue after SIGTERM or SIGHUP. The first Ctrl-C at a terminal
        waits for all.
    scratch : Path or None
        A folder that driver and workers share, for tracebacks of stopped units; None for one beside
        the journal.
    most_memory : float
        Bytes that a worker can have in this run. A unit that was killed for memory on one with less
        waits for more.
    alone : bool
        Whether a worker that was started without our resources runs one unit at a time, however
        many threads it has.
    commit_every : int
        Results after which the driver waits until they are on disk. A killed driver loses none of
        them; a power failure can lose fewer than this.
    """

    slots: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    spare_inputs: int = 4
    ahead: int = 1
    grace: float = 5.0
    margin: float = 1.5
    patience: float = 600.0
    pause: float = 5.0
    stop_grace: float = 2.0
    scratch: Path | None = None
    alone: bool = False
    most_memory: float = 0.0
    commit_every: int = 1
