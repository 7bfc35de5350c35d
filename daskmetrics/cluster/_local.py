"""Workers on this machine."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distributed import Client, LocalCluster, Security

from daskmetrics.cluster._dask_config import RESOURCES
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError


@contextmanager
def local_client(profile: Cluster, prefix: str) -> Iterator[Client]:
    """A client of processes on this machine, each running one unit at a time under a nanny that restarts it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port 8787 is already in use")  # if another process took it meanwhile
        cluster = LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            security=Security.temporary(),
            dashboard_address=f"127.0.0.1:{_free_port(8787)}",
            worker_dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"http_prefix": prefix},
            memory_limit=profile.memory or 0,
            resources=RESOURCES,
        )
    cluster.new_spec["options"]["dashboard"] = False  # a worker's pages have no prefix
    cluster.scale(profile.workers)
    with cluster, Client(cluster, set_as_default=False) as client:
        yield client


def _free_port(port: int) -> int:
    """The given port, or 0 (any) if another process uses it; the printed link shows the one in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def existing_client(profile: Cluster) -> Client:
    """A client of a running scheduler, given by its address or its scheduler file."""
    if not profile.address:
        raise ConfigError(
            "cluster.kind is 'existing': give cluster.address (tcp://..., tls://... or a scheduler file)."
        )
    is_file = "://" not in profile.address
    if is_file and not Path(profile.address).is_file():
        raise ConfigError(
            f"The scheduler file '{profile.address}' does not exist. Write one with: dask scheduler --scheduler-file F"
        )
    target = {"scheduler_file": profile.address} if is_file else {"address": profile.address}
    try:
        return Client(**target, set_as_default=False, timeout=min(30.0, profile.patience))
    except OSError as error:
        raise ConfigError(f"No scheduler answers at '{profile.address}': {error}") from None
