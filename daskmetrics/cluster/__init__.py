"""Places to run: this machine, jobs on a Slurm, a job that is there, a scheduler that runs already.

`connect` turns a profile into a Dask client and takes everything down again at the end. Each cluster is private to the
run: TLS between its processes, dashboards on the loopback interface behind a random prefix.
"""

from daskmetrics.cluster._connect import connect
from daskmetrics.cluster._notebook import ProfileCluster
from daskmetrics.cluster._pinning import Pins, pin_workers, require

__all__ = ["Pins", "ProfileCluster", "connect", "pin_workers", "require"]
