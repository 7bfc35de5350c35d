"""Checks of this machine: network, Python, threads, GPUs, folders, the model hub's cache and the
checkpoints in both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain

from daskmetrics.core.events import WorkerJoined
from daskmetrics.core.text import plural, shortened, size_text
from daskmetrics.planning.doctor.facts import (
    Facts,
    Finding,
    failure,
    good,
    warning,
)

OLDEST = (3, 11)  # Python
FILES_PER_WORKER = 20
# the oldest driver of each CUDA version that torch is built for
CUDA_DRIVERS = {"12": 525, "13": 580}
# file systems that no other machine sees
LOCAL = frozenset({"ext4", "ext3", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "ramfs"})
LOCKED = 2**30  # bytes; NCCL locks the memory of its buffers
LEAST_SPACE = 1e9
LEAST_FILES = 10_000  # each chunk is a file
REMEDIES = {
    "run": "choose another one: --folder, on a file system with free space that you can write to",
    "cache": "export DASKMETRICS_CACHE=FOLDER, one that you can write to",
    "logs": "--set cluster.logs=FOLDER, one that you can write to and that nodes share",
    "scratch": "--set cluster.scratch=FOLDER, one that exists on the nodes and that you can write to",
}


def interface(facts: Facts) -> Finding | None:
    """The profile's network interface is up and leads to the nodes."""
    name = facts.profile.interface
    interfaces = facts.here.interfaces
    slurm = facts.slurm
    reached_by = slurm.reached_by if slurm else None
    remedy = f"--set cluster.interface={reached_by or 'NAME'}"
    if name and not interfaces.get(name):
        up = ", ".join(other for other, addresses in interfaces.items() if addresses)
        return failure(f"{facts.here.host} has no interface {name} that is up, but {up}", remedy)
    if slurm is None or reached_by is None:
        return good(f"{name} is up") if name else None
    if name == "lo" and slurm.remote:
        return failure(f"{reached_by} leads to the nodes, lo does not", remedy)
    if name and name != reached_by and (name != "lo" or slurm.remote):
        return warning(f"{reached_by} leads to the nodes, but the profile names {name}", remedy)
    if name is None and slurm.remote and len(interfaces.keys() - {"lo"}) > 1:
        message = "there are several networks, and the profile names no interface"
        return warning(message, f"{remedy}, if jobs cannot connect to the scheduler")
    return good(f"{reached_by} leads to the nodes")


def open_files(facts: Facts) -> Finding | None:
    """The scheduler may open a connection to every worker."""
    workers = facts.profile.workers
    needed = 200 + FILES_PER_WORKER * workers
    if facts.here.files < needed:
        message = f"a process may open {facts.here.files} files, {workers} workers need {needed}"
        return warning(message, f"ulimit -n {needed}")
    return good(f"a process may open {facts.here.files:,} files")


def nccl_interface(facts: Facts) -> Finding | None:
    """The interfaces that NCCL and Gloo should use exist."""
    interfaces = facts.here.interfaces
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = _variable(facts, name)
        if value.startswith("^"):  # names the interfaces to avoid
            continue
        prefixes = [prefix for prefix in value.removeprefix("=").split(",") if prefix]
        for prefix in prefixes:
            if not any(existing.startswith(prefix) for existing in interfaces):
                message = f"{name}={value}, but {facts.here.host} has {', '.join(interfaces)}"
                return failure(message, f"unset {name}, or name one of these")
    return good("the interfaces of NCCL and Gloo exist, if any are set")


def _variable(facts: Facts, name: str) -> str:
    variables = {**facts.here.variables, **facts.profile.exports}
    return str(variables.get(name, ""))


def infiniband(facts: Facts) -> Finding | None:
    """NCCL can use InfiniBand on a machine that has it; otherwise it falls back to sockets, without
    an error.
    """
    machine = facts.here
    if not machine.infiniband:
        if not machine.gpus:
            return None
        return good("no InfiniBand: NCCL connects nodes by sockets")
    reasons = _socket_reasons(facts)
    if reasons:
        problems = "; ".join(reasons)
        remedies = "; ".join(reasons.values())
        return warning(
            f"{machine.host}: NCCL would fall back to sockets: {problems}",
            f"{remedies}. Training across nodes is slow without InfiniBand",
        )
    ports = "; ".join(f"{port} {state}" for port, state in machine.infiniband.items())
    return good(f"NCCL can use InfiniBand: {ports}")


def _socket_reasons(facts: Facts) -> dict[str, str]:
    """Why NCCL would not use the InfiniBand of this machine, each with its remedy."""
    machine = facts.here
    reasons = {}
    if _variable(facts, "NCCL_IB_DISABLE") not in ("", "0"):
        reasons["NCCL_IB_DISABLE is set"] = "unset NCCL_IB_DISABLE"
    if _variable(facts, "NCCL_NET").lower() == "socket":
        reasons["NCCL_NET=Socket"] = "unset NCCL_NET"
    chosen = _variable(facts, "NCCL_IB_HCA")
    ports = {port: state for port, state in machine.infiniband.items() if _is_chosen(port, chosen)}
    states = "; ".join(f"{port} {state}" for port, state in ports.items())
    if not ports:
        names = ", ".join(machine.infiniband)
        reasons[f"NCCL_IB_HCA={chosen} names none of {names}"] = "unset NCCL_IB_HCA"
    elif not any(state.startswith("ACTIVE") for state in ports.values()):
        reasons[f"no port is active ({states})"] = "ask the site's support; see: ibstat"
    if not machine.verbs:
        remedy = "start the container or job with /dev/infiniband"
        reasons["/dev/infiniband is not visible"] = remedy
    if 0 <= machine.locked < LOCKED:
        remedy = "ulimit -l unlimited, or in slurmd: LimitMEMLOCK=infinity"
        reasons[f"a process may lock only {size_text(machine.locked)} of memory"] = remedy
    return reasons


def _is_chosen(port: str, value: str) -> bool:
    """Whether a value of NCCL_IB_HCA, such as ``mlx5``, ``=mlx5_0:1`` or ``^mlx5_1``, chooses a
    port.

    >>> [_is_chosen("mlx5_0:1", value) for value in ("", "mlx5", "=mlx5_0", "^mlx5_0", "mlx5_2:1")]
    [True, True, True, False, False]
    """
    excludes = value.startswith("^")
    exact = value.lstrip("^").startswith("=")
    names = [name for name in value.lstrip("^=").split(",") if name]
    device = port.partition(":")[0]
    named = any(name in (port, device) or (not exact and device.startswith(name)) for name in names)
    return not names or named is not excludes


def python(facts: Facts) -> Finding | None:
    """Python and the required packages are installed."""
    versions = facts.here.versions
    missing = [name for name, version in versions.items() if version == "none"]
    if tuple(map(int, versions["python"].split(".")[:2])) < OLDEST:
        remedy = f"make an environment with Python {OLDEST[0]}.{OLDEST[1]} or later"
        return failure(f"Python {versions['python']}", remedy)
    if missing:
        remedy = "pip install daskmetrics in this environment"
        return failure(f"not installed: {', '.join(missing)}", remedy)
    return good(", ".join(f"{name} {version}" for name, version in versions.items()))


def same_versions(facts: Facts) -> Finding | None:
    """The workers of a run have the driver's versions."""
    if facts.history is None:
        return None
    workers = [entry for entry in facts.history.entries if isinstance(entry, WorkerJoined)]
    if not workers:
        return None
    for worker in workers:
        differing = skew(facts.here.versions, worker.versions)
        if differing:
            versions = "; ".join(
                f"{name} {theirs} there, {ours} here" for name, (ours, theirs) in differing.items()
            )
            remedy = "start workers from this environment, or from one with the same packages"
            return failure(f"worker {worker.name}: {versions}", remedy)
    return good("workers have the versions of this machine")


def skew(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Versions that differ, ours and theirs; patch releases of Python and builds of a package count
    as the same.

    >>> skew({"python": "3.11.2", "torch": "2.6+cpu"}, {"python": "3.12.1", "torch": "2.6+cu126"})
    {'python': ('3.11.2', '3.12.1')}
    """

    def plain(name: str, version: str) -> str:
        if name == "python":
            return ".".join(version.split(".")[:2])
        return version.partition("+")[0]

    return {
        name: (version, theirs[name])
        for name, version in ours.items()
        if name in theirs and plain(name, version) != plain(name, theirs[name])
    }


def environment_is_shared(facts: Facts) -> Finding | None:
    """Nodes see the driver's Python environment."""
    if facts.slurm is None:
        return None
    if facts.prefix_kind in LOCAL:
        message = f"Python is in {facts.prefix}, on a local disk of this machine"
        remedy = "try it on a node: daskmetrics cluster test; or install on a shared file system"
        return warning(f"{message} ({facts.prefix_kind})", remedy)
    return good(f"Python is in {facts.prefix} ({facts.prefix_kind})")


def threads(facts: Facts) -> Finding | None:
    """Local workers together have no more threads than the machine has CPUs."""
    profile = facts.profile
    if profile.kind == "local" and profile.threads * profile.workers > facts.here.cpus:
        threads = plural(profile.threads, "thread")
        message = f"{profile.workers} workers with {threads} on {facts.here.cpus} CPUs"
        return warning(message, f"--workers {max(1, facts.here.cpus // profile.threads)}")
    return good(f"{profile.threads} per worker")


def gpu_driver(facts: Facts) -> Finding | None:
    """The NVIDIA driver is new enough for this build of torch."""
    machine = facts.here
    if not machine.gpus:
        return None
    torch = machine.versions.get("torch", "")
    build = re.search(r"\+cu(\d{2})", torch)
    if build is None and "+cpu" in torch:
        message = "this build of torch has no CUDA, but there are GPUs"
        return failure(message, "install a build of torch with CUDA")
    oldest = CUDA_DRIVERS.get(build[1], 0) if build else 0
    if machine.gpu_driver and float(machine.gpu_driver.split(".")[0]) < oldest:
        message = f"driver {machine.gpu_driver}, but torch needs {oldest} or later"
        return failure(message, "a build of torch for an older CUDA, or a newer driver")
    return good(f"driver {machine.gpu_driver or 'of unknown version'}")


def gpu_memory(facts: Facts) -> Finding | None:
    """No other process uses the GPUs' memory."""
    shares = facts.here.gpu_used
    if not shares:
        return None
    busy = [f"GPU {number}: {share:.0%}" for number, share in enumerate(shares) if share > 0.1]
    if busy:
        remedy = "see: nvidia-smi; other users' processes, or your own left over from a crash"
        return warning(f"memory in use: {', '.join(busy)}", remedy)
    return good("the GPUs' memory is free")


def writable(facts: Facts) -> Finding | None:
    """The folders of run, cache, logs and scratch are writable."""
    if not facts.folders:
        return None
    unwritable = [folder for folder in facts.folders if folder.problem]
    if unwritable:
        problems = "; ".join(
            f"{folder.what} {folder.path}: {folder.problem}" for folder in unwritable
        )
        remedies = "; ".join(REMEDIES[folder.what] for folder in unwritable)
        return failure(problems, remedies)
    return good(f"{', '.join(folder.what for folder in facts.folders)} are writable")


def room(facts: Facts) -> Finding | None:
    """There is free space for what the run writes, and for its files."""
    folders = [folder for folder in facts.folders if not folder.problem]
    if not folders:
        return None
    for folder in folders:
        if folder.free < LEAST_SPACE or folder.free_files < LEAST_FILES:
            free = f"{size_text(folder.free)} and {folder.free_files:,} files"
            needed = f"{size_text(LEAST_SPACE)} and {LEAST_FILES:,}"
            message = f"{folder.what} folder {folder.path}: room for {free}, needs {needed}"
            return failure(message, f"free some, or {REMEDIES[folder.what]}")
    return good("there is room for a run")


def quota(facts: Facts) -> Finding | None:
    """The user's quota is not exceeded."""
    if facts.quota is None:
        return None
    for line in facts.quota.splitlines():
        if "*" in line:
            return failure(f"over quota: {line.strip()}", "free some space; see: quota -s")
    return good("within quota")


def shared(facts: Facts) -> Finding | None:
    """Nodes can see the folders of run, logs and cache."""
    if facts.slurm is None:
        return None
    names = [
        f"{folder.what} {folder.path} ({folder.kind})"
        for folder in facts.folders
        if folder.what != "scratch" and folder.kind in LOCAL
    ]
    if names:
        message = f"on a local disk of this machine: {'; '.join(names)}"
        return warning(message, "if nodes do not see it, use a shared file system")
    return good("the folders of run, logs and cache are on a network file system")


def hub_cache(facts: Facts) -> Finding | None:
    """Required models are in the hub's cache, or can be downloaded."""
    hub = facts.hub
    if hub is None or not hub.required:
        return None
    if not hub.missing:
        return good(f"nothing has to be downloaded into {hub.home} in advance")
    names = shortened(hub.missing, most=3)
    download = f"hf download {hub.missing[0].replace('@', ' --revision ')}"
    if hub.offline:
        message = f"HF_HUB_OFFLINE is set, and {hub.home} does not contain {names}"
        return failure(message, f"on a machine with a network: {download}")
    if hub.problem:
        remedy = "export HF_HOME=FOLDER, one that you can write to and nodes share"
        return failure(f"{hub.home}: {hub.problem}", remedy)
    if facts.profile.kind != "local":
        message = f"{hub.home} does not contain {names}; nodes often have no network"
        return warning(message, f"on the login node: {download}")
    return good(f"to be downloaded: {names}")


def checkpoints(facts: Facts) -> Finding | None:
    """The checkpoints of all models can be found, and their weights are what their names say."""
    if facts.suites is None:
        return None
    if facts.suites.problems:
        remedy = "correct 'models:' in the configuration, or provide the files"
        return failure(facts.suites.problems[0], remedy)
    located = facts.suites.located
    warnings = "; ".join(chain.from_iterable(suite.warnings for suite in located))
    if warnings:
        remedy = "check that these revisions hold the weights of their steps"
        return warning(warnings, remedy)
    count = sum(len(suite.suite.revisions) for suite in located)
    return good(f"{count:,} checkpoints of different content")
