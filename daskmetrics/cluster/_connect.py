"""Starts the cluster of a profile and ends it again: on this machine, on Slurm, or as another library does."""

from __future__ import annotations

import logging
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib import import_module

from distributed import Client, LocalCluster
from distributed.core import Status
from distributed.utils import get_ip_interface

from daskmetrics.cluster._certificates import cluster_security
from daskmetrics.cluster._dask_config import RESOURCES, dask_settings, in_force
from daskmetrics.cluster._foreign import existing_client, factory, factory_client
from daskmetrics.cluster._links import PrivateDashboard, here, is_free, kept_token, link_lines
from daskmetrics.cluster._preload_clock import keep_time
from daskmetrics.config import Cluster
from daskmetrics.core._files import cache_folder
from daskmetrics.core._machine import workers
from daskmetrics.core._main_module import main_not_imported
from daskmetrics.core.errors import ClusterLostError, ConfigError

POLL = 0.1  # seconds between two checks for the first worker
CLOSE_AGAIN = 10.0  # seconds for a cluster whose worker did not end in time

NANNY_PROCESS = "Dask Worker process (from Nanny)"
"""The name that `distributed.nanny` gives to the process of each worker, also to one that it restarts."""

log = logging.getLogger(__name__)


@contextmanager
def connect(
    profile: Cluster,
    run: str = "session",
    on_message: Callable[[str], None] = log.warning,
    *,
    on_start: Callable[[str], None] = lambda line: None,
    wait: bool = True,
    page: str = "status",
) -> Iterator[Client]:
    """A client whose workers take work; the cluster ends with the context.

    Parameters
    ----------
    profile : Cluster
        Where to run, and how large.
    run : str
        Name of the run; part of the names of Slurm jobs.
    on_message : callable
        Called with lines for the user, possibly from another thread: why jobs wait, which were lost.
    on_start : callable
        Called with lines for the user before the first worker arrives: what was started, and how to open the dashboard.
    wait : bool
        Whether to wait for the first worker.
    page : str
        The page of the dashboard that the link in these lines opens; the scheduler of another program or library may
        lack it, so its link is not changed.

    Raises
    ------
    ConfigError
        If no worker arrives in time, Slurm would refuse the jobs, no scheduler answers, or a class cannot make its
        cluster.
    ClusterLostError
        Also within the context, if jobs fail one after the other.

    Examples
    --------
    >>> with connect(Cluster(workers=1)) as client:
    ...     client.submit(sum, [1, 2], resources={"CPU": 1}).result()
    3
    """
    if profile.dashboard_port and not is_free(profile.dashboard_port):
        raise ConfigError(
            f"cluster.dashboard_port is {profile.dashboard_port}, but another process uses this port. Choose another "
            "one, or leave the key out for any free port."
        )
    with ExitStack() as stack:
        # an unguessable path of the dashboard: on a login node the loopback interface is shared
        prefix = f"/{kept_token(cache_folder()) if profile.dashboard_port else secrets.token_urlsafe(16)}"
        keep_time()
        stack.enter_context(in_force(dask_settings(profile, prefix)))
        stack.enter_context(_quiet_disconnects())
        if profile.kind != "existing":
            what = profile.factory.class_ if profile.factory else profile.kind
            on_start(f"Starting {profile.workers} workers ({what}) ...")
            stack.enter_context(main_not_imported(NANNY_PROCESS))
        client = stack.enter_context(_client(profile, prefix, run, on_message))
        link = client.dashboard_link
        if profile.kind not in ("existing", "factory"):
            link = f"{link.removesuffix('status')}{page}"
        for line in link_lines(link, profile.kind, here()):
            on_start(line)
        if wait:
            _wait_for_workers(client, profile)
        yield client


def import_early(profile: Cluster) -> None:
    """Import what starts a cluster of the profile: dask-jobqueue can be imported in the main thread only."""
    if profile.kind == "slurm":
        import_module("daskmetrics.cluster.slurm._cluster")
    elif profile.factory is not None:
        factory(profile.factory)


def _client(
    profile: Cluster, prefix: str, run: str, on_message: Callable[[str], None]
) -> AbstractContextManager[Client]:
    if profile.kind == "existing":
        return existing_client(profile)
    if profile.factory is not None and profile.kind == "factory":
        return factory_client(profile, profile.factory)
    if profile.kind == "slurm":
        return _slurm_client(profile, prefix, run, on_message)
    if profile.kind == "allocation":
        from daskmetrics.cluster.slurm._allocation import allocation_client

        return allocation_client(profile, prefix, on_message)
    return local_client(profile, prefix)


@contextmanager
def _slurm_client(profile: Cluster, prefix: str, run: str, on_message: Callable[[str], None]) -> Iterator[Client]:
    from daskmetrics.cluster.slurm._cluster import SlurmCluster

    with SlurmCluster(profile, run, prefix, on_message) as cluster, Client(cluster, set_as_default=False) as client:
        try:
            yield client
        except ClusterLostError as error:
            raise cluster.problem or error from None
        finally:
            cluster.end_jobs()


def _wait_for_workers(client: Client, profile: Cluster) -> None:
    deadline = time.monotonic() + profile.patience
    while not workers(client):
        if problem := getattr(client.cluster, "problem", None):
            raise problem
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"No worker arrived within {profile.patience:.0f} s on the {profile.kind} cluster. On Slurm, see "
                f"'squeue --me' and the job logs in '{profile.logs}'. To wait longer, set cluster.arrive_within."
            )
        time.sleep(POLL)


@contextmanager
def _quiet_disconnects() -> Iterator[None]:
    """Hide the messages of lost connections: of a cluster that closes, of a browser that closes a page."""
    # each has a level of its own
    names = "distributed", "distributed.client", "tornado.application", "asyncio", "bokeh"
    loggers = map(logging.getLogger, names)
    levels = {logger: logger.level for logger in loggers}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


class _LocalCluster(PrivateDashboard, LocalCluster):  # type: ignore[misc]  # distributed has no types
    """Processes on this machine."""


@contextmanager
def local_client(profile: Cluster, prefix: str) -> Iterator[Client]:
    """A client of processes on this machine, each running one unit at a time under a nanny that restarts it."""
    if profile.interface:
        from daskmetrics.cluster.slurm._partitions import require_interface

        require_interface(profile.interface)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port 8787 is already in use")  # if another process took it meanwhile
        cluster = _LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=True,
            host=get_ip_interface(profile.interface) if profile.interface else "127.0.0.1",
            security=cluster_security(),
            dashboard_address=f"127.0.0.1:{profile.dashboard_port or (8787 if is_free(8787) else 0)}",
            worker_dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"http_prefix": prefix},
            memory_limit=profile.memory or 0,
            resources=RESOURCES,
        )
    cluster.prefix = prefix
    cluster.new_spec["options"]["dashboard"] = False  # a worker's pages have no prefix
    cluster.scale(profile.workers)
    with _closing(cluster), Client(cluster, set_as_default=False) as client:
        yield client


@contextmanager
def _closing(cluster: _LocalCluster) -> Iterator[None]:
    """Close a cluster at the end; a worker process that does not end in time is no failure of the run."""
    try:
        yield
    finally:
        try:
            cluster.close()
        except TimeoutError:  # a loaded machine, or a process that waits for its disk
            cluster.status = Status.failed  # the nanny has given the process up; Dask closes the rest
            with suppress(TimeoutError):  # before 2026.8 it would wait for this nanny for ever
                cluster.close(timeout=CLOSE_AGAIN)
