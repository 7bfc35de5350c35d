"""Places to run: this machine, Slurm jobs, the present Slurm job, a running scheduler, any cluster of Dask.

`connect` starts the cluster that a profile describes, gives a Dask client, and ends everything with its context. Each
cluster is private to the run: TLS between its processes, dashboards on the loopback interface behind a random prefix.

==================== =====================================================================
`_connect`           starts the cluster of a profile and ends it
`slurm`              workers as Slurm jobs
`_notebook`          a cluster object for notebooks
`_foreign`           a running scheduler, or a cluster of another library's class
`_dask_config`       Dask settings of every cluster
`_certificates`      certificates and keys of a cluster
`_pinning`           CPUs, GPUs and memory nodes reserved for one worker
`_links`             how to open the dashboard from another machine
`_join`              workers that join a running map by hand
`_selftest`          the checks of ``cluster test``, such as how far a worker's clock is from this machine's
`_preload_nanny`     preload of the nannies of a whole-node job
`_preload_memory`    preload of nannies in Slurm jobs: reports kills by the kernel for memory
`_preload_worker`    preload of workers in Slurm jobs: the working folder
`_preload_clock`     preload of workers: timers that a step of the wall clock does not stop
`_preload_scheduler` preload of the scheduler: the private prefix of the dashboard
==================== =====================================================================

Modules with a leading underscore are internal.
"""

from daskmetrics.cluster._connect import connect
from daskmetrics.cluster._notebook import ProfileCluster
from daskmetrics.cluster._pinning import Pins, pin_workers, require

__all__ = ["Pins", "ProfileCluster", "connect", "pin_workers", "require"]
