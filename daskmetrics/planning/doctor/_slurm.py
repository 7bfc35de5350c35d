"""Checks of a Slurm profile against what Slurm offers: partition, limits, and how tasks are laid out over GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dask.utils import parse_bytes

from daskmetrics.cluster.slurm._partitions import Nodes, Partition, parse_gpus
from daskmetrics.core._gpus import VISIBLE, split_gpus
from daskmetrics.core._text import duration
from daskmetrics.core._times import parse_walltime
from daskmetrics.core.errors import unknown
from daskmetrics.planning.doctor._facts import Facts
from daskmetrics.planning.doctor._finding import Finding, failure, good, warning


def commands(facts: Facts) -> Finding | None:
    """Slurm's commands are there."""
    if facts.slurm is None:
        return None
    if facts.slurm.lacking:
        lacking = ", ".join(facts.slurm.lacking)
        return failure(f"not on PATH: {lacking}", "run this on a login node, or: module load slurm; or --cluster local")
    return good("sbatch, squeue, scancel, sinfo and scontrol are there")


def answers(facts: Facts) -> Finding | None:
    """Slurm's controller answers."""
    if facts.slurm is None or facts.slurm.lacking:
        return None
    if facts.slurm.problem:
        return failure(facts.slurm.problem, "see: scontrol ping; ask the site's support if it stays so")
    return good(f"Slurm {facts.slurm.site.version} answers" if facts.slurm.site else "Slurm answers")


def partition_of(facts: Facts) -> Partition | None:
    """The partition that the profile's jobs go to, if there is such a one."""
    if facts.slurm is None or facts.slurm.site is None:
        return None
    named = {each.name: each for each in facts.slurm.site.partitions}
    wanted = facts.profile.partition
    if wanted:
        return named.get(wanted)
    return next((each for each in named.values() if each.default), None)


def partition(facts: Facts) -> Finding | None:
    """The partition exists and is up."""
    if facts.slurm is None or facts.slurm.site is None:
        return None
    names = [each.name for each in facts.slurm.site.partitions]
    found, wanted = partition_of(facts), facts.profile.partition
    if found is None and wanted:
        return failure(str(unknown("partition", wanted, names)), f"--set cluster.partition={_first(names)}")
    if found is None:
        return failure("no partition is named and the site has no default", f"--set cluster.partition={_first(names)}")
    if not found.up:
        return failure(f"partition {found.name} is not up", f"wait, or take another one: {', '.join(names)}")
    return good(f"partition {found.name} is up")


def _first(names: Iterable[str]) -> str:
    return next(iter(names), "NAME")


def nodes(facts: Facts) -> Finding | None:
    """Nodes of the partition take work."""
    if (found := partition_of(facts)) is None:
        return None
    usable = sum(each.count for each in found.nodes if each.is_usable)
    total = sum(each.count for each in found.nodes)
    if not usable:
        return failure(f"none of {total} nodes of {found.name} takes work", "see: sinfo -R")
    return good(f"{usable} of {total} nodes of {found.name} take work")


def account(facts: Facts) -> Finding | None:
    """The account may use the partition."""
    if (found := partition_of(facts)) is None or facts.slurm is None:
        return None
    wanted, own = facts.profile.account, facts.slurm.accounts
    if found.accounts and wanted not in found.accounts:
        allowed = ", ".join(found.accounts)
        return failure(
            f"partition {found.name} takes only accounts {allowed}, got {wanted or 'none'}",
            f"--set cluster.account={found.accounts[0]}, or another partition",
        )
    if own and wanted and wanted not in own:
        return failure(
            f"account {wanted} is none of yours", f"--set cluster.account={own[0]} (yours: {', '.join(own)})"
        )
    return good(f"account {wanted or 'not named'}")


def limits(facts: Facts) -> Finding | None:
    """The site lets a user submit so many jobs."""
    if facts.slurm is None or facts.slurm.max_jobs is None:
        return None
    jobs = -(-facts.profile.workers // max(1, facts.profile.gpus_per_job))
    most = facts.slurm.max_jobs
    if jobs > most and not (facts.profile.max_jobs and facts.profile.max_jobs <= most):
        return failure(f"{jobs} jobs, but the site takes {most} of a user", f"--set cluster.max_jobs={most}")
    return good(f"{jobs} jobs of at most {most}")


def gres(facts: Facts) -> Finding | None:
    """Nodes have the GPUs that a job asks for."""
    found, profile = partition_of(facts), facts.profile
    if found is None or not profile.gpus_per_job:
        return None
    there = found.gpus
    kinds = ", ".join(sorted(f"{name or 'gpu'} ({count})" for name, count in there.items())) or "none"
    if not there or (profile.gpu_type and not there[profile.gpu_type]):
        wanted = profile.gpu_type or "GPUs"
        named = next((name for name in there if name), None)
        remedy = f"--set cluster.gpu_type={named}" if named else "another partition, or --set cluster.gpus_per_job=0"
        return failure(f"partition {found.name} has no {wanted}; its GPUs: {kinds}", remedy)
    most = max((_of(each, profile.gpu_type) for each in found.nodes if each.is_usable), default=0)
    if profile.gpus_per_job > most:
        said = f"a job asks for {profile.gpus_per_job} GPUs, a node of {found.name} has {most}"
        return failure(said, f"--set cluster.gpus_per_job={most}")
    return good(f"partition {found.name} has {kinds}")


def _of(nodes: Nodes, kind: str | None) -> int:
    return nodes.gpus.get(kind, 0) if kind else sum(nodes.gpus.values())


def walltime(facts: Facts) -> Finding | None:
    """The partition allows the time that is asked for."""
    if (found := partition_of(facts)) is None or found.longest is None:
        return None
    asked = float(parse_walltime(facts.profile.walltime))
    if asked > found.longest:
        hours = int(found.longest // 3600)
        said = f"jobs ask for {duration(asked)}, {found.name} allows {duration(found.longest)}"
        return failure(said, f"--set 'cluster.walltime=\"{hours:02d}:{int(found.longest % 3600 // 60):02d}:00\"'")
    return good(f"{duration(asked)} of at most {duration(found.longest)}")


def memory(facts: Facts) -> Finding | None:
    """Nodes have the memory that a job asks for."""
    found, profile = partition_of(facts), facts.profile
    if found is None or profile.memory is None:
        return None
    asked = parse_bytes(profile.memory) * max(1, profile.gpus_per_job)
    most = max((each.memory for each in found.nodes), default=0) * 2**20
    if asked > most:
        said = f"a job asks for {asked / 2**30:.0f} GiB, the largest node has {most / 2**30:.0f}"
        return failure(said, "a smaller cluster.memory (it is per worker), or fewer gpus_per_job")
    return good(f"{asked / 2**30:.0f} GiB per job of {most / 2**30:.0f} on a node")


def cpus(facts: Facts) -> Finding | None:
    """Nodes have the CPUs that a job asks for, and leave some to their other GPUs."""
    found, profile = partition_of(facts), facts.profile
    if found is None or not found.nodes:
        return None
    processes = max(1, profile.gpus_per_job)
    asked, most = profile.threads * processes, max(each.cpus for each in found.nodes)
    if asked > most:
        return failure(
            f"a job asks for {asked} CPUs, the largest node has {most}", f"--set cluster.threads={most // processes}"
        )
    share = min((each.cpus / sum(each.gpus.values()) for each in found.nodes if each.gpus), default=float(most))
    if profile.gpus_per_job and profile.threads > share:
        said = f"{profile.threads} CPUs per GPU, a node has {share:g} for each: some of its GPUs cannot be used"
        return warning(said, f"--set cluster.threads={max(1, int(share))}")
    return good(f"{asked} CPUs per job of {most} on a node")


def task_layout(facts: Facts) -> Finding | None:
    """There is one worker process for each GPU: no task holds GPUs that nobody uses."""
    profile = facts.profile
    asked = _gpus_asked(profile.directives)
    workers = max(1, profile.gpus_per_job)
    if asked and asked > workers:
        remedy = f"drop that directive and write: gpus_per_job: {asked}"
        return failure(f"a job asks for {asked} GPUs and starts {_processes(workers)}: {asked - workers} idle", remedy)
    tasks = _number(profile.directives, r"--ntasks(?:-per-node)?[= ](\d+)")
    if tasks and tasks > 1:
        said = f"{tasks} tasks are asked for, but the script starts one program that is no srun"
        return failure(said, "drop --ntasks: the workers of a node come from gpus_per_job")
    if profile.kind != "slurm":
        return None
    return good(f"{_processes(workers)} per job" + (", one for each GPU" if profile.gpus_per_job else ""))


def _processes(count: int) -> str:
    return "1 worker process" if count == 1 else f"{count} worker processes"


def _gpus_asked(directives: Iterable[str]) -> int | None:
    """GPUs of a job, if further directives ask for them."""
    for line in directives:
        found = re.match(r"--(gres|gpus|gpus-per-node|gpus-per-task)[= ](.+)", line)
        if found:
            text = found[2].split()[0]
            number = sum(parse_gpus(text).values()) if found[1] == "gres" else int(text.rpartition(":")[2] or 0)
            return number or None
    return None


def _number(directives: Iterable[str], pattern: str) -> int | None:
    return next((int(found[1]) for line in directives if (found := re.match(pattern, line))), None)


def allocation_layout(facts: Facts) -> Finding | None:
    """Inside a job: as many tasks as GPUs, or the work uses only one of them."""
    own = facts.here.variables
    if "SLURM_JOB_ID" not in own:
        return None
    tasks = int(own.get("SLURM_NTASKS", "1") or 1)
    visible = split_gpus(own.get(VISIBLE, ""))
    per_node = len(visible) or len(facts.here.gpus)
    total = per_node * int(own.get("SLURM_NNODES", "1") or 1)
    if per_node and tasks < total:
        said = f"{tasks} task{'' if tasks == 1 else 's'} for {total} GPUs in job {own['SLURM_JOB_ID']}"
        return failure(said, f"ask for --ntasks-per-node={per_node} --gpus-per-task=1, and start workers by srun")
    return good(f"{tasks} tasks, {total} GPUs")


def memory_directives(facts: Facts) -> Finding | None:
    """Only one way of asking for memory is used."""
    words = {line.split("=")[0].split()[0] for line in facts.profile.directives}
    ways = sorted(words & {"--mem", "--mem-per-gpu", "--mem-per-cpu"})
    ways += ["cluster.memory"] if facts.profile.memory and facts.slurm is not None else []
    if len(ways) > 1:
        return failure(
            f"memory is asked for by {' and '.join(ways)}, which exclude each other", f"keep only {ways[-1]}"
        )
    return good(f"memory asked for by {ways[0]}" if ways else "memory as the site has it") if facts.slurm else None


def rehearsal(facts: Facts) -> Finding | None:
    """Slurm would take the profile's jobs (``sbatch --test-only``)."""
    if facts.slurm is None or facts.slurm.site is None:
        return None
    if facts.slurm.refusal:
        return failure(
            f"sbatch refuses: {facts.slurm.refusal}", "see the other failures, or: daskmetrics run --dry-run"
        )
    return good("sbatch --test-only takes the job")
