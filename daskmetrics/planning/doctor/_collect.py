"""The thin shell that finds facts out: it asks the system, Slurm and a worker, and decides nothing."""

from __future__ import annotations

import fcntl
import os
import platform
import resource
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from daskmetrics.cluster.slurm import _commands as commands
from daskmetrics.cluster.slurm import _partitions as partitions
from daskmetrics.cluster.slurm._partitions import Site
from daskmetrics.cluster.slurm._script import script
from daskmetrics.config import Cluster, Config
from daskmetrics.core._files import RunFolder, cache_folder
from daskmetrics.core._gpus import gpu_models
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.execution._journal import holder, read, records, standing
from daskmetrics.planning.doctor._facts import Folder, History, Hub, Machine, Slurm

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
PACKAGES = ("daskmetrics", "dask", "distributed", "torch", "transformers", "numpy", "zarr")
VARIABLES = ("NCCL_", "GLOO_", "HF_", "TRANSFORMERS_", "OMP_", "MKL_", "CUDA_VISIBLE", "SLURM_", "DASKMETRICS_")
SAMPLE = 4 * 2**20  # bytes of the write that is timed
SIOCGIFADDR = 0x8915  # of Linux: the address of an interface
WITHIN = 20.0


def machine(named: str | None = None) -> Machine:
    """The machine of this process; also run on workers."""
    driver, used = _nvidia()
    return Machine(
        host=socket.gethostname(),
        versions={"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        interfaces=(there := interfaces()),
        cpus=len(os.sched_getaffinity(0)),
        gpus=tuple(gpu_models()),
        gpu_driver=driver,
        gpu_used=used,
        infiniband=any(Path("/sys/class/infiniband").glob("*")),
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        variables={name: value for name, value in os.environ.items() if name.startswith(VARIABLES)},
        port_problem=_port_problem(there.get(named or "", ())),
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def interfaces() -> Mapping[str, tuple[str, ...]]:
    """IPv4 addresses of this machine by interface."""
    found: dict[str, tuple[str, ...]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asked, SIOCGIFADDR, request)
                found[name] = (socket.inet_ntoa(answer[20:24]),)
            except OSError:  # it has no address
                found[name] = ()
    return found


def _port_problem(addresses: tuple[str, ...]) -> str | None:
    try:
        with socket.socket() as probe:
            probe.bind((addresses[0] if addresses else "127.0.0.1", 0))
            probe.listen()
    except OSError as error:
        return f"no port can be opened on {addresses[0] if addresses else 'loopback'}: {error.strerror}"
    return None


def _nvidia() -> tuple[str | None, tuple[float, ...]]:
    """Version of the driver, and the share of each GPU's memory that is taken."""
    text = _printed(
        "nvidia-smi", "--query-gpu=driver_version,memory.used,memory.total", "--format=csv,noheader,nounits"
    )
    rows = [line.split(", ") for line in (text or "").splitlines() if line.count(", ") == 2]
    return (rows[0][0] if rows else None), tuple(float(used) / float(total) for _, used, total in rows)


def _printed(*words: str) -> str | None:
    """What a command prints; None if it is not there or fails."""
    if shutil.which(words[0]) is None:
        return None
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=WITHIN)
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout


def slurm(profile: Cluster) -> Slurm:
    """What Slurm says of the profile, as far as it says anything."""
    lacking = tuple(name for name in COMMANDS if shutil.which(name) is None)
    if lacking:
        return Slurm(lacking)
    try:
        site = partitions.read_site()
        refusal = commands.rehearse(script(profile)).refusal
    except DaskmetricsError as error:
        return Slurm(problem=str(error))
    addresses, reached_by = _first_node(profile, site)
    accounts, limit = partitions.user_accounts(), partitions.job_limit()
    return Slurm((), None, site, refusal, accounts, limit, addresses, reached_by)


def _first_node(profile: Cluster, site: Site) -> tuple[dict[str, str], str | None]:
    """Name and IP address of a node of the profile's partition, and the interface that leads to it."""
    own = [each for each in site.partitions if each.name == profile.partition] or list(site.partitions)
    hosts = next((nodes.names for each in own for nodes in each.nodes if nodes.names), "")
    with suppress(DaskmetricsError):
        if hosts:
            name, address = partitions.first_node(hosts)
            try:
                ip = socket.gethostbyname(address)
            except OSError:
                ip = ""
            return {name: ip}, partitions.interface_to(address)
    return {}, None


def folders(profile: Cluster, run: RunFolder) -> tuple[Folder, ...]:
    """The folders that a run writes to."""
    wanted = {"run": run.path, "cache": cache_folder()}
    if profile.kind == "slurm":
        wanted["logs"] = Path(profile.logs)
    if profile.scratch:
        wanted["scratch"] = Path(profile.scratch)
    return tuple(folder(what, path.absolute()) for what, path in wanted.items())


def folder(what: str, path: Path) -> Folder:
    """A folder as it is, or as it would be if it were made."""
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    if not there.is_dir():
        return Folder(what, path, f"{there} is a file")
    kind = file_system(there)
    try:
        room = os.statvfs(there)
        speed = _speed(there)
    except OSError as error:
        return Folder(what, path, f"cannot be written ({error.strerror})", kind=kind)
    free_files = room.f_favail or 2**40 if not room.f_files else room.f_favail  # some file systems do not count them
    return Folder(what, path, None, room.f_bavail * room.f_frsize, free_files, kind, speed)


def _speed(place: Path) -> float:
    with tempfile.TemporaryFile(dir=place) as file:
        began = time.perf_counter()
        file.write(b"\0" * SAMPLE)
        file.flush()
        os.fsync(file.fileno())
        return SAMPLE / (time.perf_counter() - began)


def file_system(path: Path) -> str:
    """The kind of file system that a path lies on."""
    best, kind = "", ""
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, found, *_ = line.split()
        mount = mount.encode().decode("unicode_escape")
        if path.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def quota() -> str | None:
    """What ``quota`` prints, where there is one."""
    return _printed("quota", "-w")


def hub(config: Config | None) -> Hub | None:
    """The model hub's cache, for the models of an experiment."""
    from huggingface_hub import constants, try_to_load_from_cache

    if config is None:
        return None
    wanted = tuple(model for model in config.models if model.source and not Path(model.source).expanduser().exists())
    missing = []
    for model in wanted:
        assert model.source is not None
        revision = "main" if isinstance(model.revisions, str) else model.revisions[0]
        known = (
            [revision] if isinstance(model.revisions, tuple) or model.revisions == "all" else _first(model.revisions)
        )
        missing += [
            f"{model.source}@{name}"
            for name in known
            if not isinstance(try_to_load_from_cache(model.source, "config.json", revision=name), str)
        ]
    home = Path(constants.HF_HUB_CACHE)
    problem = folder("hub", home).problem
    return Hub(home, wanted, tuple(missing), constants.HF_HUB_OFFLINE, problem)


def _first(revisions: str) -> list[str]:
    """The first revision of a range; the others are checked by `run --dry-run`."""
    words = revisions.split()
    return [f"step{words[1]}"] if words[0] == "every" and len(words) > 1 else ["step0"]


def history(run: RunFolder) -> History:
    """A run by its journal."""
    entries = tuple(read(run.journal))
    finished = any(entry["type"] == "finished" for entry in standing(entries))
    return History(run.path, entries, tuple(records(entries)), finished, holder(run.lock))


def worker(profile: Cluster) -> Machine:
    """The machine of one worker, which is started as the profile says and ends again."""
    from daskmetrics.cluster import connect

    with connect(profile.model_copy(update={"workers": 1, "fewest": None, "scoring": None})) as client:
        told: list[Machine] = list(client.run(machine, profile.interface).values())
    return told[0]
