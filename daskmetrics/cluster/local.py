"""Workers on this machine."""

from __future__ import annotations

import warnings

from distributed import LocalCluster, Security

from daskmetrics.cluster.settings import RESOURCES
from daskmetrics.config import Cluster


def local_cluster(profile: Cluster, prefix: str) -> LocalCluster:
    """A cluster of processes on this machine, each running one unit at a time under a nanny that restarts it."""
    with warnings.catch_warnings():
        # another run's dashboard may have the port; ours then takes the next free one, and its link says so
        warnings.filterwarnings("ignore", message="Port 8787 is already in use")
        return LocalCluster(
            n_workers=profile.workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            security=Security.temporary(),
            dashboard_address="127.0.0.1:8787",
            worker_dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"http_prefix": prefix},
            memory_limit=profile.memory or 0,
            resources=RESOURCES,
        )
