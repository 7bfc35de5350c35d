"""A proposed profile for a site: its partition, the share of a node for each worker, as commented
YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from daskmetrics.cluster.slurm.partitions import Nodes, Partition, Site
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.text import walltime_text

WALLTIME = 4 * 3600.0  # long enough to be worth a wait, short enough to be backfilled
CPUS = 8  # of one worker at most: beside a GPU no more are used
MEMORY = 64  # GiB of one worker at most
SHARE = 0.9  # of a node's memory, since the system needs some
WORKERS = 4


def choose(site: Site, name: str | None = None) -> tuple[Partition, Nodes]:
    """The best partition and its best nodes: with GPUs, open to all accounts, the default one, in
    this order.

    A usable partition of the given name comes before all others.
    """
    usable = [
        partition for partition in site.partitions if partition.up and _usable_nodes(partition)
    ]
    if not usable:
        names = ", ".join(partition.name for partition in site.partitions) or "none"
        raise ConfigError(
            f"No partition is up and has usable nodes. Partitions: {names}. See: sinfo"
        )

    def suitability(partition: Partition) -> tuple[bool, bool, bool, bool, int]:
        is_open = not partition.accounts
        gpus = partition.gpus.total()
        return partition.name == name, gpus > 0, is_open, partition.default, gpus

    def gpus_of_all(nodes: Nodes) -> tuple[int, int]:
        return sum(whole_gpus(nodes.gpus).values()) * nodes.count, nodes.count

    partition = max(usable, key=suitability)
    return partition, max(_usable_nodes(partition), key=gpus_of_all)


def _usable_nodes(partition: Partition) -> list[Nodes]:
    return [nodes for nodes in partition.nodes if nodes.is_usable]


def whole_gpus(gpus: Mapping[str, int]) -> Mapping[str, int]:
    """GPUs without MIG slices, which are too small for most models, unless there are only slices.

    >>> whole_gpus({"a100": 2, "a100_1g.5gb": 14})
    {'a100': 2}
    """
    return {name: n for name, n in gpus.items() if not re.search(r"\dg\.\d+gb", name)} or gpus


FROM_JOBQUEUE = "from jobqueue.yaml"


def profile_text(
    site: Site,
    partition: Partition,
    nodes: Nodes,
    interface: str | None,
    jobqueue: Mapping[str, Any] | None = None,
) -> str:
    """The YAML of a profile for a partition and its nodes; the site's other partitions are listed
    in comments.

    What the user has set for dask-jobqueue (``jobqueue``) comes before what the site says.
    """
    lines = [
        "# Written by `daskmetrics cluster init` from the output of sinfo and scontrol of Slurm "
        f"{site.version}.",
        "# Test it with: daskmetrics cluster test FILE",
        "#",
        "# Partitions:",
    ]
    for other in site.partitions:
        lines.append(f"#   {_describe_partition(other)}")
        lines += [f"#     {_describe_nodes(alike)}" for alike in other.nodes]
    lines.append("")
    for key, value, comment in _keys(partition, nodes, interface, jobqueue or {}):
        # a key without a value is left to the user
        line = f"{key}: {value}" if value else f"# {key}: ..."
        if comment:
            line += f"  # {comment}"
        lines.append(line)
    return "\n".join([*lines, ""])


def _describe_partition(partition: Partition) -> str:
    text = f"{partition.name}{'*' if partition.default else ''}: "
    if partition.longest is None:
        text += "no time limit"
    else:
        text += f"up to {walltime_text(partition.longest)}"
    if not partition.up:
        text += ", not up"
    if partition.accounts:
        text += f", only for accounts {','.join(partition.accounts)}"
    return text


def _describe_nodes(nodes: Nodes) -> str:
    gpus = ", ".join(f"{n} x {name or 'GPU'}" for name, n in nodes.gpus.items()) or "no GPU"
    memory = f"{nodes.memory / 1024:.0f} GiB"
    text = f"{nodes.count} nodes of {nodes.cpus} CPUs, {memory}, {gpus}; {nodes.state}"
    if nodes.features:
        text += f"; features {','.join(nodes.features)}"
    return text


def _keys(
    partition: Partition, nodes: Nodes, interface: str | None, jobqueue: Mapping[str, Any]
) -> Iterator[tuple[str, object, str]]:
    """Each key of the profile with its value and a comment."""
    gpus = whole_gpus(nodes.gpus)
    workers_per_node = max(1, sum(gpus.values()))
    yield "kind", "slurm", ""
    yield "workers", WORKERS, ""
    is_chosen = jobqueue.get("queue") == partition.name
    yield "partition", partition.name, FROM_JOBQUEUE if is_chosen else ""
    if account := jobqueue.get("account"):
        yield "account", account, FROM_JOBQUEUE
    elif partition.accounts:
        account, *others = partition.accounts
        yield "account", account, _also("allowed", others)
    else:
        yield (
            "account",
            None,
            "if Slurm requires one; 'sacctmgr show associations user=$USER' lists yours",
        )
    if nodes.gpus:
        yield "gpus_per_job", "1", ""
    else:
        yield "gpus_per_job", "0", "no partition has GPUs"
    if gpu_type := max(gpus, key=lambda name: gpus[name], default=""):
        yield "gpu_type", gpu_type, _also("available", sorted({*partition.gpus} - {gpu_type, ""}))
    yield "threads", min(CPUS, max(1, nodes.cpus // workers_per_node)), ""
    if memory := min(MEMORY, int(nodes.memory * SHARE / workers_per_node / 1024)):
        yield "memory", f"{memory}GiB", ""
    walltime = min(WALLTIME, partition.longest or WALLTIME)
    yield "walltime", f'"{walltime_text(walltime)}"', ""
    if prologue := jobqueue.get("job-script-prologue"):
        yield "prologue", json.dumps(prologue), FROM_JOBQUEUE
    if configured := jobqueue.get("interface"):
        comment = FROM_JOBQUEUE
        if configured != interface:
            comment += f"; {interface} leads to the nodes"
        yield "interface", configured, comment
    else:
        yield (
            "interface",
            interface,
            "from this machine to the nodes; the nodes' interface must have the same name",
        )


def _also(condition: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"also {condition}: {', '.join(names)}"
