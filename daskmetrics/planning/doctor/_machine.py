"""Checks of machines: network, ports, Python, threads, GPUs; here, and on a worker if one was started."""

from __future__ import annotations

import re
from collections.abc import Mapping

from daskmetrics.core._events import WorkerJoined
from daskmetrics.core._machine import VISIBLE
from daskmetrics.core._text import plural, size_text
from daskmetrics.planning.doctor._facts import Facts, Finding, MachineFacts, failure, good, warning

OLDEST = (3, 11)
FILES_PER_WORKER = 20
CUDA_DRIVERS = {"12": 525, "13": 580}  # the oldest driver of each CUDA version that torch is built for
LOCAL = frozenset({"ext4", "ext3", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "ramfs"})  # no other machine sees them


def interface(facts: Facts) -> Finding | None:
    """The profile's network interface exists here and is up."""
    name, interfaces = facts.profile.interface, facts.here.interfaces
    if name is None:
        return None
    up = ", ".join(each for each, addresses in interfaces.items() if addresses)
    if name not in interfaces:
        reached_by = facts.slurm.reached_by if facts.slurm else None
        remedy = f"--set cluster.interface={reached_by or 'NAME'}; see: ip -br addr"
        return failure(f"{facts.here.host} has no interface {name}; it has {up}", remedy)
    if not interfaces[name]:
        return failure(f"interface {name} has no address", f"use one that is up: {up}")
    return good(f"{name} is up ({', '.join(interfaces[name])})")


def interface_leads(facts: Facts) -> Finding | None:
    """The profile's interface is the one that leads to the nodes."""
    name, slurm = facts.profile.interface, facts.slurm
    if slurm is None or slurm.reached_by is None:
        return None
    remedy = f"--set cluster.interface={slurm.reached_by}"
    remote = any(address and not address.startswith("127.") for address in slurm.addresses.values())
    if name and name != slurm.reached_by and (remote or name != "lo"):
        make = failure if name == "lo" and remote else warning
        return make(f"{slurm.reached_by} leads to the nodes, but the profile names {name}", remedy)
    if name is None and remote and len([each for each in facts.here.interfaces if each != "lo"]) > 1:
        message = "there are several networks, and the profile names no interface"
        return warning(message, f"{remedy}, if jobs cannot connect to the scheduler")
    return good(f"{slurm.reached_by} leads to the nodes")


def interface_on_worker(facts: Facts) -> Finding | None:
    """Workers have an interface of the same name."""
    name, worker = facts.profile.interface, facts.worker
    if name is None or worker is None:
        return None
    if not worker.interfaces.get(name):
        up = ", ".join(each for each, addresses in worker.interfaces.items() if addresses)
        return failure(f"{worker.host} has no interface {name}; it has {up}", "name one that both machines have")
    return good(f"{worker.host} has {name}")


def names(facts: Facts) -> Finding | None:
    """The names of nodes can be resolved here."""
    if facts.slurm is None or not facts.slurm.addresses:
        return None
    node, address = next(iter(facts.slurm.addresses.items()))
    if not address:
        remedy = "if workers do not connect, ask the site's support"
        return warning(f"the name of node {node} cannot be resolved here", remedy)
    return good(f"the name of node {node} can be resolved")


def clock(facts: Facts) -> Finding | None:
    """Workers' clocks agree with the one of this machine."""
    if facts.worker is None:
        return None
    if facts.worker.clock_problem:
        message = f"{facts.worker.host}: {facts.worker.clock_problem}"
        return warning(message, "ask the site's support to synchronise them; a worker a day behind cannot connect")
    return good(f"the clock of {facts.worker.host} agrees with this machine's")


def ports(facts: Facts) -> Finding | None:
    """A network port can be opened for the workers."""
    if facts.here.port_problem:
        return failure(facts.here.port_problem, "name another interface: --set cluster.interface=NAME; or use --in-job")
    return good("a port can be opened")


def open_files(facts: Facts) -> Finding | None:
    """The scheduler may open a connection to every worker."""
    needed = 200 + FILES_PER_WORKER * facts.profile.workers
    if facts.here.files < needed:
        message = f"a process may open {facts.here.files} files, {facts.profile.workers} workers need about {needed}"
        return warning(message, f"ulimit -n {needed}")
    return good(f"a process may open {facts.here.files:,} files")


def nccl_interface(facts: Facts) -> Finding | None:
    """The interfaces that NCCL and Gloo should use exist."""
    machine = facts.worker or facts.here
    values = {name: _variable(facts, machine, name) for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")}
    for name, value in values.items():
        prefixes = [] if value.startswith("^") else [each for each in value.removeprefix("=").split(",") if each]
        if any(not any(each.startswith(prefix) for each in machine.interfaces) for prefix in prefixes):
            message = f"{name}={value}, but {machine.host} has {', '.join(machine.interfaces)}"
            return failure(message, f"unset {name}, or name one of these")
    return good("interfaces exist" if any(values.values()) else "NCCL and Gloo choose their interface")


def _variable(facts: Facts, machine: MachineFacts, name: str) -> str:
    return str({**machine.variables, **facts.profile.exports, **facts.environment}.get(name, ""))


LOCKED = 2**30  # bytes; NCCL locks the memory of its buffers


def infiniband(facts: Facts) -> Finding | None:
    """NCCL can use InfiniBand on a machine that has it; otherwise it falls back to sockets, without an error."""
    machine = facts.worker or facts.here
    if not machine.infiniband:
        return good("no InfiniBand: NCCL connects nodes by sockets") if machine.gpus else None
    if reasons := _socket_reasons(facts, machine):
        problems, remedies = zip(*reasons, strict=True)
        message = f"{machine.host}: NCCL would fall back to sockets: {'; '.join(problems)}"
        return warning(message, f"{'; '.join(remedies)}. Training across nodes is slow without InfiniBand")
    return good(f"NCCL can use InfiniBand: {'; '.join(f'{p} {s}' for p, s in machine.infiniband.items())}")


def _socket_reasons(facts: Facts, machine: MachineFacts) -> list[tuple[str, str]]:
    """Why NCCL would not use the InfiniBand of a machine, each with its remedy."""
    reasons = []
    if _variable(facts, machine, "NCCL_IB_DISABLE") not in ("", "0"):
        reasons.append(("NCCL_IB_DISABLE is set", "unset NCCL_IB_DISABLE"))
    if _variable(facts, machine, "NCCL_NET").lower() == "socket":
        reasons.append(("NCCL_NET=Socket", "unset NCCL_NET"))
    chosen = _variable(facts, machine, "NCCL_IB_HCA")
    used = {port: state for port, state in machine.infiniband.items() if _is_chosen(port, chosen)}
    if not used:
        reasons.append((f"NCCL_IB_HCA={chosen} names none of {', '.join(machine.infiniband)}", "unset NCCL_IB_HCA"))
    elif not any(state.startswith("ACTIVE") for state in used.values()):
        states = "; ".join(f"{port} {state}" for port, state in used.items())
        reasons.append((f"no port is active ({states})", "ask the site's support; see: ibstat"))
    if not machine.verbs:
        reasons.append(("/dev/infiniband is not visible", "start the container or job with /dev/infiniband"))
    if 0 <= machine.locked < LOCKED:
        remedy = "ulimit -l unlimited, or in slurmd: LimitMEMLOCK=infinity"
        reasons.append((f"a process may lock only {size_text(machine.locked)} of memory", remedy))
    return reasons


def _is_chosen(port: str, value: str) -> bool:
    """Whether a value of NCCL_IB_HCA, such as ``mlx5``, ``=mlx5_0:1`` or ``^mlx5_1``, chooses a port.

    >>> [_is_chosen("mlx5_0:1", value) for value in ("", "mlx5", "=mlx5_0", "^mlx5_0", "mlx5_2:1")]
    [True, True, True, False, False]
    """
    excludes, exact = value.startswith("^"), value.lstrip("^").startswith("=")
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
        return failure(f"not installed: {', '.join(missing)}", "pip install daskmetrics in this environment")
    return good(", ".join(f"{name} {version}" for name, version in versions.items()))


def same_versions(facts: Facts) -> Finding | None:
    """Workers have the driver's versions."""
    entries = facts.history.entries if facts.history else ()
    others = [(f"worker {entry.name}", entry.versions) for entry in entries if isinstance(entry, WorkerJoined)]
    if facts.worker:
        others = [(facts.worker.host, facts.worker.versions)]
    for where, versions in others:
        if differences := skew(facts.here.versions, versions):
            message = "; ".join(f"{name} {theirs} there, {ours} here" for name, (ours, theirs) in differences.items())
            remedy = "start workers from this environment, or from one with the same packages"
            return failure(f"{where}: {message}", remedy)
    return good("workers have the versions of this machine") if others else None


def skew(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Versions that differ, ours and theirs; patch releases of Python and builds of a package count as the same.

    >>> skew({"python": "3.11.2", "torch": "2.6+cpu"}, {"python": "3.12.1", "torch": "2.6+cu126"})
    {'python': ('3.11.2', '3.12.1')}
    """

    def plain(name: str, version: str) -> str:
        return ".".join(version.split(".")[:2]) if name == "python" else version.partition("+")[0]

    both = {name: (version, theirs[name]) for name, version in ours.items() if name in theirs}
    return {name: (one, other) for name, (one, other) in both.items() if plain(name, one) != plain(name, other)}


def environment_is_shared(facts: Facts) -> Finding | None:
    """Nodes see the driver's Python environment."""
    if facts.slurm is None:
        return None
    if facts.prefix_kind in LOCAL and facts.worker is None:
        remedy = "check that the nodes have the same one (with --worker), or install on a shared file system"
        return warning(f"Python is in {facts.prefix}, on a local disk of this machine ({facts.prefix_kind})", remedy)
    return good(f"Python is in {facts.prefix} ({facts.prefix_kind or 'seen by a worker'})")


def threads(facts: Facts) -> Finding | None:
    """Workers have as many threads as CPUs, and together no more than the machine."""
    profile = facts.profile
    if profile.kind == "local" and profile.threads * profile.workers > facts.here.cpus:
        message = f"{profile.workers} workers with {plural(profile.threads, 'thread')} on {facts.here.cpus} CPUs"
        return warning(message, f"--workers {max(1, facts.here.cpus // profile.threads)}")
    value = facts.worker.variables.get("OMP_NUM_THREADS") if facts.worker else None
    if value and value != str(profile.threads):
        message = f"OMP_NUM_THREADS={value} on a worker, but the profile has {profile.threads}"
        return warning(message, "remove it from the prologue")
    return good(f"{profile.threads} per worker")


def gpu(facts: Facts) -> Finding | None:
    """A worker of a GPU profile sees GPUs."""
    machine = facts.worker
    if machine is None or not facts.profile.gpus_per_job or facts.profile.kind not in ("slurm", "allocation"):
        return None
    visible = machine.variables.get(VISIBLE)
    if not machine.gpus:
        return failure(f"{machine.host} has no NVIDIA driver", "another partition, or ask the site's support")
    if not visible:
        return failure(f"{machine.host} has GPUs, but the job has none", "--set cluster.gpus_per_job=1; see --gres")
    return good(f"{machine.host}: {machine.gpus[0]}, {VISIBLE}={visible}")


def gpu_driver(facts: Facts) -> Finding | None:
    """The NVIDIA driver is new enough for this build of torch."""
    machine = facts.worker or facts.here
    torch = machine.versions.get("torch", "")
    if not machine.gpus:
        return None
    build = re.search(r"\+cu(\d{2})", torch)
    if build is None and "+cpu" in torch:
        return failure("this build of torch has no CUDA, but there are GPUs", "install a build of torch with CUDA")
    oldest = CUDA_DRIVERS.get(build[1], 0) if build else 0
    if machine.gpu_driver and float(machine.gpu_driver.split(".")[0]) < oldest:
        message = f"driver {machine.gpu_driver}, but torch needs {oldest} or later"
        return failure(message, "a build of torch for an older CUDA, or a newer driver")
    return good(f"driver {machine.gpu_driver or 'of unknown version'}")


def gpu_memory(facts: Facts) -> Finding | None:
    """No other process uses the GPUs' memory."""
    machine = facts.worker or facts.here
    if not machine.gpu_used:
        return None
    if used := [f"GPU {i}: {share:.0%}" for i, share in enumerate(machine.gpu_used) if share > 0.1]:
        remedy = "see: nvidia-smi; other users' processes, or your own left over from a crash"
        return warning(f"memory in use: {', '.join(used)}", remedy)
    return good("the GPUs' memory is free")
