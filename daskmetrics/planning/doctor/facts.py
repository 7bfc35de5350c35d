"""The facts that checks read, and how they are collected from the system, Slurm and the files of a
run.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from math import fsum
from pathlib import Path
from statistics import median

import psutil
import yaml

from daskmetrics import config as configuration
from daskmetrics.checkpoints.locations import LocatedSuite, locate
from daskmetrics.cluster.slurm import partitions
from daskmetrics.cluster.slurm.commands import require
from daskmetrics.cluster.slurm.refusals import Refusal, refusal
from daskmetrics.cluster.slurm.script import LaunchInfo
from daskmetrics.config import Cluster, Config
from daskmetrics.core.errors import ConfigError, DaskmetricsError, did_you_mean
from daskmetrics.core.files import RUNS, RunFolder, cache_folder, require_regular, run_names
from daskmetrics.core.machine import gpu_models, infiniband_ports, interfaces
from daskmetrics.domain.events import Event, WorkerJoined, measures_nothing, records
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
VARIABLES = ("NCCL_", "GLOO_", "CUDA_VISIBLE", "SLURM_")  # their beginnings
SAMPLE = 4 * 2**20  # bytes of a trial write; a quota or a full disk refuses some
TIMEOUT = 20.0  # seconds for a command to answer
ENOUGH = 5  # the smallest number of units by which a node is judged
LOCAL_CLUSTER = Cluster()


@dataclass(frozen=True)
class MachineFacts:
    """This machine, as seen by one of its processes."""

    host: str
    # IPv4 addresses by interface; an interface that is down has none
    interfaces: Mapping[str, tuple[str, ...]]
    cpus: int  # CPUs that the process may use
    gpus: tuple[str, ...] = ()  # models of the GPUs that the NVIDIA driver lists
    gpu_driver: str | None = None
    torch: str = ""  # its version with the build, such as ``2.6.0+cu126``
    gpu_used: tuple[float, ...] = ()  # used share of each GPU's memory
    # state, rate and link of each port of InfiniBand, such as mlx5_0:1
    infiniband: Mapping[str, str] = field(default_factory=dict)
    verbs: bool = True  # whether a process sees the devices through which InfiniBand is used
    locked: int = -1  # bytes of memory that a process may lock; -1 for no limit
    files: int = 1024  # files that a process may have open
    # the environment variables that checks read
    variables: Mapping[str, str] = field(default_factory=dict)


def this_machine() -> MachineFacts:
    """The facts of the machine of this process."""
    query = ("--query-gpu=driver_version,memory.used,memory.total", "--format=csv,noheader,nounits")
    printed = ""
    with suppress(subprocess.SubprocessError, OSError):  # there is no driver
        printed = subprocess.check_output(
            ["nvidia-smi", *query], stdin=subprocess.DEVNULL, text=True, timeout=TIMEOUT
        )
    gpus = [line.split(", ") for line in printed.splitlines() if line.count(", ") == 2]
    return MachineFacts(
        host=socket.gethostname(),
        torch=version("torch"),
        interfaces=interfaces(),
        cpus=len(os.sched_getaffinity(0)),
        gpus=tuple(gpu_models()),
        gpu_driver=gpus[0][0] if gpus else None,
        gpu_used=tuple(float(used) / float(total) for _, used, total in gpus),
        infiniband=infiniband_ports(),
        verbs=any(Path("/dev/infiniband").glob("uverbs*")),
        locked=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        variables={name: value for name, value in os.environ.items() if name.startswith(VARIABLES)},
    )


@dataclass(frozen=True)
class SlurmFacts:
    """The answers of Slurm about a profile."""

    problem: str | None = None  # why Slurm does not answer, or which command is not installed
    refused: Refusal | None = None  # what it would refuse of the profile's jobs
    # whether each partition of the profile is up: Slurm takes jobs for one that is not
    partitions: Mapping[str, bool] = field(default_factory=dict)
    max_jobs: int | None = None  # the smallest limit on the user's submitted jobs
    cpus_per_gpu: float | None = None  # of the node with the fewest
    reached_by: str | None = None  # interface of this machine that leads to the nodes


def slurm_facts(profile: Cluster) -> SlurmFacts:
    """The answers of Slurm about a profile."""
    try:
        for name in COMMANDS:
            require(name)
        site = partitions.read_partitions()
        refused = _refused(profile)
    except DaskmetricsError as error:
        return SlurmFacts(str(error))
    chosen = [*filter(None, partitions.requested(profile, site).values())]
    nodes = [node for partition in chosen or site for node in partition.nodes]
    shares = [node.cpus / sum(node.gpus.values()) for node in nodes if node.gpus]
    reached_by = None
    with suppress(DaskmetricsError, IndexError):
        reached_by = partitions.interface_to(nodes[0].name)
    return SlurmFacts(
        refused=refused,
        partitions={partition.name: partition.up for partition in chosen},
        max_jobs=partitions.job_limit(),
        cpus_per_gpu=min(shares, default=None),
        reached_by=reached_by,
    )


def _refused(profile: Cluster) -> Refusal | None:
    try:
        return refusal(profile, LaunchInfo())
    except ConfigError as error:  # of a folder that no script can name
        return Refusal(str(error), "--set cluster.logs=FOLDER")


@dataclass(frozen=True)
class FolderFacts:
    """A folder that a run writes to."""

    what: str  # ``run``, ``cache``, ``logs``, ``scratch``
    path: Path
    problem: str | None = None  # why it is not writable
    free: int = 0  # free space in bytes
    free_files: int = 0  # number of files that can still be created
    kind: str = ""  # file system, such as ``nfs4``


def folders(profile: Cluster, run: RunFolder) -> tuple[FolderFacts, ...]:
    """The folders that a run writes to."""
    paths = {"run": run.path, "cache": cache_folder()}
    if profile.kind == "slurm":
        paths["logs"] = Path(profile.logs)
    if scratch := profile.exports.get("DASK_TEMPORARY_DIRECTORY"):
        paths["scratch"] = Path(scratch)
    return tuple(folder(purpose, path.absolute()) for purpose, path in paths.items())


def folder(what: str, path: Path) -> FolderFacts:
    """The facts of a folder.

    Of one that does not exist, those of its nearest parent.
    """
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        return FolderFacts(what, path, f"{existing} is a file")
    kind = file_system(existing)
    try:
        space = os.statvfs(existing)
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\0" * SAMPLE)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return FolderFacts(what, path, f"is not writable ({error.strerror})", kind=kind)
    # some file systems do not count files
    free_files = space.f_favail
    if not space.f_files:
        free_files = 2**40
    return FolderFacts(what, path, None, space.f_bavail * space.f_frsize, free_files, kind)


def file_system(path: Path) -> str:
    """The kind of file system that holds a path."""
    path = path.resolve()
    mounts = psutil.disk_partitions(all=True)
    holding = [mount for mount in mounts if path.is_relative_to(mount.mountpoint)]
    nearest = max(holding, key=lambda mount: len(mount.mountpoint), default=None)
    return nearest.fstype if nearest else ""


@dataclass(frozen=True)
class ModelFacts:
    """The checkpoints of an experiment's given models, and the hub's cache."""

    located: tuple[LocatedSuite, ...] = ()
    problems: tuple[str, ...] = ()  # why models cannot be found
    hub: FolderFacts = FolderFacts("hub", Path("/"))
    missing: tuple[str, ...] = ()  # checkpoints that are to be downloaded, as MODEL@REVISION
    offline: bool = False


def models(config: Config) -> ModelFacts:
    """The checkpoints of an experiment's models.

    Digests of weights that are new or have changed are computed.
    """
    from huggingface_hub import constants

    located = []
    problems = []
    missing: list[str] = []
    for model in config.models:
        if not model.source:
            continue
        try:
            suite = locate(model)
        except DaskmetricsError as error:
            problems.append(str(error))
            continue
        located.append(suite)
        # those that the run does not download itself when it needs them
        missing += [
            f"{model.source}@{location.revision}"
            for location in suite.locations
            if location.is_missing and not location.rolling
        ]
    return ModelFacts(
        tuple(located),
        tuple(problems),
        folder("hub", Path(constants.HF_HUB_CACHE)),
        tuple(missing),
        constants.HF_HUB_OFFLINE,
    )


@dataclass(frozen=True)
class RunHistory:
    """The journal of a run."""

    folder: Path
    entries: tuple[Event, ...]
    records: tuple[Record, ...]

    @property
    def paces(self) -> dict[str, float]:
        """How slow each host is, compared with the others.

        The median of its units' seconds over the median of the same model's units on other hosts;
        of several models the median. Empty if no two hosts can be compared.
        """
        import pandas

        workers = [entry for entry in self.entries if isinstance(entry, WorkerJoined)]
        hosts = {worker.name: worker.host for worker in workers}
        rows = []
        for record in self.records:
            if record.ok and record.kind != "train" and record.worker in hosts:
                model = record.name.partition("@")[0]
                rows.append((record.kind, model, hosts[record.worker], record.seconds))
        frame = pandas.DataFrame(rows, columns=["kind", "model", "host", "seconds"])
        ratios: dict[str, list[float]] = defaultdict(list)
        for _, units in frame.groupby(["kind", "model"]):
            for host, inside in units.groupby("host")["seconds"]:
                outside = units["seconds"][units["host"] != host]
                if min(len(inside), len(outside)) >= ENOUGH and outside.median() > 0:
                    ratios[str(host)].append(inside.median() / outside.median())
        return {host: median(of_models) for host, of_models in ratios.items()}

    @property
    def busy(self) -> float | None:
        """The share of an uninterrupted run's time that its workers computed."""
        from daskmetrics.answer.status import worker_use

        workers = {entry.name for entry in self.entries if isinstance(entry, WorkerJoined)}
        known = worker_use(self.entries, self.records)["busy"].dropna()
        if known.empty or not workers:
            return None
        # a worker that joined and got no unit was not busy
        return fsum(known) / len(workers)


def history(run: RunFolder) -> RunHistory:
    """The journal of a run."""
    entries = tuple(read(run.journal))
    computed = tuple(record for record in records(entries) if not measures_nothing(record))
    return RunHistory(run.path, entries, computed)


@dataclass(frozen=True)
class Facts:
    """Everything that checks read; None for what was not collected."""

    profile: Cluster
    here: MachineFacts
    slurm: SlurmFacts | None = None
    folders: tuple[FolderFacts, ...] = ()
    environment: FolderFacts | None = None  # of Python
    models: ModelFacts | None = None
    history: RunHistory | None = None

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables of this machine's workers that checks read."""
        return {**self.here.variables, **self.profile.exports}


def collect(subject: str) -> Facts:
    """The facts about a run, an experiment's YAML, or a profile.

    A profile is given by its name or file.
    """
    path = Path(subject)
    run = RunFolder(path)
    if run.journal.is_file():
        return replace(_facts(run, _experiment(run.config)), history=history(run))
    if path.is_dir():
        run.must_exist()
    if config := _experiment(path):
        return _facts(RunFolder(RUNS / config.name), config)
    try:
        return _facts(RunFolder(RUNS), None, configuration.cluster(subject))
    except ConfigError as error:
        names = run_names(RUNS)
        if subject in names:
            return collect(str(RUNS / subject))
        if not names or path.suffix:
            raise
        raise ConfigError(
            f"{error}{did_you_mean(subject, names)} Runs in '{RUNS}': {', '.join(names)}."
        ) from None


def _facts(run: RunFolder, config: Config | None, profile: Cluster = LOCAL_CLUSTER) -> Facts:
    if config:
        profile = config.cluster
    prefix = Path(sys.prefix)
    return Facts(
        profile,
        this_machine(),
        slurm_facts(profile) if profile.kind == "slurm" else None,
        folders(profile, run),
        FolderFacts("environment", prefix, kind=file_system(prefix)),
        models(config) if config else None,
    )


def _experiment(path: Path) -> Config | None:
    if not path.is_file():
        return None
    require_regular(path)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"'{path}' cannot be read as YAML: {error}") from None
    if isinstance(data, Mapping) and "models" in data:
        return configuration.load(path)
    return None
