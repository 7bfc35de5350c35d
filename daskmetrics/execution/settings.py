"""How the loop treats the cluster: one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from daskmetrics.execution.retry import RetryPolicy


@dataclass(frozen=True)
class Settings:
    """How `run` treats the cluster; all times in seconds.

    Attributes
    ----------
    slots : int or None
        Units in flight at most; None as many as the workers have threads, and `ahead` more for each worker.
    retry : RetryPolicy
    spare_inputs : int
        Shared inputs kept on the workers although no unit in flight needs them.
    ahead : int
        Units that may wait on a worker behind the running ones, so that it does not idle while the driver thinks.
    grace : float
        How long after a unit's deadline the driver waits for the worker's own timer before it has the worker killed,
        as a stopped process has no timer.
    margin : float
        A unit is begun on a worker with an end only if ``margin`` times the longest unit of its kind still fits.
    patience : float
        How long nothing may be running, for want of a worker that could take what is waiting.
    pause : float
        How long a full disk is given before the next try.
    stop_grace : float
        How long SIGTERM and SIGHUP let running units finish. The first Ctrl-C at a terminal waits for all of them.
    scratch : Path or None
        A folder that driver and workers see, for the tracebacks of stopped units; None beside the journal.
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
