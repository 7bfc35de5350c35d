"""Checks of machines: network, ports, Python, threads, GPUs; here, and on a worker if one was asked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from daskmetrics.planning.doctor._facts import Facts, Machine
from daskmetrics.planning.doctor._finding import Finding, failure, good, warning

OLDEST = (3, 11)
FILES_PER_WORKER = 20
CUDA_DRIVERS = {"12": 525, "13": 580}
"""First driver of each CUDA that builds of torch are made for."""


def interface(facts: Facts) -> Finding | None:
    """The named network interface exists here, is up, and leads to the nodes."""
    wanted, there = facts.profile.interface, facts.here.interfaces
    if wanted is None:
        return None
    up = [name for name, addresses in there.items() if addresses]
    if wanted not in there:
        lead = facts.slurm.reached_by if facts.slurm else None
        hint = f"--set cluster.interface={lead or 'NAME'}"
        return failure(
            f"{facts.here.host} has no interface {wanted}; it has {', '.join(up)}", f"{hint}; see: ip -br addr"
        )
    if not there[wanted]:
        return failure(f"interface {wanted} has no address", f"take one that is up: {', '.join(up)}")
    return good(f"{wanted} is up ({', '.join(there[wanted])})")


def interface_leads(facts: Facts) -> Finding | None:
    """The interface is the one by which nodes are reached."""
    wanted, slurm = facts.profile.interface, facts.slurm
    if slurm is None or slurm.reached_by is None:
        return None
    far = any(address and not address.startswith("127.") for address in slurm.addresses.values())
    if wanted and wanted != slurm.reached_by and (far or wanted != "lo"):
        said = f"nodes are reached by {slurm.reached_by}, the profile names {wanted}"
        make = failure if wanted == "lo" and far else warning
        return make(said, f"--set cluster.interface={slurm.reached_by}")
    if wanted is None and far and len([name for name in facts.here.interfaces if name != "lo"]) > 1:
        return warning(
            "several networks, and no interface is named",
            f"--set cluster.interface={slurm.reached_by}, if jobs do not find the scheduler",
        )
    return good(f"nodes are reached by {slurm.reached_by}")


def interface_on_worker(facts: Facts) -> Finding | None:
    """Workers have an interface of the same name."""
    wanted, worker = facts.profile.interface, facts.worker
    if wanted is None or worker is None:
        return None
    if not worker.interfaces.get(wanted):
        up = ", ".join(name for name, addresses in worker.interfaces.items() if addresses)
        return failure(f"{worker.host} has no interface {wanted}; it has {up}", "name one that both machines have")
    return good(f"{worker.host} has {wanted}")


def names(facts: Facts) -> Finding | None:
    """Names of nodes can be resolved here."""
    if facts.slurm is None or not facts.slurm.addresses:
        return None
    lost = [name for name, address in facts.slurm.addresses.items() if not address]
    if lost:
        return warning(f"the name of node {lost[0]} has no address here", "ask the site's support, if workers get lost")
    return good(f"node {next(iter(facts.slurm.addresses))} has an address")


def ports(facts: Facts) -> Finding | None:
    """A port can be opened for the workers."""
    if facts.here.port_problem:
        return failure(
            facts.here.port_problem, "name another interface: --set cluster.interface=NAME; or run by --in-job"
        )
    return good("a port can be opened")


def open_files(facts: Facts) -> Finding | None:
    """The scheduler may have a connection for every worker."""
    needed = 200 + FILES_PER_WORKER * facts.profile.workers
    if facts.here.files < needed:
        said = f"a process may have {facts.here.files} files open, {facts.profile.workers} workers need about {needed}"
        return warning(said, f"ulimit -n {needed}")
    return good(f"{facts.here.files:,} files may be open")


def nccl_interface(facts: Facts) -> Finding | None:
    """NCCL and Gloo are told of interfaces that exist."""
    machine = facts.worker or facts.here
    set_ = {name: _set(facts, machine, name) for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")}
    for name, value in set_.items():
        lost = [each for each in _interfaces(value) if not any(own.startswith(each) for own in machine.interfaces)]
        if lost:
            up = ", ".join(machine.interfaces)
            return failure(f"{name}={value}, but {machine.host} has {up}", f"unset {name}, or name one of these")
    return good("NCCL and Gloo choose their interface") if not any(set_.values()) else good("interfaces exist")


def _interfaces(value: str) -> list[str]:
    return [] if value.startswith("^") else [each for each in value.removeprefix("=").split(",") if each]


def _set(facts: Facts, machine: Machine, name: str) -> str:
    return str({**machine.variables, **facts.profile.exports}.get(name, ""))


def infiniband(facts: Facts) -> Finding | None:
    """InfiniBand is used where there is some."""
    machine = facts.worker or facts.here
    if not machine.infiniband:
        return None
    if _set(facts, machine, "NCCL_IB_DISABLE") not in ("", "0"):
        return warning(
            "NCCL_IB_DISABLE is set, and there is InfiniBand", "unset NCCL_IB_DISABLE: training is slow without"
        )
    return good("InfiniBand is there and may be used")


def python(facts: Facts) -> Finding | None:
    """Python and the packages that a run needs are there."""
    versions = facts.here.versions
    lacking = [name for name, version in versions.items() if version == "none"]
    if tuple(map(int, versions["python"].split(".")[:2])) < OLDEST:
        return failure(
            f"Python {versions['python']}", f"make an environment with Python {OLDEST[0]}.{OLDEST[1]} or later"
        )
    if lacking:
        return failure(f"not installed: {', '.join(lacking)}", "pip install daskmetrics in this environment")
    return good(", ".join(f"{name} {version}" for name, version in versions.items()))


def same_versions(facts: Facts) -> Finding | None:
    """Workers have the driver's versions."""
    theirs = [(facts.worker.host, facts.worker.versions)] if facts.worker else _recorded(facts)
    for where, versions in theirs:
        found = skew(facts.here.versions, versions)
        if found:
            said = "; ".join(f"{name} {theirs} there, {ours} here" for name, (ours, theirs) in found.items())
            return failure(
                f"{where}: {said}", "start workers from this environment, or from one with the same packages"
            )
    return good("workers have the versions of this machine") if theirs else None


def skew(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Versions that differ; of Python the first two numbers count, and builds of a package are the same version.

    Examples
    --------
    >>> skew({"python": "3.11.2", "torch": "2.6+cpu"}, {"python": "3.12.1", "torch": "2.6+cu126"})
    {'python': ('3.11.2', '3.12.1')}
    """
    return {
        name: (version, theirs[name])
        for name, version in ours.items()
        if name in theirs and _plain(name, version) != _plain(name, theirs[name])
    }


def _plain(name: str, version: str) -> str:
    return ".".join(version.split(".")[:2]) if name == "python" else version.partition("+")[0]


def _recorded(facts: Facts) -> list[tuple[str, Mapping[str, str]]]:
    entries = facts.history.entries if facts.history else ()
    return [(f"worker {entry['name']}", entry["versions"]) for entry in entries if entry["type"] == "worker"]


def environment_is_shared(facts: Facts) -> Finding | None:
    """Nodes see the environment that the driver runs in."""
    if facts.slurm is None:
        return None
    if facts.prefix_kind in LOCAL and facts.worker is None:
        said = f"Python lies in {facts.prefix}, on this machine's own {facts.prefix_kind}"
        return warning(
            said, "make sure that the nodes have the same (--worker looks), or install on a shared file system"
        )
    return good(f"Python lies in {facts.prefix} ({facts.prefix_kind or 'seen by a worker'})")


LOCAL = frozenset({"ext4", "ext3", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "ramfs"})


def threads(facts: Facts) -> Finding | None:
    """Workers have as many threads as CPUs, and together no more than the machine."""
    profile = facts.profile
    if profile.kind == "local" and profile.threads * profile.workers > facts.here.cpus:
        said = f"{profile.workers} workers with {profile.threads} threads on {facts.here.cpus} CPUs"
        return warning(said, f"--workers {max(1, facts.here.cpus // profile.threads)}")
    own = facts.worker.variables.get("OMP_NUM_THREADS") if facts.worker else None
    if own and own != str(profile.threads):
        return warning(
            f"OMP_NUM_THREADS={own} on a worker, the profile has {profile.threads}", "drop it from the prologue"
        )
    return good(f"{profile.threads} per worker")


def gpu(facts: Facts) -> Finding | None:
    """A worker of a GPU profile sees GPUs."""
    machine = facts.worker
    if machine is None or not facts.profile.gpus_per_job or facts.profile.kind == "local":
        return None
    visible = machine.variables.get("CUDA_VISIBLE_DEVICES")
    if not machine.gpus:
        return failure(f"{machine.host} has no NVIDIA driver", "another partition, or ask the site's support")
    if visible in (None, ""):
        return failure(
            f"{machine.host} has GPUs, but its job was given none", "--set cluster.gpus_per_job=1; see --gres"
        )
    return good(f"{machine.host}: {machine.gpus[0]}, CUDA_VISIBLE_DEVICES={visible}")


def gpu_driver(facts: Facts) -> Finding | None:
    """The NVIDIA driver is new enough for this build of torch."""
    machine = facts.worker or facts.here
    build = re.search(r"\+cu(\d{2})", machine.versions.get("torch", ""))
    if not machine.gpus:
        return None
    if build is None and "+cpu" in machine.versions.get("torch", ""):
        return failure("torch is a build without CUDA, and there are GPUs", "pip install torch, of the index for CUDA")
    least = CUDA_DRIVERS.get(build[1], 0) if build else 0
    if machine.gpu_driver and float(machine.gpu_driver.split(".")[0]) < least:
        said = f"driver {machine.gpu_driver}, torch needs {least} or later"
        return failure(said, "a build of torch for an older CUDA, or a newer driver")
    return good(f"driver {machine.gpu_driver or 'of unknown version'}")


def gpu_memory(facts: Facts) -> Finding | None:
    """Nobody else fills the GPUs' memory."""
    machine = facts.worker or facts.here
    if not machine.gpu_used:
        return None
    full = [f"GPU {i}: {share:.0%}" for i, share in enumerate(machine.gpu_used) if share > 0.1]
    if full:
        return warning(
            f"memory is taken: {', '.join(full)}", "see: nvidia-smi; processes of others, or left by a crash"
        )
    return good("the GPUs' memory is free")
