"""Dask settings of every cluster; each prevents a failure that was observed."""

from __future__ import annotations

import logging
import threading
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask

from daskmetrics.cluster import _preload as preload
from daskmetrics.config import Cluster
from daskmetrics.core.files import temporary_folder
from daskmetrics.core.main_module import main_not_imported

TIMEOUTS = {
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "120s",
    # importing torch blocks the interpreter for seconds, which is not a failure
    "distributed.admin.tick.limit": "1 minute",
}
FACTORY_WORKER_SETTINGS = {
    # a paused worker would keep its waiting tasks for ever; its nanny ends it if memory runs out
    "distributed.worker.memory.pause": False,
    # the default of 10 ms takes 2.6 % of a worker's time
    "distributed.worker.profile.interval": "100ms",
    **TIMEOUTS,
}
WORKER_SETTINGS = {
    **FACTORY_WORKER_SETTINGS,
    # workers' pages would listen on all interfaces; those of another library are its own
    "distributed.worker.http.routes": [],
}

# loggers, each with its own level, of connections that a closing cluster or page loses
QUIET = ("distributed", "distributed.client", "tornado.application", "asyncio", "bokeh")

ENVIRONMENT = "distributed.nanny.pre-spawn-environ"  # of workers

TEMPORARY = "temporary-directory"
"""Key of the folder of temporary files."""

NANNY_PROCESS = "Dask Worker process (from Nanny)"
"""The name that `distributed.nanny` gives to the process of each worker, also to one that it
restarts.
"""

PAGES = "daskmetrics.dashboard._preload"
"""Module that adds our pages to the dashboard; only the scheduler imports it."""


def withdraw(dask_scheduler: Any, names: Collection[str]) -> None:
    """Set the resources of workers to zero.

    They get no more work, and running tasks are not disturbed.
    """
    for worker in list(dask_scheduler.workers.values()):
        if str(worker.name) in names:
            dask_scheduler.add_resources(
                worker=worker.address, resources=dict.fromkeys(worker.resources, 0)
            )


def factory_settings(profile: Cluster) -> Mapping[str, object]:
    """Configuration for a cluster that we start, also of another library."""
    return {
        **FACTORY_WORKER_SETTINGS,
        # our own retry policy decides about retries, and needs to know of the first death
        "distributed.scheduler.allowed-failures": 0,
        # otherwise a worker that was disconnected for 15 s is closed
        "distributed.deploy.lost-worker-timeout": "1 hour",
        # one whose unit keeps the interpreter to itself is silent: a unit's time limit decides
        "distributed.scheduler.worker-ttl": None,
        # a site's limit would end a scheduler whose workers have not arrived
        "distributed.scheduler.idle-timeout": None,
        "distributed.scheduler.preload": [PAGES],
        f"{ENVIRONMENT}.OMP_NUM_THREADS": profile.threads,
        # SSHCluster waits for a line of the log, also beside a cluster that hides it
        f"{ENVIRONMENT}.DASK_LOGGING__DISTRIBUTED": "info",
    }


def own_settings(profile: Cluster, prefix: str) -> Mapping[str, object]:
    """Configuration for a cluster of our own, with the prefix of its dashboard."""
    return {
        **factory_settings(profile),
        **WORKER_SETTINGS,
        # every link that Dask shows needs the private prefix
        "distributed.dashboard.link": "{scheme}://127.0.0.1:{port}" + prefix + "/status",
        preload.PREFIX: prefix,
        "distributed.scheduler.preload": [preload.__name__, PAGES],
        "distributed.worker.preload": [preload.__name__],
        # tasks cancelled when a run is stopped would be logged as errors
        f"{ENVIRONMENT}.DASK_LOGGING__DISTRIBUTED": "error",
    }


_LOCK = threading.RLock()
_IN_FORCE: list[Mapping[str, object]] = []
_set = ExitStack()  # undoes what `in_force` has set
_quiet = ExitStack()  # gives the loggers their levels again


@contextmanager
def temporary_settings() -> Iterator[Mapping[str, str]]:
    """Settings with a folder of this user alone for workers and their spilled data.

    It is removed with the block.

    Dask adds the folders of its processes to the path from which they import modules, and its own
    default is one that any user can make.
    """
    parent = dask.config.get(TEMPORARY, None)
    if parent in [block.get(TEMPORARY) for block in _IN_FORCE]:
        parent = str(Path(parent).parent)  # that of another cluster, which may end before
    with temporary_folder(parent) as folder:
        try:
            yield {TEMPORARY: folder}
        except KeyboardInterrupt:
            # what has half started cannot be closed; it looks for its folder as the process ends
            logging.getLogger("distributed.diskutils").setLevel(logging.CRITICAL)
            raise


@contextmanager
def starting(settings: Mapping[str, object]) -> Iterator[None]:
    """Dask's configuration for a cluster that starts within the block and ends with it."""
    with (
        temporary_settings() as temporary,
        in_force({**settings, **temporary}),
        main_not_imported(NANNY_PROCESS),
    ):
        yield


@contextmanager
def in_force(settings: Mapping[str, object]) -> Iterator[None]:
    """Dask's configuration with these settings, and its loggers quiet.

    Such blocks, of several clusters, may end in any order.
    """
    block = dict(settings)
    with _LOCK:
        _IN_FORCE.append(block)
        _apply()
        for logger in map(logging.getLogger, QUIET):
            _quiet.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
    try:
        preload.keep_time()
        yield
    finally:
        with _LOCK:
            # by identity: two clusters may have equal settings
            _IN_FORCE[:] = [other for other in _IN_FORCE if other is not block]
            _apply()


def _apply() -> None:
    _set.close()
    if _IN_FORCE:
        latest_first = map(dict, reversed(_IN_FORCE))
        settings = dict(ChainMap(*latest_first))
        _set.enter_context(dask.config.set(settings))
    else:
        _quiet.close()
