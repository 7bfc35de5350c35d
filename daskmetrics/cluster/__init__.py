"""Places to run: this machine, Slurm jobs, the present Slurm job, a running scheduler.

`connect` starts the cluster that a profile describes, gives a Dask client, and ends everything with its context. Each
cluster is private to the run: TLS between its processes, dashboards on the loopback interface behind a random prefix.
"""

from daskmetrics.cluster._connect import connect
from daskmetrics.cluster._notebook import ProfileCluster
from daskmetrics.cluster._pinning import Pins, pin_workers, require

__all__ = ["Pins", "ProfileCluster", "connect", "pin_workers", "require"]
