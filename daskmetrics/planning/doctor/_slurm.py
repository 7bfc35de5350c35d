"""Checks of a Slurm profile against the site: partition, limits, and the layout of tasks over GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dask.utils import parse_bytes

from daskmetrics.cluster.slurm._partitions import Partition, parse_gpus
from daskmetrics.core._machine import VISIBLE, split_gpus
from daskmetrics.core._text import duration, parse_walltime, plural, walltime_text
from daskmetrics.core.errors import unknown
from daskmetrics.planning.doctor._facts import Facts, Finding, failure, good, warning


def commands(facts: Facts) -> Finding | None:
    """Slurm's commands are installed."""
    if facts.slurm is None:
        return None
    if facts.slurm.missing:
        remedy = "run this on a login node, or: module load slurm; or --cluster local"
        return failure(f"not on PATH: {', '.join(facts.slurm.missing)}", remedy)
    return good("sbatch, squeue, scancel, sinfo and scontrol are installed")


def answers(facts: Facts) -> Finding | None:
    """Slurm's controller answers."""
    if facts.slurm is None or facts.slurm.missing:
        return None
    if facts.slurm.problem:
        return failure(facts.slurm.problem, "see: scontrol ping; if this lasts, ask the site's support")
    return good(f"Slurm {facts.slurm.site.version} answers" if facts.slurm.site else "Slurm answers")


def partition_of(facts: Facts) -> Partition | None:
    """The partition of the profile's jobs, if it exists; of several the first that is up."""
    if facts.slurm is None or facts.slurm.site is None:
        return None
    wanted, partitions = facts.profile.partition, facts.slurm.site.partitions
    names = wanted.split(",") if wanted else [each.name for each in partitions if each.default]
    found = [each for name in names for each in partitions if each.name == name]
    return next((each for each in found if each.up), next(iter(found), None))


def partition(facts: Facts) -> Finding | None:
    """The partition exists and is up."""
    if facts.slurm is None or facts.slurm.site is None:
        return None
    names = [each.name for each in facts.slurm.site.partitions]
    remedy = f"--set cluster.partition={next(iter(names), 'NAME')}"
    chosen, wanted = partition_of(facts), facts.profile.partition
    if missing := [name for name in wanted.split(",") if name not in names] if wanted else []:
        return failure(str(unknown("partition", missing[0], names)), remedy)
    if chosen is None:
        return failure("the profile names no partition, and the site has no default one", remedy)
    if not chosen.up:
        return failure(f"partition {chosen.name} is not up", f"wait, or use another one: {', '.join(names)}")
    return good(f"partition {chosen.name} is up")


def nodes(facts: Facts) -> Finding | None:
    """The partition has nodes that accept jobs."""
    if (chosen := partition_of(facts)) is None:
        return None
    usable = sum(each.count for each in chosen.nodes if each.is_usable)
    total = sum(each.count for each in chosen.nodes)
    if not usable:
        return failure(f"none of the {total} nodes of {chosen.name} accepts jobs", "see: sinfo -R")
    return good(f"{usable} of {total} nodes of {chosen.name} accept jobs")


def account(facts: Facts) -> Finding | None:
    """The account may use the partition."""
    if (chosen := partition_of(facts)) is None or facts.slurm is None:
        return None
    name, accounts = facts.profile.account, facts.slurm.accounts
    if chosen.accounts and name not in chosen.accounts:
        return failure(
            f"partition {chosen.name} accepts only the accounts {', '.join(chosen.accounts)}, got {name or 'none'}",
            f"--set cluster.account={chosen.accounts[0]}, or another partition",
        )
    if accounts and name and name not in accounts:
        remedy = f"--set cluster.account={accounts[0]} (your accounts: {', '.join(accounts)})"
        return failure(f"{name} is not one of your accounts", remedy)
    return good(f"account {name}" if name else "no account is named")


def limits(facts: Facts) -> Finding | None:
    """The site lets a user submit all jobs."""
    if facts.slurm is None or facts.slurm.max_jobs is None:
        return None
    jobs, most = -(-facts.profile.workers // max(1, facts.profile.gpus_per_job)), facts.slurm.max_jobs
    if jobs > most and not (facts.profile.max_jobs and facts.profile.max_jobs <= most):
        return failure(f"{jobs} jobs, but the site accepts {most} per user", f"--set cluster.max_jobs={most}")
    return good(f"{jobs} of at most {plural(most, 'job')}")


def gres(facts: Facts) -> Finding | None:
    """Nodes have the GPUs that a job requests."""
    chosen, profile = partition_of(facts), facts.profile
    if chosen is None or not profile.gpus_per_job:
        return None
    available = chosen.gpus
    kinds = ", ".join(sorted(f"{name or 'gpu'} ({count})" for name, count in available.items())) or "none"
    if not available or (profile.gpu_type and not available[profile.gpu_type]):
        other = next((name for name in available if name), None)
        remedy = f"--set cluster.gpu_type={other}" if other else "another partition, or --set cluster.gpus_per_job=0"
        return failure(f"partition {chosen.name} has no {profile.gpu_type or 'GPUs'}; its GPUs: {kinds}", remedy)
    kind, usable = profile.gpu_type, [each.gpus for each in chosen.nodes if each.is_usable]
    most = max((gpus.get(kind, 0) if kind else sum(gpus.values()) for gpus in usable), default=0)
    if profile.gpus_per_job > most:
        message = f"a job requests {profile.gpus_per_job} GPUs, a node of {chosen.name} has {most}"
        return failure(message, f"--set cluster.gpus_per_job={most}")
    return good(f"partition {chosen.name} has {kinds}")


def walltime(facts: Facts) -> Finding | None:
    """The partition allows the jobs' walltime."""
    if (chosen := partition_of(facts)) is None or chosen.longest is None:
        return None
    requested = float(parse_walltime(facts.profile.walltime))
    if requested > chosen.longest:
        message = f"jobs request {duration(requested)}, {chosen.name} allows {duration(chosen.longest)}"
        return failure(message, f"--set 'cluster.walltime=\"{walltime_text(chosen.longest)}\"'")
    return good(f"{duration(requested)} of at most {duration(chosen.longest)}")


def memory(facts: Facts) -> Finding | None:
    """Nodes have the memory that a job requests."""
    chosen, profile = partition_of(facts), facts.profile
    if chosen is None or profile.memory is None:
        return None
    requested = parse_bytes(profile.memory) * max(1, profile.gpus_per_job) / 2**30
    most = max((each.memory for each in chosen.nodes), default=0) / 2**10
    if requested > most:
        message = f"a job requests {requested:.0f} GiB, the largest node has {most:.0f}"
        return failure(message, "a smaller cluster.memory (it is per worker), or fewer gpus_per_job")
    return good(f"{requested:.0f} GiB per job of {most:.0f} on a node")


def cpus(facts: Facts) -> Finding | None:
    """Nodes have the CPUs that a job requests, and enough for all their GPUs."""
    chosen, profile = partition_of(facts), facts.profile
    if chosen is None or not chosen.nodes:
        return None
    processes = max(1, profile.gpus_per_job)
    requested, most = profile.threads * processes, max(each.cpus for each in chosen.nodes)
    if requested > most:
        message = f"a job requests {requested} CPUs, the largest node has {most}"
        return failure(message, f"--set cluster.threads={most // processes}")
    share = min((each.cpus / sum(each.gpus.values()) for each in chosen.nodes if each.gpus), default=float(most))
    if profile.gpus_per_job and profile.threads > share:
        message = f"{profile.threads} CPUs per GPU, but a node has {share:g} for each: some of its GPUs stay unused"
        return warning(message, f"--set cluster.threads={max(1, int(share))}")
    return good(f"{requested} CPUs per job of {most} on a node")


def task_layout(facts: Facts) -> Finding | None:
    """There is one worker process for each GPU, so that no GPU of a job is idle."""
    profile = facts.profile
    requested, workers = _requested_gpus(profile.directives), max(1, profile.gpus_per_job)
    processes = "1 worker process" if workers == 1 else f"{workers} worker processes"
    if requested > workers:
        message = f"a job requests {requested} GPUs and starts {processes}: {requested - workers} idle"
        return failure(message, f"remove that directive and write: gpus_per_job: {requested}")
    tasks = (re.match(r"--ntasks(?:-per-node)?[= ](\d+)", line) for line in profile.directives)
    count = next((int(match[1]) for match in tasks if match), 1)
    if count > 1:
        message = f"directives request {count} tasks, but the script starts one program, without srun"
        return failure(message, "drop --ntasks: gpus_per_job sets the number of workers on a node")
    if profile.kind != "slurm":
        return None
    return good(f"{processes} per job" + (", one for each GPU" if profile.gpus_per_job else ""))


def _requested_gpus(directives: Iterable[str]) -> int:
    """The number of GPUs of a job that directives request; 0 without such a directive."""
    for line in directives:
        if match := re.match(r"--(gres|gpus|gpus-per-node|gpus-per-task)[= ](.+)", line):
            text = match[2].split()[0]
            return sum(parse_gpus(text).values()) if match[1] == "gres" else int(text.rpartition(":")[2] or 0)
    return 0


def allocation_layout(facts: Facts) -> Finding | None:
    """Inside a job there are as many tasks as GPUs; otherwise the work uses only one GPU."""
    variables = facts.here.variables
    if "SLURM_JOB_ID" not in variables:
        return None
    tasks = int(variables.get("SLURM_NTASKS", "1") or 1)
    per_node = len(split_gpus(variables.get(VISIBLE, ""))) or len(facts.here.gpus)
    total = per_node * int(variables.get("SLURM_NNODES", "1") or 1)
    if per_node and tasks < total:
        message = f"{plural(tasks, 'task')} for {total} GPUs in job {variables['SLURM_JOB_ID']}"
        return failure(message, f"request --ntasks-per-node={per_node} --gpus-per-task=1, and start workers by srun")
    return good(f"{plural(tasks, 'task')}, {total} GPUs")


def memory_directives(facts: Facts) -> Finding | None:
    """Memory is requested in one way only."""
    options = {line.split("=")[0].split()[0] for line in facts.profile.directives}
    ways = sorted(options & {"--mem", "--mem-per-gpu", "--mem-per-cpu"})
    ways += ["cluster.memory"] if facts.profile.memory and facts.slurm is not None else []
    if len(ways) > 1:
        message = f"memory is requested by {' and '.join(ways)}, which exclude each other"
        return failure(message, f"keep only {ways[-1]}")
    return good(f"memory requested by {ways[0]}" if ways else "the site's default memory") if facts.slurm else None


def rehearsal(facts: Facts) -> Finding | None:
    """Slurm would accept the profile's jobs (``sbatch --test-only``)."""
    if facts.slurm is None or facts.slurm.site is None:
        return None
    if facts.slurm.refusal:
        remedy = "see the other failures, or: daskmetrics run --dry-run"
        return failure(f"sbatch refuses: {facts.slurm.refusal}", remedy)
    return good("sbatch --test-only accepts the job")
