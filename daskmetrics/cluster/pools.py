"""What each kind of job of a Slurm profile asks for: the profile's keys resolved, for GPU and CPU workers alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskmetrics import config
from daskmetrics.config import Cluster


@dataclass(frozen=True)
class Pool:
    """Workers of one kind, which come as equal jobs.

    Attributes
    ----------
    name : str
        ``gpu`` or ``cpu``; begins the names of its workers.
    workers, fewest : int
        How many there are to be at most and at least.
    processes : int
        Worker processes per job.
    threads : int
        CPUs of each of them.
    memory : str or None
        Of each of them.
    gres : str or None
        What Slurm is asked for beside CPUs and memory.
    resources : mapping
        What each worker offers to Dask.
    """

    name: str
    workers: int
    fewest: int
    processes: int
    threads: int
    memory: str | None
    gres: str | None
    resources: Mapping[str, int]
    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    walltime: str
    directives: tuple[str, ...]
    max_jobs: int | None


def pools(profile: Cluster) -> tuple[Pool, ...]:
    """The pools of a profile: the main one, and that of the scoring workers if there is one.

    A worker of the main pool offers GPU, and CPU only where nobody else does: so a scoring unit holds no GPU.

    Examples
    --------
    >>> [pool.resources for pool in pools(Cluster(kind="slurm", scoring={"workers": 4}))]
    [{'GPU': 1}, {'CPU': 1}]
    """
    main = Pool(
        name="gpu" if profile.gpus_per_job else "cpu",
        workers=profile.workers,
        fewest=profile.fewest or profile.workers,
        processes=max(1, profile.gpus_per_job),
        threads=profile.threads,
        memory=profile.memory,
        gres=_gres(profile),
        resources={"GPU": 1} if profile.scoring else {"GPU": 1, "CPU": 1},
        partition=profile.partition,
        account=profile.account,
        qos=profile.qos,
        constraint=profile.constraint,
        walltime=profile.walltime,
        directives=profile.directives,
        max_jobs=profile.max_jobs,
    )
    return (main, _scoring(profile, profile.scoring)) if profile.scoring else (main,)


def _gres(profile: Cluster) -> str | None:
    kind = f":{profile.gpu_type}" if profile.gpu_type else ""
    return f"gpu{kind}:{profile.gpus_per_job}" if profile.gpus_per_job else None


def _scoring(profile: Cluster, own: config.Pool) -> Pool:
    return Pool(
        name="scoring" if not profile.gpus_per_job else "cpu",
        workers=own.workers,
        fewest=own.fewest or own.workers,
        processes=1,
        threads=own.threads,
        memory=own.memory,
        gres=None,
        resources={"CPU": 1},
        partition=own.partition or profile.partition,
        account=own.account or profile.account,
        qos=own.qos,
        constraint=own.constraint,
        walltime=own.walltime or profile.walltime,
        directives=own.directives,
        max_jobs=own.max_jobs,
    )
