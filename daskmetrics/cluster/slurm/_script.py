"""The text of a job: a pure function of the profile, so that what Slurm is told can be read beforehand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dask.utils import parse_bytes

from daskmetrics import config
from daskmetrics.cluster import _preload_nanny as preload_nanny
from daskmetrics.cluster._dask_config import WORKER_SETTINGS
from daskmetrics.cluster._pinning import THREADS
from daskmetrics.config import Cluster
from daskmetrics.core._times import parse_walltime

DEATH_TIMEOUT = 60  # seconds without a scheduler after which a worker ends, and its job with it
EARLY = 60.0  # seconds before the end of its job at which a worker says that it ends; less of a short job


@dataclass(frozen=True)
class LaunchInfo:
    """What is known of a job only when it is submitted.

    Attributes
    ----------
    scheduler : str
        Address that the worker reports to.
    worker : str
        Its name; the processes of a whole-node job get ``-0``, ``-1``, ... behind it.
    run : str
        Whose job it is; part of the job's name.
    python : str
        The interpreter that the nodes share with the driver.
    tls : mapping
        Files of the certificates, by what ``dask worker`` calls them: ``ca-file``, ``cert``, ``key``.
    """

    scheduler: str = "tls://SCHEDULER:PORT"
    worker: str = "NAME"
    run: str = "RUN"
    python: str = "python"
    tls: Mapping[str, str] = field(default_factory=dict)


def script(profile: Cluster, pool: WorkerPool | None = None, post: LaunchInfo | None = None) -> str:
    """The job script, exactly as ``sbatch`` gets it.

    Parameters
    ----------
    profile : Cluster
    pool : WorkerPool, optional
        One of `daskmetrics.cluster.slurm._script.pools`; by default the main one.
    post : LaunchInfo, optional
        By default words in capitals stand for what only the running scheduler knows.

    Examples
    --------
    >>> print(script(Cluster(kind="slurm", gpus_per_job=4)).splitlines()[-1][:60])
    exec python -m distributed.cli.dask_worker tls://SCHEDULER:P
    """
    pool, post = pool or pools(profile)[0], post or LaunchInfo()
    lines = [
        "#!/usr/bin/env bash",
        *(f"#SBATCH {directive}" for directive in _directives(profile, pool, post)),
        "",
        *(f"export {name}={shlex.quote(value)}" for name, value in _exports(profile, pool).items()),
        # Slurm tells its jobs when they end only since 23.02
        f"end=${{SLURM_JOB_END_TIME:-$(($(date +%s) + {parse_walltime(pool.walltime)}))}}",
        f"export SLURM_JOB_END_TIME=$((end - {early(pool)}))",
        *profile.prologue,
        # signals of Slurm reach the worker itself
        f"exec {shlex.quote(post.python)} -m distributed.cli.dask_worker {' '.join(_arguments(profile, pool, post))}",
    ]
    return "\n".join(lines) + "\n"


def job_name(run: str) -> str:
    """What Slurm calls the jobs of a run.

    Examples
    --------
    >>> job_name("my run")
    'daskmetrics-my-run'
    """
    # a folder may have any name, and this one becomes a line of a script and part of a path
    return "daskmetrics-" + re.sub(r"[^A-Za-z0-9._-]", "-", run)[:96]


def early(pool: WorkerPool) -> int:
    """Seconds before the end of its job at which a worker takes no more work."""
    return round(min(EARLY, parse_walltime(pool.walltime) / 20))


def _directives(profile: Cluster, pool: WorkerPool, post: LaunchInfo) -> Iterator[str]:
    yield f"--job-name={job_name(post.run)}"
    yield f"--output={profile.logs}/%x-%j.log"
    asked = {"partition": pool.partition, "account": pool.account, "qos": pool.qos, "constraint": pool.constraint}
    yield from (f"--{name}={value}" for name, value in asked.items() if value)
    yield f"--time={pool.walltime}"
    yield from ("--nodes=1", "--ntasks=1", f"--cpus-per-task={pool.threads * pool.processes}")
    if pool.memory:  # sites that forbid --mem get none unless it is asked for
        yield f"--mem={-(-parse_bytes(pool.memory) * pool.processes // 2**20)}M"
    if pool.gres:
        yield f"--gres={pool.gres}"
    yield "--no-requeue"  # the supervisor replaces what is lost; a requeued job would be one too many
    yield from pool.directives  # the last of two equal ones counts


def _exports(profile: Cluster, pool: WorkerPool) -> dict[str, str]:
    return {**dict.fromkeys(THREADS, str(pool.threads)), **WORKER_SETTINGS, **profile.exports}


def _arguments(profile: Cluster, pool: WorkerPool, post: LaunchInfo) -> Iterator[str]:
    yield from (shlex.quote(post.scheduler), "--name", shlex.quote(post.worker))
    if pool.processes > 1:
        yield from ("--nworkers", str(pool.processes), "--preload-nanny", preload_nanny.__name__)
    yield from ("--nthreads 1 --nanny --death-timeout", str(DEATH_TIMEOUT))
    yield from ("--memory-limit", str(parse_bytes(pool.memory)) if pool.memory else "0")  # Slurm's own limit holds
    yield "--no-dashboard --dashboard-address 127.0.0.1:0"  # its pages would be open to the whole network
    yield from ("--resources", ",".join(f"{name}={amount}" for name, amount in pool.resources.items()))
    if profile.interface:
        yield from ("--interface", profile.interface)
    if profile.scratch:
        yield from ("--local-directory", shlex.quote(profile.scratch))
    for name, file in post.tls.items():
        yield from (f"--tls-{name}", shlex.quote(file))


@dataclass(frozen=True)
class WorkerPool:
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


def pools(profile: Cluster) -> tuple[WorkerPool, ...]:
    """The pools of a profile: the main one, and that of the scoring workers if there is one.

    A worker of the main pool offers GPU, and CPU only where nobody else does: so a scoring unit holds no GPU.

    Examples
    --------
    >>> [pool.resources for pool in pools(Cluster(kind="slurm", scoring={"workers": 4}))]
    [{'GPU': 1}, {'CPU': 1}]
    """
    main = WorkerPool(
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


def _scoring(profile: Cluster, own: config.Pool) -> WorkerPool:
    return WorkerPool(
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
