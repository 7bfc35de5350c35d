"""Entries of a journal for tests that look at a few of their fields only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskmetrics.domain.events import AttemptFailed, RunStarted, WorkerJoined
from daskmetrics.domain.names import Suite
from daskmetrics.domain.plan import MetricInfo, Plan, TaskInfo

SUITE = Suite("tiny", ("step0",), (0, 1), 1)
CONFIG: Mapping[str, Any] = {
    "name": "run",
    "models": [{"name": "tiny"}],
    "protocol": {"max_length": 512},
    "corpus": {"source": "stdlib"},
}


def task(name: str, kind: str = "classification", weight: float = 1.0, **fields: Any) -> TaskInfo:
    """A task whose key is its name."""
    about = {"main_score": "accuracy", "description": f"about {name}", "key": name}
    return TaskInfo(name, kind, weight=weight, **{**about, **fields})


def metric(name: str, units: str = "nats") -> MetricInfo:
    return MetricInfo(name, units, f"about {name}", name)


def planned(
    suites: Sequence[Suite] = (SUITE,),
    tasks: Sequence[TaskInfo] = (),
    metrics: Sequence[MetricInfo] = (),
    **fields: Any,
) -> Plan:
    """A plan; the weights of each checkpoint are named as it is."""
    names = [str(checkpoint) for suite in suites for checkpoint in suite.checkpoints()]
    others = {
        "encodings": {name: f"weights of {name}" for name in names},
        "prompts": "prompts",
        "search": "search",
        "seed": 0,
        "window": 8,
        "widths": {suite.model: 32 for suite in suites},
        "config": {**CONFIG, "models": [{"name": suite.model} for suite in suites]},
    }
    return Plan(tuple(suites), tuple(tasks), tuple(metrics), **{**others, **fields})


def started(at: float = 0.0, **environment: str) -> RunStarted:
    """The start of a run with these versions."""
    return RunStarted(at, environment)


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
