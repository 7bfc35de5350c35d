"""What a check reads (facts about machines, Slurm, folders, the hub's cache, a run) and what it returns (a finding)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path

from daskmetrics.cluster.slurm._partitions import Site
from daskmetrics.config import Cluster, Model
from daskmetrics.config._checkpoints import LocatedSuite
from daskmetrics.core._events import Event, Record


@dataclass(frozen=True)
class MachineFacts:
    """A machine, as seen by one of its processes."""

    host: str
    versions: Mapping[str, str]  # of Python and of packages; ``none`` for one that is not installed
    interfaces: Mapping[str, tuple[str, ...]]  # IPv4 addresses by interface; an interface that is down has none
    cpus: int  # CPUs that the process may use
    gpus: tuple[str, ...] = ()  # models of the GPUs that the NVIDIA driver lists
    gpu_driver: str | None = None
    gpu_used: tuple[float, ...] = ()  # used share of each GPU's memory
    infiniband: Mapping[str, str] = field(default_factory=dict)  # state, rate and link of each port, such as mlx5_0:1
    verbs: bool = True  # whether a process sees the devices through which InfiniBand is used
    locked: int = -1  # bytes of memory that a process may lock; -1 for no limit
    files: int = 1024  # files that a process may have open
    variables: Mapping[str, str] = field(default_factory=dict)  # the environment variables that checks read
    port_problem: str | None = None  # why no network port can be opened
    clock_problem: str | None = None  # how far its clock is from this machine's, if it is far


@dataclass(frozen=True)
class SlurmFacts:
    """The answers of Slurm's commands."""

    missing: tuple[str, ...] = ()  # commands that are not installed
    problem: str | None = None  # why Slurm does not answer
    site: Site | None = None
    refusal: str | None = None  # why Slurm would refuse the profile's jobs
    accounts: tuple[str, ...] | None = None  # the user's accounts, or None where there is no accounting
    max_jobs: int | None = None  # the smallest limit on the user's submitted jobs
    # IP address of a node, by its name; empty if the name cannot be resolved
    addresses: Mapping[str, str] = field(default_factory=dict)
    reached_by: str | None = None  # interface of this machine that leads to the nodes


@dataclass(frozen=True)
class FolderFacts:
    """A folder that a run writes to."""

    what: str  # ``run``, ``cache``, ``logs``, ``scratch``
    path: Path
    problem: str | None = None  # why it is not writable
    free: int = 0  # free space in bytes
    free_files: int = 0  # number of files that can still be created
    kind: str = ""  # file system, such as ``nfs4``
    speed: float | None = None  # bytes per second of a small synchronous write


@dataclass(frozen=True)
class HubFacts:
    """The model hub's cache: the required models, those that are missing, and whether the hub is offline."""

    home: Path
    required: tuple[Model, ...] = ()
    missing: tuple[str, ...] = ()
    offline: bool = False
    problem: str | None = None


@dataclass(frozen=True)
class SuiteFacts:
    """The checkpoints of an experiment's models that are not trained by it, or why they cannot be found."""

    located: tuple[LocatedSuite, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunHistory:
    """The journal of a run, and the process that drives it."""

    folder: Path
    entries: tuple[Event, ...]
    records: tuple[Record, ...]
    finished: bool
    driver: str | None


@dataclass(frozen=True)
class Facts:
    """Everything that checks read; None for what was not collected."""

    profile: Cluster
    here: MachineFacts
    slurm: SlurmFacts | None = None
    worker: MachineFacts | None = None
    unseen: Mapping[str, str] | None = None  # for each worker that lacks one, the first folder that it does not share
    folders: tuple[FolderFacts, ...] = ()
    quota: str | None = None
    prefix: Path = Path("/")
    prefix_kind: str = ""
    hub: HubFacts | None = None
    suites: SuiteFacts | None = None
    history: RunHistory | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of the ranks of a training


class Severity(Enum):
    """How serious a finding is."""

    GOOD = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True)
class Finding:
    """The result of a check, with a remedy unless all is well."""

    severity: Severity
    message: str
    remedy: str = ""


Check = Callable[[Facts], Finding | None]  # returns None where the check does not apply, or the facts are unknown

good = partial(Finding, Severity.GOOD)  # all is well
warning = partial(Finding, Severity.WARNING)  # a run works, but slowly or unreliably
failure = partial(Finding, Severity.FAILURE)  # a run will fail
