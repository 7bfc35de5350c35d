"""What checks look at: frozen facts of a machine, a Slurm, folders, a model hub's cache and a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from daskmetrics.cluster.slurm._partitions import Site
from daskmetrics.config import Cluster, Model
from daskmetrics.execution import Record
from daskmetrics.execution._journal import Entry


@dataclass(frozen=True)
class Machine:
    """A machine as one of its processes sees it.

    Attributes
    ----------
    host : str
    versions : mapping
        Of Python and of packages; ``none`` for one that is lacking.
    interfaces : mapping of str to tuple of str
        IPv4 addresses by name; of an interface that is down, none.
    cpus : int
        That the process may use.
    gpus : tuple of str
        That the NVIDIA driver knows.
    gpu_driver : str or None
    gpu_used : tuple of float
        Share of each GPU's memory that is taken.
    infiniband : bool
    files : int
        That a process may have open.
    variables : mapping
        Of the environment, those that matter here.
    port_problem : str or None
        Why no port could be opened for the network.
    """

    host: str
    versions: Mapping[str, str]
    interfaces: Mapping[str, tuple[str, ...]]
    cpus: int
    gpus: tuple[str, ...] = ()
    gpu_driver: str | None = None
    gpu_used: tuple[float, ...] = ()
    infiniband: bool = False
    files: int = 1024
    variables: Mapping[str, str] = field(default_factory=dict)
    port_problem: str | None = None


@dataclass(frozen=True)
class Slurm:
    """What Slurm's commands say, as far as they answer.

    Attributes
    ----------
    lacking : tuple of str
        Commands that are not there.
    problem : str or None
        Why Slurm does not answer.
    site : Site or None
    refusal : str or None
        Why Slurm would not take the profile's jobs.
    accounts : tuple of str or None
        The user's own, or None where there is no accounting.
    max_jobs : int or None
        The least of the limits on submitted jobs that hold for the user.
    addresses : mapping of str to str
        Address of one node per kind, by its name; empty text if the name cannot be resolved.
    reached_by : str or None
        Interface of this machine that leads to the nodes.
    """

    lacking: tuple[str, ...] = ()
    problem: str | None = None
    site: Site | None = None
    refusal: str | None = None
    accounts: tuple[str, ...] | None = None
    max_jobs: int | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    reached_by: str | None = None


@dataclass(frozen=True)
class Folder:
    """A folder that is written to.

    Attributes
    ----------
    what : str
        ``run``, ``cache``, ``logs``, ``scratch``.
    path : Path
    problem : str or None
        Why it cannot be written.
    free : int
        Bytes.
    free_files : int
        Entries that can still be made.
    kind : str
        File system, such as ``nfs4``.
    speed : float or None
        Bytes per second of a small write that waits for the disk.
    """

    what: str
    path: Path
    problem: str | None = None
    free: int = 0
    free_files: int = 0
    kind: str = ""
    speed: float | None = None


@dataclass(frozen=True)
class Hub:
    """The model hub's cache: repositories that are wanted, those that are not there, and whether it may be asked."""

    home: Path
    wanted: tuple[Model, ...] = ()
    missing: tuple[str, ...] = ()
    offline: bool = False
    problem: str | None = None


@dataclass(frozen=True)
class History:
    """What the journal of a run holds, and whether someone drives it."""

    folder: Path
    entries: tuple[Entry, ...]
    records: tuple[Record, ...]
    finished: bool
    driver: str | None


@dataclass(frozen=True)
class Facts:
    """Everything that was found out; None where it was not asked."""

    profile: Cluster
    here: Machine
    slurm: Slurm | None = None
    worker: Machine | None = None
    folders: tuple[Folder, ...] = ()
    needed: int = 0
    quota: str | None = None
    prefix: Path = Path("/")
    prefix_kind: str = ""
    hub: Hub | None = None
    history: History | None = None
