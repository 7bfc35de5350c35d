"""Why Slurm would refuse the jobs of a profile, by its own answer, and what helps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from daskmetrics.cluster.slurm.commands import SlurmError, SlurmRefusal, rehearse
from daskmetrics.cluster.slurm.partitions import (
    Partition,
    read_partitions,
    requested,
    user_accounts,
)
from daskmetrics.cluster.slurm.script import LaunchInfo, pools, script
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.text import walltime_text

SECTIONS = ("cluster", "cluster.scoring")  # of the keys of each pool's partition and directives
CHECK_KEYS = "check its partition, account, walltime, gpus_per_job, memory and directives"


@dataclass(frozen=True)
class Refusal:
    """A job of a profile that Slurm would refuse."""

    message: str  # whose job, and what Slurm says
    remedy: str


def refusal(profile: Cluster, launch: LaunchInfo) -> Refusal | None:
    """What Slurm would refuse: the smallest or the largest job of a pool.

    None if it takes all.

    SlurmError if it does not answer, ConfigError if no script can name the folder of the logs.
    """
    absolute = {"logs": str(Path(profile.logs).absolute())}
    of_pools = pools(profile.model_copy(update=absolute))
    for section, pool in zip(SECTIONS, of_pools, strict=False):
        for memory in dict.fromkeys((pool.memories[0], pool.memories[-1])):
            sized = pool.with_memory(memory)
            try:
                rehearse(script(sized, replace(launch, worker=f"{pool.name}-0")))
            except SlurmRefusal as error:
                message = (
                    f"Slurm would refuse the {pool.name} jobs of this profile with "
                    f"{memory or 'the default memory'} per worker: {error}"
                )
                return Refusal(message, remedy(str(error), sized.profile, section))
    return None


def rehearse_workers(profile: Cluster, launch: LaunchInfo) -> None:
    """Raise ConfigError, with Slurm's message and what helps, if it would refuse the jobs."""
    try:
        refused = refusal(profile, launch)
    except SlurmError as error:
        raise ConfigError(f"Slurm cannot check the jobs: {error}.") from None
    if refused:
        raise ConfigError(
            f"{refused.message}. Nothing was submitted. What helps: {refused.remedy}."
        )


def remedy(message: str, profile: Cluster, section: str) -> str:
    """What helps after a message of Slurm, with values that the site offers."""
    try:
        site = read_partitions()
    except DaskmetricsError:
        return CHECK_KEYS
    chosen = [partition for partition in requested(profile, site).values() if partition]

    def says(words: str) -> bool:
        return re.search(words, message, re.IGNORECASE) is not None

    if says("partition name|default partition|partition not available"):
        return _partition(profile.partition or "", site, section)
    if says("invalid account|not permitted"):
        return _account(chosen)
    if says("time limit is invalid"):
        return _walltime(chosen)
    if says("node configuration|processors|node count|generic resource|memory spec"):
        return _nodes(chosen)
    if says("feature|node name|exclusive|invalid qos"):
        return f"correct {section}.directives; nodes and their features: sinfo -o '%N %f'"
    if says("policy"):
        return (
            "fewer or smaller jobs, or another account; see: sacctmgr show associations user=$USER,"
            " sacctmgr show qos"
        )
    return CHECK_KEYS


def _partition(wanted: str, site: Sequence[Partition], section: str) -> str:
    names = [partition.name for partition in site if partition.up]
    near = get_close_matches(wanted, names, n=1)
    return f"--set {section}.partition={[*near, *names, 'NAME'][0]} (up are: {', '.join(names)})"


def _account(chosen: Sequence[Partition]) -> str:
    accepted = [name for partition in chosen for name in partition.accounts]
    own = user_accounts() or ()
    usable = [name for name in own if name in accepted] or accepted or own
    text = f"--set cluster.account={[*usable, 'NAME'][0]}"
    if accepted:
        text += f" (the partition accepts only {', '.join(accepted)})"
    if own:
        text += f" (your accounts: {', '.join(own)})"
    return f"{text}, or another partition"


def _walltime(chosen: Sequence[Partition]) -> str:
    limits = [partition.longest for partition in chosen if partition.longest]
    if not limits:
        return "a shorter cluster.walltime"
    return f"--set 'cluster.walltime=\"{walltime_text(min(limits))}\"', or another partition"


def _nodes(chosen: Sequence[Partition]) -> str:
    nodes = [node for partition in chosen for node in partition.usable_nodes]
    if not nodes:
        return "no node of the partition accepts jobs; see: sinfo -R"
    cpus = max(node.cpus for node in nodes)
    memory = max(node.memory for node in nodes) // 1024
    gpus = {f"{count} GPUs {kind}".rstrip() for node in nodes for kind, count in node.gpus.items()}
    return (
        "fewer gpus_per_job, another gpu_type, fewer threads or less memory (each per worker), or"
        f" other directives; its nodes have up to {cpus} CPUs, {memory} GiB,"
        f" {', '.join(sorted(gpus)) or 'no GPU'}"
    )
