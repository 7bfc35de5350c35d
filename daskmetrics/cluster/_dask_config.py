"""Dask settings that every cluster of ours has, each against a trap that was met."""

from __future__ import annotations

import secrets
from typing import Any

from daskmetrics.cluster import _preload_scheduler as preload_scheduler
from daskmetrics.cluster._preload_scheduler import PREFIX
from daskmetrics.config import Cluster

RESOURCES = {"GPU": 1, "CPU": 1}
"""What each worker offers. Encoding takes GPU, scoring takes CPU, so that a probe never holds a GPU."""

PAGES = "daskmetrics.dashboard._preload"
"""What gives the dashboard our pages; it lives beside this room, and is loaded by the scheduler alone."""


WORKER_SETTINGS = {
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "60s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "120s",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1 minute",
}
"""The same for workers in jobs, which do not inherit this process's configuration: variables of their environment."""


def dask_settings(profile: Cluster, prefix: str) -> dict[str, Any]:
    """Configuration in force while the cluster lives; of an existing one, what its client needs."""
    patient = {
        "distributed.comm.timeouts.connect": "60s",
        "distributed.comm.timeouts.tcp": "120s",
        # importing torch holds the interpreter for seconds; that is no failure
        "distributed.admin.tick.limit": "1 minute",
    }
    if profile.kind == "existing":
        return patient
    return {
        # our own account of blame decides about retries, and needs to hear of the first death
        "distributed.scheduler.allowed-failures": 0,
        # a paused worker would keep what waits there for ever; its nanny ends it where memory runs out
        "distributed.worker.memory.pause": False,
        # otherwise a worker that was away for 15 s is closed for good
        "distributed.deploy.lost-worker-timeout": "1 hour",
        # so that every link that Dask shows has the private prefix
        "distributed.dashboard.link": "{scheme}://127.0.0.1:{port}" + prefix + "/status",
        PREFIX: prefix,
        "distributed.scheduler.preload": [preload_scheduler.__name__, PAGES],
        # workers' pages would listen on all interfaces
        "distributed.worker.http.routes": [],
        "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": profile.threads,
        # work that is cancelled when a run is stopped is no news to its user
        "distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "error",
        **patient,
    }


def private_prefix() -> str:
    """An unguessable path below which the dashboard is served: on a login node the loopback interface is shared."""
    return f"/{secrets.token_urlsafe(16)}"
