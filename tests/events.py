"""Entries of a journal for tests that look at a few of their fields only."""

from __future__ import annotations

from typing import Any

from daskmetrics.core.events import AttemptFailed, RunStarted, WorkerJoined


def started(key: str = "k", **fields: Any) -> RunStarted:
    """The start of a run with this key."""
    empty = {
        "name": "run",
        "arms": 0,
        "checkpoints": 0,
        "tasks": {},
        "widths": {},
        "window": 8,
        "environment": {},
    }
    return RunStarted(key, **{"at": 0.0, **empty, **fields})


def joined(name: str, host: str = "n0", **versions: str) -> WorkerJoined:
    """A worker with these versions."""
    return WorkerJoined(name, host, versions, [])


def attempt_failed(key: str = "k", name: str = "tiny@step1", **fields: Any) -> AttemptFailed:
    """A failed attempt; without further fields the death of a worker, for which the unit is not
    blamed.
    """
    about = {
        "kind": "measure",
        "worker": "tls://1.2.3.4:5",
        "attempt": 1,
        "fault": "death",
        "blamed": False,
    }
    return AttemptFailed(key, name, **{**about, "reason": "the worker died", "trace": "", **fields})
