"""The checks: each is a function of the facts that it needs, and yields what is wrong, the worst
first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

from daskmetrics.cluster.slurm.partitions import parse_gpus
from daskmetrics.core.machine import VISIBLE, missing_interfaces, split_gpus
from daskmetrics.core.text import plural, shortened, size_text
from daskmetrics.domain.events import AttemptFailed
from daskmetrics.planning.doctor.facts import (
    Facts,
    FolderFacts,
    MachineFacts,
    ModelFacts,
    RunHistory,
    SlurmFacts,
)

FILES_PER_WORKER = 20
# the oldest driver of each CUDA version that torch is built for
CUDA_DRIVERS = {"12": 525, "13": 580}
# file systems that no other machine sees
LOCAL = frozenset({"ext4", "ext3", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "ramfs"})
LOCKED = 2**30  # bytes; NCCL locks the memory of its buffers
LEAST_SPACE = 1e9
LEAST_FILES = 10_000  # each chunk is a file
SLOWER = 1.5  # ratio of a node's median seconds to the other nodes' above which it counts as slow
IDLE = 0.5  # share of the time that workers compute, below which they count as idle

# what helps, by folder
FOLDERS = {
    "run": "choose another one: --folder, on a file system with free space that you can write to",
    "cache": "export DASKMETRICS_CACHE=FOLDER, one that you can write to",
    "logs": "--set cluster.logs=FOLDER, one that you can write to and that nodes share",
    "scratch": "export DASK_TEMPORARY_DIRECTORY=FOLDER, one of the nodes that you can write to",
}
# what helps, by the fault of an attempt and by the status of a unit that was given up for it
LESS_MEMORY = "fewer protocol.batch_tokens, or more cluster.memory"
MORE_TIME = "a larger cluster.unit_minutes, or see the cause: daskmetrics runs logs"
SEE_LOG = "see the job's log for the cause (memory, walltime, node): daskmetrics runs logs RUN KEY"
SEE_ERROR = "see the error: daskmetrics runs logs RUN KEY"
FAULTS = {"memory": LESS_MEMORY, "timeout": MORE_TIME, "death": SEE_LOG}
STATUSES = {
    "oom": LESS_MEMORY,
    "timeout": MORE_TIME,
    "quarantined": SEE_LOG,
    "error": SEE_ERROR,
    "nan": SEE_ERROR,
}


@dataclass(frozen=True)
class Finding:
    """The result of a check, with a remedy unless all is well.

    Some messages have the remedy themselves.
    """

    severity: str  # ``ok``, ``warning`` or ``failure``
    message: str
    remedy: str = ""


warning = partial(Finding, "warning")  # a run works, but slowly or unreliably
failure = partial(Finding, "failure")  # a run will fail

Check = Callable[[Facts], Finding | None]  # None where it does not apply
Findings = Iterator[Finding]  # the first one counts
Examine = Callable[[Facts, Any], Findings]

CHECKS: dict[str, Check] = {}


def check(
    needed: str, holds: str, when: Callable[[Facts], object] = lambda facts: True
) -> Callable[[Examine], Examine]:
    """Add a function to the checks, by its name.

    ``holds`` is what holds where all is well.

    It gets what it needs, an attribute of the facts such as ``slurm.max_jobs``. It does not apply
    where that was not collected or is empty, nor if ``when`` is false.
    """

    def register(function: Examine) -> Examine:
        def run(facts: Facts) -> Finding | None:
            subject: Any = facts
            for attribute in needed.split("."):
                subject = getattr(subject, attribute, None)
            if subject in (None, (), {}) or not when(facts):
                return None
            return next(function(facts, subject), Finding("ok", holds))

        CHECKS[function.__name__.strip("_").replace("_", "-")] = run
        return function

    return register


def examine(facts: Facts) -> dict[str, Finding | None]:
    """The findings of all checks, by name; None for those that do not apply."""
    return {name: check(facts) for name, check in CHECKS.items()}


@check("slurm", "Slurm's commands are installed, and its controller answers")
def _slurm(facts: Facts, slurm: SlurmFacts) -> Findings:
    if slurm.problem:
        remedy = "run this on a login node, or: module load slurm; or --cluster local; see: scontrol ping"
        yield failure(slurm.problem, remedy)


@check(
    "slurm",
    "Slurm would accept the profile's jobs (``sbatch --test-only``)",
    lambda facts: facts.slurm and not facts.slurm.problem,
)
def _rehearsal(facts: Facts, slurm: SlurmFacts) -> Findings:
    if slurm.refused:
        yield failure(slurm.refused.message, slurm.refused.remedy)


@check("slurm.partitions", "A partition of the profile is up")
def _partition(facts: Facts, partitions: Mapping[str, bool]) -> Findings:
    if not any(partitions.values()):
        remedy = "wait, or --set cluster.partition=NAME; see: sinfo --summarize"
        yield failure(f"partition {', '.join(partitions)} is not up", remedy)


@check("slurm.max_jobs", "The site lets a user submit all jobs")
def _job_limit(facts: Facts, allowed: int) -> Findings:
    processes = max(1, facts.profile.gpus_per_job)
    jobs = -(-facts.profile.workers // processes)
    if jobs > allowed:
        message = f"{jobs} jobs, but the site accepts {allowed} per user"
        yield failure(message, f"--set cluster.workers={allowed * processes}")


@check(
    "slurm.cpus_per_gpu",
    "Nodes have enough CPUs for all their GPUs",
    lambda facts: facts.profile.gpus_per_job,
)
def _cpus(facts: Facts, share: float) -> Findings:
    threads = facts.profile.threads
    if threads > share:
        message = f"{threads} CPUs per GPU, but a node has {share:g} for each"
        remedy = f"--set cluster.threads={max(1, int(share))}"
        yield warning(f"{message}: some of its GPUs stay unused", remedy)


@check(
    "profile.directives",
    "There is one worker process for each GPU, so that no GPU of a job is idle",
)
def _task_layout(facts: Facts, directives: tuple[str, ...]) -> Findings:
    gpus = 0
    for line in directives:
        gres = re.sub(r"^--gpus(-per-node|-per-task)?[= ]", "--gres=gpu:", line)
        if match := re.match(r"--gres[= ](\S+)", gres):
            gpus = sum(parse_gpus(match[1]).values())
    workers = max(1, facts.profile.gpus_per_job)
    if gpus > workers:
        message = f"a job requests {gpus} GPUs and starts {plural(workers)}"
        remedy = f"remove that directive and write: gpus_per_job: {gpus}"
        yield failure(f"{message}: {gpus - workers} idle", remedy)
    tasks = (re.match(r"--ntasks(?:-per-node)?[= ](\d+)", line) for line in directives)
    count = next((int(match[1]) for match in tasks if match), 1)
    if count > 1:
        yield failure(
            f"directives request {count} tasks, but the script starts one program, without srun",
            "drop --ntasks: gpus_per_job sets the number of workers on a node",
        )


@check(
    "here.variables",
    "Inside a job there are as many tasks as GPUs; otherwise the work uses only one GPU",
    lambda facts: "SLURM_JOB_ID" in facts.here.variables,
)
def _allocation_layout(facts: Facts, variables: Mapping[str, str]) -> Findings:
    tasks = int(variables.get("SLURM_NTASKS", "1") or 1)
    per_node = len(split_gpus(variables.get(VISIBLE, ""))) or len(facts.here.gpus)
    total = per_node * int(variables.get("SLURM_NNODES", "1") or 1)
    if tasks < total:
        remedy = (
            f"request --ntasks-per-node={per_node} --gpus-per-task=1, and start workers by srun"
        )
        yield failure(
            f"{plural(tasks, 'task')} for {total} GPUs in job {variables['SLURM_JOB_ID']}", remedy
        )


@check(
    "here",
    "The profile's network interface is up and leads to the nodes",
    lambda facts: facts.profile.interface or facts.slurm,
)
def _interface(facts: Facts, machine: MachineFacts) -> Findings:
    name = facts.profile.interface
    interfaces = machine.interfaces
    reached_by = getattr(facts.slurm, "reached_by", None)
    remedy = f"--set cluster.interface={reached_by or 'NAME'}"
    if name and not interfaces.get(name):
        up = ", ".join(other for other, addresses in interfaces.items() if addresses)
        yield failure(f"{machine.host} has no interface {name} that is up, but {up}", remedy)
    if reached_by is None:
        return
    if name and name != reached_by:
        severity = "failure" if name == "lo" else "warning"
        message = f"{reached_by} leads to the nodes, but the profile names {name}"
        yield Finding(severity, message, remedy)
    # through "lo" it is this machine that has the nodes
    networks = interfaces.keys() - {"lo"}
    if name is None and reached_by != "lo" and len(networks) > 1:
        message = "there are several networks, and the profile names no interface"
        yield warning(message, f"{remedy}, if jobs cannot connect to the scheduler")


@check("here", "The scheduler may open a connection to every worker")
def _open_files(facts: Facts, machine: MachineFacts) -> Findings:
    workers = facts.profile.workers
    needed = 200 + FILES_PER_WORKER * workers
    if machine.files < needed:
        message = f"a process may open {machine.files} files, {workers} workers need {needed}"
        yield warning(message, f"ulimit -n {needed}")


@check("here", "The interfaces that NCCL and Gloo should use exist, if any are set")
def _nccl_interface(facts: Facts, machine: MachineFacts) -> Findings:
    for setting in missing_interfaces(facts.variables, machine.interfaces):
        message = f"{setting}, but {machine.host} has {', '.join(machine.interfaces)}"
        yield failure(message, f"unset {setting.partition('=')[0]}, or name one of these")


@check(
    "here.infiniband",
    "NCCL can use the InfiniBand of this machine; otherwise it falls back to sockets, without an error",
)
def _infiniband(facts: Facts, ports: Mapping[str, str]) -> Findings:
    machine = facts.here
    reasons = {}  # each with its remedy
    if facts.variables.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        reasons["NCCL_IB_DISABLE is set"] = "unset NCCL_IB_DISABLE"
    if facts.variables.get("NCCL_NET", "").lower() == "socket":
        reasons["NCCL_NET=Socket"] = "unset NCCL_NET"
    if not any(state.startswith("ACTIVE") for state in ports.values()):
        states = "; ".join(f"{port} {state}" for port, state in ports.items())
        reasons[f"no port is active ({states})"] = "ask the site's support; see: ibstat"
    if not machine.verbs:
        remedy = "start the container or job with /dev/infiniband"
        reasons["/dev/infiniband is not visible"] = remedy
    if 0 <= machine.locked < LOCKED:
        remedy = "ulimit -l unlimited, or in slurmd: LimitMEMLOCK=infinity"
        reasons[f"a process may lock only {size_text(machine.locked)} of memory"] = remedy
    if reasons:
        yield warning(
            f"{machine.host}: NCCL would fall back to sockets: {'; '.join(reasons)}",
            f"{'; '.join(reasons.values())}. Training across nodes is slow without InfiniBand",
        )


@check(
    "here",
    "Local workers together have no more threads than the machine has CPUs",
    lambda facts: facts.profile.kind == "local",
)
def _threads(facts: Facts, machine: MachineFacts) -> Findings:
    profile = facts.profile
    if profile.threads * profile.workers > machine.cpus:
        threads = plural(profile.threads, "thread")
        message = f"{profile.workers} workers with {threads} on {machine.cpus} CPUs"
        yield warning(message, f"--workers {max(1, machine.cpus // profile.threads)}")


@check(
    "here", "The NVIDIA driver is new enough for this build of torch", lambda facts: facts.here.gpus
)
def _gpu_driver(facts: Facts, machine: MachineFacts) -> Findings:
    if "+cpu" in machine.torch:
        message = "this build of torch has no CUDA, but there are GPUs"
        yield failure(message, "install a build of torch with CUDA")
    cuda = machine.torch.partition("+cu")[2][:2]
    oldest = CUDA_DRIVERS.get(cuda, 0)
    if machine.gpu_driver and float(machine.gpu_driver.split(".")[0]) < oldest:
        message = f"driver {machine.gpu_driver}, but torch needs {oldest} or later"
        yield failure(message, "a build of torch for an older CUDA, or a newer driver")


@check("here.gpu_used", "No other process uses the GPUs' memory")
def _gpu_memory(facts: Facts, shares: tuple[float, ...]) -> Findings:
    busy = [f"GPU {number}: {share:.0%}" for number, share in enumerate(shares) if share > 0.1]
    if busy:
        remedy = "see: nvidia-smi; other users' processes, or your own left over from a crash"
        yield warning(f"memory in use: {', '.join(busy)}", remedy)


@check("folders", "The folders of run, cache, logs and scratch are writable")
def _folders(facts: Facts, folders: tuple[FolderFacts, ...]) -> Findings:
    unwritable = [folder for folder in folders if folder.problem]
    if not unwritable:
        return
    problems = [f"{folder.what} {folder.path}: {folder.problem}" for folder in unwritable]
    remedies = [FOLDERS[folder.what] for folder in unwritable]
    yield failure("; ".join(problems), "; ".join(remedies))


@check("folders", "There is free space for what the run writes, and for its files")
def _disk_room(facts: Facts, folders: tuple[FolderFacts, ...]) -> Findings:
    for folder in folders:
        full = folder.free < LEAST_SPACE or folder.free_files < LEAST_FILES
        if full and not folder.problem:
            free = f"{size_text(folder.free)} and {folder.free_files:,} files"
            needed = f"{size_text(LEAST_SPACE)} and {LEAST_FILES:,}"
            message = f"{folder.what} folder {folder.path}: room for {free}, needs {needed}"
            yield failure(message, f"free some, or {FOLDERS[folder.what]}")


@check(
    "slurm",
    "The folders of run, logs and cache and the Python environment are on a network file system",
)
def _shared_folders(facts: Facts, slurm: SlurmFacts) -> Findings:
    names = [
        f"{folder.what} {folder.path} ({folder.kind})"
        for folder in (*facts.folders, facts.environment)
        if folder and folder.what != "scratch" and folder.kind in LOCAL
    ]
    if names:
        message = f"on a local disk of this machine: {'; '.join(names)}"
        yield warning(
            message,
            "if nodes do not see it, use a shared file system; try it: daskmetrics doctor PROFILE --worker",
        )


@check("models", "Required models are in the hub's cache, or can be downloaded")
def _hub_cache(facts: Facts, models: ModelFacts) -> Findings:
    if not models.missing:
        return
    home = models.hub.path
    names = shortened(models.missing, most=3)
    download = f"hf download {models.missing[0].replace('@', ' --revision ')}"
    if models.offline:
        message = f"HF_HUB_OFFLINE is set, and {home} does not contain {names}"
        yield failure(message, f"on a machine with a network: {download}")
    if models.hub.problem:
        remedy = "export HF_HOME=FOLDER, one that you can write to and nodes share"
        yield failure(f"{home}: {models.hub.problem}", remedy)
    if facts.profile.kind != "local":
        message = f"{home} does not contain {names}; nodes often have no network"
        yield warning(message, f"on the login node: {download}")


@check(
    "models",
    "The checkpoints of all models can be found, and their weights are what their names say",
)
def _checkpoints(facts: Facts, models: ModelFacts) -> Findings:
    if models.problems:
        remedy = "correct 'models:' in the configuration, or provide the files"
        yield failure(models.problems[0], remedy)
    warnings = "; ".join(chain.from_iterable(suite.warnings for suite in models.located))
    if warnings:
        yield warning(warnings, "check that these revisions hold the weights of their steps")


@check("history", "Every unit has a value")
def _failed_units(facts: Facts, history: RunHistory) -> Findings:
    lost = [record for record in history.records if record.status in STATUSES]
    if not lost:
        return
    counts = Counter(record.status for record in lost)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items())
    example = f"the first: {lost[0].name}: {lost[0].reason}"
    remedies = "; ".join(dict.fromkeys(STATUSES[status] for status in counts))
    yield failure(
        f"{plural(len(lost), 'unit')} without a value ({statuses}), {example}",
        f"{remedies}; then: daskmetrics runs retry {history.folder}",
    )


@check("history", "No attempt ended by its memory, its time or the death of its worker")
def _failed_attempts(facts: Facts, history: RunHistory) -> Findings:
    counts = Counter(
        entry.fault
        for entry in history.entries
        if isinstance(entry, AttemptFailed) and entry.fault in FAULTS
    )
    if not counts:
        return
    faults = ", ".join(f"{count} {fault}" for fault, count in counts.items())
    yield warning(
        f"{plural(counts.total(), 'attempt')} failed ({faults})",
        "; ".join(FAULTS[fault] for fault in counts),
    )


@check("history.paces", "No node is much slower than the others at the same kind of unit")
def _slow_node(facts: Facts, paces: dict[str, float]) -> Findings:
    slowest, ratio = max(paces.items(), key=itemgetter(1))
    if ratio > SLOWER:
        message = f"{slowest} takes {ratio:.1f} times as long as the other nodes"
        exclude = f"--set 'cluster.directives=[\"--exclude={slowest}\"]'"
        yield warning(message, f"{exclude}; tell the site's support")


@check(
    "history.busy",
    "Workers compute most of the time, instead of waiting for data or for the driver",
)
def _waiting(facts: Facts, busy: float) -> Findings:
    if busy < IDLE:
        remedy = "loading or the driver is the limit: fewer workers, or a faster file system"
        yield warning(f"workers computed {busy:.0%} of the time", remedy)
