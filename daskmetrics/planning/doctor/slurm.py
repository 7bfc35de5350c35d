"""Checks of a Slurm profile against the site: partition, limits, and the layout of tasks over GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dask.utils import parse_bytes

from daskmetrics.cluster.slurm.partitions import Partition, parse_gpus
from daskmetrics.core.errors import unknown
from daskmetrics.core.machine import VISIBLE, split_gpus
from daskmetrics.core.text import duration, parse_walltime, plural, walltime_text
from daskmetrics.planning.doctor.facts import Facts, Finding, failure, good, warning


def answers(facts: Facts) -> Finding | None:
    """Slurm's commands are installed, and its controller answers."""
    slurm = facts.slurm
    if slurm is None:
        return None
    if slurm.missing:
        remedy = "run this on a login node, or: module load slurm; or --cluster local"
        return failure(f"not on PATH: {', '.join(slurm.missing)}", remedy)
    if slurm.problem:
        return failure(slurm.problem, "see: scontrol ping; if this lasts, ask the site's support")
    if slurm.site is None:
        return good("Slurm answers")
    return good(f"Slurm {slurm.site.version} answers")


def partition_of(facts: Facts) -> Partition | None:
    """The partition of the profile's jobs, if it exists; of several the first that is up."""
    if facts.slurm is None or facts.slurm.site is None:
        return None
    partitions = facts.slurm.site.partitions
    if facts.profile.partition:
        by_name = {partition.name: partition for partition in partitions}
        names = facts.profile.partition.split(",")
        candidates = [by_name[name] for name in names if name in by_name]
    else:
        candidates = [partition for partition in partitions if partition.default]
    return max(candidates, key=lambda partition: partition.up, default=None)


def partition(facts: Facts) -> Finding | None:
    """The partition exists, is up and has nodes that accept jobs."""
    if facts.slurm is None or facts.slurm.site is None:
        return None
    names = [partition.name for partition in facts.slurm.site.partitions]
    remedy = f"--set cluster.partition={next(iter(names), 'NAME')}"
    requested = facts.profile.partition
    for name in requested.split(",") if requested else ():
        if name not in names:
            return failure(str(unknown("partition", name, names)), remedy)
    chosen = partition_of(facts)
    if chosen is None:
        return failure("the profile names no partition, and the site has no default one", remedy)
    if not chosen.up:
        remedy = f"wait, or use another one: {', '.join(names)}"
        return failure(f"partition {chosen.name} is not up", remedy)
    total = sum(nodes.count for nodes in chosen.nodes)
    usable = sum(nodes.count for nodes in chosen.nodes if nodes.is_usable)
    if not usable:
        return failure(f"none of the {total} nodes of {chosen.name} accepts jobs", "see: sinfo -R")
    return good(f"{usable} of {total} nodes of {chosen.name} accept jobs")


def account(facts: Facts) -> Finding | None:
    """The account may use the partition."""
    chosen = partition_of(facts)
    if chosen is None or facts.slurm is None:
        return None
    name = facts.profile.account
    accounts = facts.slurm.accounts
    if chosen.accounts and name not in chosen.accounts:
        accepted = ", ".join(chosen.accounts)
        return failure(
            f"partition {chosen.name} accepts only the accounts {accepted}, got {name or 'none'}",
            f"--set cluster.account={chosen.accounts[0]}, or another partition",
        )
    if accounts and name and name not in accounts:
        remedy = f"--set cluster.account={accounts[0]} (your accounts: {', '.join(accounts)})"
        return failure(f"{name} is not one of your accounts", remedy)
    return good(f"account {name}" if name else "no account is named")


def limits(facts: Facts) -> Finding | None:
    """The site lets a user submit all jobs."""
    profile = facts.profile
    if facts.slurm is None or facts.slurm.max_jobs is None:
        return None
    jobs = -(-profile.workers // max(1, profile.gpus_per_job))
    allowed = facts.slurm.max_jobs
    if min(jobs, profile.max_jobs or jobs) > allowed:
        message = f"{jobs} jobs, but the site accepts {allowed} per user"
        return failure(message, f"--set cluster.max_jobs={allowed}")
    return good(f"{jobs} of at most {plural(allowed, 'job')}")


def gres(facts: Facts) -> Finding | None:
    """The partition has the GPUs that a job requests."""
    chosen = partition_of(facts)
    profile = facts.profile
    if chosen is None or not profile.gpus_per_job:
        return None
    available = chosen.gpus
    kind = profile.gpu_type
    kinds = ", ".join(sorted(f"{name or 'gpu'} ({count})" for name, count in available.items()))
    if not available or (kind and not available[kind]):
        other = next((name for name in available if name), None)
        remedy = "another partition, or --set cluster.gpus_per_job=0"
        if other:
            remedy = f"--set cluster.gpu_type={other}"
        message = f"partition {chosen.name} has no {kind or 'GPUs'}; its GPUs: {kinds or 'none'}"
        return failure(message, remedy)
    usable = [nodes.gpus for nodes in chosen.nodes if nodes.is_usable]
    if kind:
        counts = [gpus.get(kind, 0) for gpus in usable]
    else:
        counts = [sum(gpus.values()) for gpus in usable]
    largest = max(counts, default=0)
    if profile.gpus_per_job > largest:
        message = (
            f"a job requests {profile.gpus_per_job} GPUs, a node of {chosen.name} has {largest}"
        )
        return failure(message, f"--set cluster.gpus_per_job={largest}")
    return good(f"partition {chosen.name} has {kinds}")


def walltime(facts: Facts) -> Finding | None:
    """The partition allows the jobs' walltime."""
    chosen = partition_of(facts)
    if chosen is None or chosen.longest is None:
        return None
    requested = float(parse_walltime(facts.profile.walltime))
    if requested > chosen.longest:
        message = (
            f"jobs request {duration(requested)}, {chosen.name} allows {duration(chosen.longest)}"
        )
        return failure(message, f"--set 'cluster.walltime=\"{walltime_text(chosen.longest)}\"'")
    return good(f"{duration(requested)} of at most {duration(chosen.longest)}")


def memory(facts: Facts) -> Finding | None:
    """Nodes have the memory that a job requests."""
    chosen = partition_of(facts)
    profile = facts.profile
    if chosen is None or profile.memory is None:
        return None
    requested = parse_bytes(profile.memory) * max(1, profile.gpus_per_job) / 2**30
    largest = max((nodes.memory for nodes in chosen.nodes), default=0) / 2**10
    if requested > largest:
        message = f"a job requests {requested:.0f} GiB, the largest node has {largest:.0f}"
        remedy = "a smaller cluster.memory (it is per worker), or fewer gpus_per_job"
        return failure(message, remedy)
    return good(f"{requested:.0f} GiB per job of {largest:.0f} on a node")


def cpus(facts: Facts) -> Finding | None:
    """Nodes have the CPUs that a job requests, and enough for all their GPUs."""
    chosen = partition_of(facts)
    profile = facts.profile
    if chosen is None or not chosen.nodes:
        return None
    processes = max(1, profile.gpus_per_job)
    requested = profile.threads * processes
    largest = max(nodes.cpus for nodes in chosen.nodes)
    if requested > largest:
        message = f"a job requests {requested} CPUs, the largest node has {largest}"
        return failure(message, f"--set cluster.threads={largest // processes}")
    shares = [nodes.cpus / sum(nodes.gpus.values()) for nodes in chosen.nodes if nodes.gpus]
    share = min(shares, default=float(largest))
    if profile.gpus_per_job and profile.threads > share:
        message = f"{profile.threads} CPUs per GPU, but a node has {share:g} for each"
        remedy = f"--set cluster.threads={max(1, int(share))}"
        return warning(f"{message}: some of its GPUs stay unused", remedy)
    return good(f"{requested} CPUs per job of {largest} on a node")


def task_layout(facts: Facts) -> Finding | None:
    """There is one worker process for each GPU, so that no GPU of a job is idle."""
    profile = facts.profile
    requested = _requested_gpus(profile.directives)
    workers = max(1, profile.gpus_per_job)
    if requested > workers:
        message = f"a job requests {requested} GPUs and starts {plural(workers)}"
        remedy = f"remove that directive and write: gpus_per_job: {requested}"
        return failure(f"{message}: {requested - workers} idle", remedy)
    tasks = (re.match(r"--ntasks(?:-per-node)?[= ](\d+)", line) for line in profile.directives)
    count = next((int(match[1]) for match in tasks if match), 1)
    if count > 1:
        return failure(
            f"directives request {count} tasks, but the script starts one program, without srun",
            "drop --ntasks: gpus_per_job sets the number of workers on a node",
        )
    if profile.kind != "slurm":
        return None
    return good(f"{plural(workers)} per job")


def _requested_gpus(directives: Iterable[str]) -> int:
    """The number of GPUs of a job that directives request; 0 without such a directive."""
    for line in directives:
        if match := re.match(r"--gres[= ](\S+)", line):
            return sum(parse_gpus(match[1]).values())
        if match := re.match(r"--gpus(?:-per-node|-per-task)?[= ](?:\w+:)?(\d+)", line):
            return int(match[1])
    return 0


def allocation_layout(facts: Facts) -> Finding | None:
    """Inside a job there are as many tasks as GPUs; otherwise the work uses only one GPU."""
    variables = facts.here.variables
    job = variables.get("SLURM_JOB_ID")
    if job is None:
        return None
    tasks = int(variables.get("SLURM_NTASKS", "1") or 1)
    per_node = len(split_gpus(variables.get(VISIBLE, ""))) or len(facts.here.gpus)
    total = per_node * int(variables.get("SLURM_NNODES", "1") or 1)
    if per_node and tasks < total:
        remedy = (
            f"request --ntasks-per-node={per_node} --gpus-per-task=1, and start workers by srun"
        )
        return failure(f"{plural(tasks, 'task')} for {total} GPUs in job {job}", remedy)
    return good(f"{plural(tasks, 'task')}, {total} GPUs")


def rehearsal(facts: Facts) -> Finding | None:
    """Slurm would accept the profile's jobs (``sbatch --test-only``)."""
    if facts.slurm is None or facts.slurm.site is None:
        return None
    if facts.slurm.refusal:
        remedy = "see the other failures, or: daskmetrics run --dry-run"
        return failure(f"sbatch refuses: {facts.slurm.refusal}", remedy)
    return good("sbatch --test-only accepts the job")
