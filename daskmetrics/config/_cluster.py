"""Where the work runs: this machine, Slurm jobs, a running scheduler, or a cluster of any class."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from daskmetrics.config.section import (
    Directive,
    DottedName,
    Line,
    Partitions,
    Section,
    SharedFolder,
    Size,
    SlurmName,
    Variable,
    Walltime,
    Word,
)

WEEK = 7 * 86400.0


def _bytes(size: str) -> int:
    from dask.utils import parse_bytes

    return int(parse_bytes(size))


class Pool(Section):
    """Workers of one kind. As `scoring` they are CPU jobs beside the main jobs, whose other settings
    hold for them, too.
    """

    workers: int = Field(2, ge=1)
    """Number of workers, or the largest number with `fewest`. If that of a run on this machine is
    left out, a small one starts one worker: less than 10 seconds of work (estimated), and no
    training.
    """
    fewest: int | None = Field(None, ge=1)
    """Smallest number of workers (Slurm). With it, the number follows the work, up to `workers`."""
    threads: int = Field(1, ge=1)
    """CPU threads per worker."""
    memory: Size | None = None
    """Memory per worker. By default no limit. Example: `16GiB`"""
    partition: Partitions | None = None
    """Slurm partition, or several: jobs go to those that accept them, and start in the first with
    room.
    Example: `gpu`
    """
    directives: tuple[Directive, ...] = ()
    """Further #SBATCH lines, without the prefix. Example: `["--constraint=a100|h100"]`"""


class Factory(Section):
    """A class that makes a cluster of Dask."""

    module: DottedName
    """Module that has the class. Example: `dask_jobqueue`"""
    class_: DottedName = Field(alias="class")
    """Class of the cluster, or a function. Example: `PBSCluster`"""
    kwargs: dict[str, Any] = Field({})
    """Its keyword arguments. Example: `{"cores": 8, "memory": "64GB", "queue": "gpu"}`"""


class Cluster(Pool):
    """Where the work runs: this machine, Slurm jobs, the present Slurm job, a running scheduler, or
    any other class.
    """

    kind: Literal["local", "slurm", "allocation", "existing", "factory"] = "local"
    """`local` for this machine, `slurm` for jobs that are submitted, `allocation` for the Slurm job
    that this process runs in, `existing` for a scheduler that is already running, `factory` for a
    cluster of any class.
    """
    max_memory: Size | None = None
    """Largest memory per worker (Slurm). With it, a job whose worker was killed for its memory is
    replaced by one with twice as much, up to this; for the scoring workers, too.
    Example: `64GiB`
    """
    address: str | None = None
    """Address of a running scheduler, or path of its scheduler file (`kind: existing`).
    Example: `tcp://10.0.0.1:8786`
    """
    factory: Factory | None = None
    """The class of the cluster (`kind: factory`), which then gets `workers` workers.
    Example: `{"module": "dask_jobqueue", "class": "PBSCluster", "kwargs": {"queue": "gpu"}}`
    """
    account: SlurmName | None = None
    """Slurm account. Example: `proj42`"""
    walltime: Walltime = "04:00:00"
    """Time limit of a job. Example: `12:00:00`"""
    gpus_per_job: int = Field(1, ge=0)
    """GPUs of a job, with one worker process for each. The number of GPUs of a node gives
    whole-node jobs; 0 gives CPU workers.
    """
    gpu_type: Word | None = None
    """Type of GPU, as in --gres=gpu:TYPE. Example: `a100`"""
    scoring: Pool | None = None
    """CPU workers beside the GPU workers. If they exist, GPU workers never score tasks.
    Example: `{"workers": 16, "partition": "cpu"}`
    """
    interface: Word | None = None
    """Network interface through which nodes reach each other. Example: `ib0`"""
    prologue: tuple[Line, ...] = ()
    """Lines of shell that run before the worker starts.
    Example: `["module load cuda", "source venv/bin/activate"]`
    """
    exports: dict[Variable, Line] = Field({})
    """Environment variables of the workers. Values are used literally.
    Example: `{"HF_HUB_OFFLINE": "1"}`
    """
    logs: SharedFolder = "slurm-logs"
    """Folder that all nodes can read and write, for job logs and certificates.
    Example: `/scratch/me/logs`
    """
    dashboard_port: int | None = Field(None, ge=1, le=65535)
    """Port of the dashboard and of /metrics, below a private path that stays the same for your
    runs. Refused if the port is taken. By default a free port and a new path.
    """
    poll_seconds: float = Field(30.0, gt=0)
    """Seconds between two looks at the queue."""
    connect_within: float = Field(300.0, gt=0)
    """Seconds within which the worker of a running job must connect."""
    arrive_within: float | None = Field(None, gt=0)
    """Seconds within which the first worker must connect. By default 600, with Slurm a week."""
    unit_minutes: float | None = Field(None, gt=0)
    """Minutes after which an attempt at a work unit is stopped."""

    driver_directives: tuple[Directive, ...] = ()
    """#SBATCH lines of the job in which `run --submit` drives a run, without the prefix. By default
    it has the account of the workers, the site's partition, 2 CPUs, 4 GiB and one day.
    Example: `["--partition=long", "--time=3-00:00:00"]`
    """

    @model_validator(mode="after")
    def _check_counts(self) -> Cluster:
        for pool in (self, self.scoring):
            if pool and pool.fewest and pool.fewest > pool.workers:
                raise ValueError(
                    f"fewest is {pool.fewest}, which is more than the {pool.workers} workers"
                )
        if self.most_memory and not (self.memory and _bytes(self.memory) <= self.most_memory):
            raise ValueError(
                f"max_memory is {self.max_memory}, so memory, with which jobs begin, must be set, "
                "to less"
            )
        if self.dashboard_port and not self.is_ours:
            raise ValueError(
                f"dashboard_port is for our own schedulers; kind is '{self.kind}', whose owner "
                "chooses it"
            )
        if self.kind == "factory" and self.factory is None:
            raise ValueError(
                "kind is 'factory': name the class, such as factory: "
                "{module: dask_cuda, class: ...}"
            )
        return self

    @property
    def is_ours(self) -> bool:
        """Whether its scheduler and its workers are ours, not those of another program or library."""
        return self.kind in ("local", "slurm", "allocation")

    @property
    def in_slurm(self) -> bool:
        """Whether its workers run in Slurm jobs."""
        return self.kind in ("slurm", "allocation")

    @property
    def timeout(self) -> float | None:
        """Seconds that an attempt at a work unit may take; None for no limit."""
        return 60 * self.unit_minutes if self.unit_minutes else None

    @property
    def most_memory(self) -> int:
        """Bytes that a worker can have after others were killed for their memory; 0 if none gets
        more than others.
        """
        if self.kind == "slurm" and self.max_memory:
            return _bytes(self.max_memory)
        return 0

    @property
    def device(self) -> str:
        """What its workers compute on: ``cpu``, or a type of GPU."""
        if self.kind == "slurm" and self.gpus_per_job:
            return self.gpu_type or "gpu"
        return "cpu"

    @property
    def patience(self) -> float:
        """Seconds that work may wait for a worker. A queue may take days, and problems in it are
        reported meanwhile.
        """
        return self.arrive_within or (WEEK if self.kind == "slurm" else 600.0)
