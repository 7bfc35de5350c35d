"""Places to run: this machine, Slurm jobs, the present Slurm job, a running scheduler, any cluster
of Dask.

`connect` starts the cluster that a profile describes, gives a Dask client, and ends everything with
its context. Each cluster is private to the run: TLS between its processes, dashboards on the
loopback interface behind a random prefix.

================= ===============================================================
`connection`      a client of the cluster of a profile; a cluster object for notebooks
`places`          one class for each kind of place to run, which starts the cluster
`slurm`           workers as Slurm jobs
`_dask_config`    Dask settings of every cluster
`_preload`        what Dask loads into each process of a cluster
`_client`         a client that is closed also if Ctrl-C comes while it starts
`_certificates`   certificates and keys of a cluster
`pinning`         CPUs, GPUs and memory nodes reserved for one worker
`_worker_process` starts a worker of Dask with temporary files of its own
`links`           how to open the dashboard from another machine
`join`            workers that join a running map by hand
`shared_folder`   whether another machine sees a folder
================= ===============================================================

Modules with a leading underscore are internal.
"""

from typing import TYPE_CHECKING

from daskmetrics.core import on_first_use

if TYPE_CHECKING:
    from daskmetrics.cluster.connection import ProfileCluster, connect
    from daskmetrics.cluster.pinning import Pins, pin_workers, require

__all__ = ["Pins", "ProfileCluster", "connect", "pin_workers", "require"]

_PLACES = {
    "Pins": "daskmetrics.cluster.pinning:Pins",
    "ProfileCluster": "daskmetrics.cluster.connection:ProfileCluster",
    "connect": "daskmetrics.cluster.connection:connect",
    "pin_workers": "daskmetrics.cluster.pinning:pin_workers",
    "require": "daskmetrics.cluster.pinning:require",
}
# the commands of Slurm need no Dask, and a worker starts no cluster
__getattr__ = on_first_use(__name__, _PLACES)
