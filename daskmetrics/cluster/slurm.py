"""Workers as Slurm jobs, one GPU and one worker process each, by dask-jobqueue."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from distributed import Security

from daskmetrics.cluster.settings import RESOURCES
from daskmetrics.config import Cluster
from daskmetrics.errors import ConfigError


def slurm_cluster(profile: Cluster, prefix: str) -> Any:
    """A cluster of Slurm jobs, asked to grow to the profile's number of workers.

    Raises
    ------
    ConfigError
        If dask-jobqueue or Slurm is not there.
    """
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise ConfigError("A Slurm profile needs dask-jobqueue: pip install 'daskmetrics[slurm]'.") from None
    if shutil.which("sbatch") is None:
        raise ConfigError("There is no 'sbatch' here. Run on the cluster's login node, or with: --set cluster=local")
    logs = Path(profile.logs)
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)  # the workers' certificates pass through it
    cluster = SLURMCluster(
        **options(profile, prefix), security=Security.temporary(), shared_temp_directory=str(logs.resolve())
    )
    cluster.scale(jobs=profile.workers)
    return cluster


def options(profile: Cluster, prefix: str) -> dict[str, Any]:
    """What dask-jobqueue is asked for: one job, one process, at most one GPU."""
    gres = f"gpu:{profile.gpu_type}:{profile.gpus_per_job}" if profile.gpu_type else f"gpu:{profile.gpus_per_job}"
    directives = [f"--gres={gres}"] if profile.gpus_per_job else []
    no_limit = [] if profile.memory else ["--memory-limit", "0"]  # Slurm's own limit holds
    no_pages = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]  # they would be open to the whole network
    return {
        "queue": profile.partition,
        "account": profile.account,
        "walltime": profile.walltime,
        "processes": 1,
        "cores": 1,
        "job_cpu": profile.threads,
        "memory": profile.memory or "8GiB",
        # sites that forbid --mem get it left out, unless the profile asks for it
        "job_directives_skip": [] if profile.memory else ["--mem"],
        "interface": profile.interface,
        "job_extra_directives": [*directives, *profile.directives],
        "job_script_prologue": list(profile.prologue),
        "worker_extra_args": [
            *no_limit,
            *no_pages,
            "--resources",
            ",".join(f"{name}={n}" for name, n in RESOURCES.items()),
        ],
        "log_directory": profile.logs,
        "python": f"exec {sys.executable}",  # signals of Slurm reach the worker itself
        "scheduler_options": {"dashboard_address": "127.0.0.1:0", "http_prefix": prefix},
    }
