"""Collects facts from the system, Slurm and a worker; the checks judge them."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from daskmetrics.cluster._selftest import compare_clocks
from daskmetrics.cluster.slurm import _partitions, _slurm
from daskmetrics.cluster.slurm._batch import in_each_partition
from daskmetrics.cluster.slurm._partitions import Site
from daskmetrics.cluster.slurm._script import LaunchInfo, pools
from daskmetrics.config import Cluster, Config
from daskmetrics.config._checkpoints import is_hub_id, locate
from daskmetrics.core._events import is_finished, measures_nothing, records
from daskmetrics.core._files import RunFolder, cache_folder
from daskmetrics.core._machine import gpu_models, infiniband_ports, interfaces
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.execution._journal import holder, read
from daskmetrics.planning.doctor._facts import (
    FolderFacts,
    HubFacts,
    MachineFacts,
    RunHistory,
    SlurmFacts,
    SuiteFacts,
)

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
PACKAGES = ("daskmetrics", "dask", "distributed", "torch", "transformers", "numpy", "zarr")
VARIABLES = ("NCCL_", "GLOO_", "HF_", "TRANSFORMERS_", "OMP_", "MKL_", "CUDA_VISIBLE", "SLURM_", "DASKMETRICS_")
SAMPLE = 4 * 2**20  # bytes of the timed write
TIMEOUT = 20.0  # seconds for a command to answer


def machine(interface: str | None = None) -> MachineFacts:
    """The machine of this process; also run on workers."""
    query = ("--query-gpu=driver_version,memory.used,memory.total", "--format=csv,noheader,nounits")
    lines = (printed("nvidia-smi", *query) or "").splitlines()
    gpus = [line.split(", ") for line in lines if line.count(", ") == 2]
    addresses = interfaces()
    return MachineFacts(
        host=socket.gethostname(),
        versions={"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        interfaces=addresses,
        cpus=len(os.sched_getaffinity(0)),
        gpus=tuple(gpu_models()),
        gpu_driver=gpus[0][0] if gpus else None,
        gpu_used=tuple(float(used) / float(total) for _, used, total in gpus),
        infiniband=infiniband_ports(),
        verbs=any(Path("/dev/infiniband").glob("uverbs*")),
        locked=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        variables={name: value for name, value in os.environ.items() if name.startswith(VARIABLES)},
        port_problem=_port_problem(addresses.get(interface or "", ())),
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _port_problem(addresses: tuple[str, ...]) -> str | None:
    address = addresses[0] if addresses else "127.0.0.1"
    try:
        with socket.socket() as probe:
            probe.bind((address, 0))
            probe.listen()
    except OSError as error:
        return f"no port can be opened on {address}: {error.strerror}"
    return None


def printed(*words: str) -> str | None:
    """The output of a command; None if it is not installed or fails."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=TIMEOUT).stdout
    except (subprocess.SubprocessError, OSError):
        return None


def slurm(profile: Cluster) -> SlurmFacts:
    """The answers of Slurm about a profile."""
    if missing := tuple(name for name in COMMANDS if shutil.which(name) is None):
        return SlurmFacts(missing)
    try:
        site = _partitions.read_site()
        refusals = [
            each.refusal for each in in_each_partition(_slurm, profile, pools(profile)[0], LaunchInfo()).values()
        ]
    except DaskmetricsError as error:
        return SlurmFacts(problem=str(error))
    addresses, reached_by = _first_node(profile, site)
    accounts, limit = _partitions.user_accounts(), _partitions.job_limit()
    refusal = None if None in refusals else refusals[0]
    return SlurmFacts((), None, site, refusal, accounts, limit, addresses, reached_by)


def _first_node(profile: Cluster, site: Site) -> tuple[dict[str, str], str | None]:
    """Name and IP address of a node of the profile's partition, and the interface that leads to it."""
    own = [each for each in site.partitions if each.name in (profile.partition or "").split(",")] or list(
        site.partitions
    )
    hosts = next((nodes.names for each in own for nodes in each.nodes if nodes.names), "")
    with suppress(DaskmetricsError):
        if hosts:
            name, address = _partitions.first_node(hosts)
            ip = ""
            with suppress(OSError):
                ip = socket.gethostbyname(address)
            return {name: ip}, _partitions.interface_to(address)
    return {}, None


def folders(profile: Cluster, run: RunFolder) -> tuple[FolderFacts, ...]:
    """The folders that a run writes to."""
    paths = {"run": run.path, "cache": cache_folder()}
    if profile.kind == "slurm":
        paths["logs"] = Path(profile.logs)
    if profile.scratch:
        paths["scratch"] = Path(profile.scratch)
    return tuple(folder(what, path.absolute()) for what, path in paths.items())


def folder(what: str, path: Path) -> FolderFacts:
    """The facts of a folder; of one that does not exist, those of its nearest parent."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        return FolderFacts(what, path, f"{existing} is a file")
    kind = file_system(existing)
    try:
        space = os.statvfs(existing)
        with tempfile.TemporaryFile(dir=existing) as file:
            began = time.perf_counter()
            file.write(b"\0" * SAMPLE)
            file.flush()
            os.fsync(file.fileno())
            speed = SAMPLE / (time.perf_counter() - began)
    except OSError as error:
        return FolderFacts(what, path, f"is not writable ({error.strerror})", kind=kind)
    free_files = space.f_favail if space.f_files else space.f_favail or 2**40  # some file systems do not count files
    return FolderFacts(what, path, None, space.f_bavail * space.f_frsize, free_files, kind, speed)


def file_system(path: Path) -> str:
    """The kind of file system that holds a path."""
    path = path.resolve()
    mounts = sorted(psutil.disk_partitions(all=True), key=lambda mount: len(mount.mountpoint))
    return next((mount.fstype for mount in reversed(mounts) if path.is_relative_to(mount.mountpoint)), "")


def suites(config: Config | None) -> SuiteFacts | None:
    """The checkpoints of an experiment's models; digests of weights that are new or have changed are computed."""
    if config is None:
        return None
    located, problems = [], []
    for number, model in enumerate(config.models):
        if model.source:
            try:
                located.append(locate(model, number=number))
            except DaskmetricsError as error:
                problems.append(str(error))
    return SuiteFacts(tuple(located), tuple(problems))


def hub(config: Config | None, suites: SuiteFacts | None) -> HubFacts | None:
    """The model hub's cache, for the models of an experiment."""
    from huggingface_hub import constants

    if config is None or suites is None:
        return None
    required = tuple(model for model in config.models if model.source and is_hub_id(model.source))
    sources = {model.name: model.source for model in required}
    missing = [f"{sources[each.suite.model]}@{name}" for each in suites.located for name in each.to_fetch]
    home = Path(constants.HF_HUB_CACHE)
    return HubFacts(home, required, tuple(missing), constants.HF_HUB_OFFLINE, folder("hub", home).problem)


def history(run: RunFolder) -> RunHistory:
    """The journal of a run."""
    entries = tuple(read(run.journal))
    computed = tuple(record for record in records(entries) if not measures_nothing(record))
    return RunHistory(run.path, entries, computed, is_finished(entries), holder(run.lock))


def worker(
    profile: Cluster, run: RunFolder, suites: SuiteFacts | None
) -> tuple[MachineFacts, Mapping[str, str] | None]:
    """The machine of one worker, which is started by the profile and ends again, and what workers do not share.

    Of a running scheduler, all workers are asked.
    """
    from daskmetrics.cluster import connect
    from daskmetrics.experiment._clients import unseen

    folder = next(parent for parent in (run.path.absolute(), *run.path.absolute().parents) if parent.is_dir())
    places = {location.path for each in suites.located for location in each.locations} if suites else set()
    with connect(profile.model_copy(update={"workers": 1, "fewest": None, "scoring": None})) as client:
        found: dict[str, MachineFacts] = client.run(machine, profile.interface)
        address = next(iter(found))
        offset = compare_clocks(lambda: float(client.run(time.time, workers=[address])[address]))
        lacking = unseen(client, folder, sorted(path for path in places if Path(path).exists()))
    return replace(found[address], clock_problem=offset.problem), lacking
