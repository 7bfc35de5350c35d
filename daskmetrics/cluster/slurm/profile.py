"""A proposed profile for a site: its partition, the share of a node for each worker, as commented
YAML.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from daskmetrics.cluster.slurm.partitions import Node, Partition
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.text import walltime_text

WALLTIME = 4 * 3600.0  # long enough to be worth a wait, short enough to be backfilled
CPUS = 8  # of one worker at most: beside a GPU no more are used
MEMORY = 64  # GiB of one worker at most
SHARE = 0.9  # of a node's memory, since the system needs some
WORKERS = 4


def choose(partitions: Sequence[Partition], name: str | None = None) -> tuple[Partition, Node]:
    """The best partition and its best kind of node: with GPUs, open to all accounts, the default
    one, in this order.

    A usable partition of the given name comes before all others.
    """
    usable = [partition for partition in partitions if partition.up and partition.usable_nodes]
    if not usable:
        names = ", ".join(partition.name for partition in partitions) or "none"
        raise ConfigError(
            f"No partition is up and has usable nodes. Partitions: {names}. See: sinfo"
        )

    def suitability(partition: Partition) -> tuple[bool, bool, bool, bool, int]:
        is_open = not partition.accounts
        gpus = partition.gpus.total()
        return partition.name == name, gpus > 0, is_open, partition.default, gpus

    partition = max(usable, key=suitability)
    alike = Counter((node.cpus, node.memory, *node.gpus.items()) for node in partition.usable_nodes)

    def gpus_of_all(node: Node) -> tuple[int, int]:
        count = alike[node.cpus, node.memory, *node.gpus.items()]
        return sum(whole_gpus(node.gpus).values()) * count, count

    return partition, max(partition.usable_nodes, key=gpus_of_all)


def whole_gpus(gpus: Mapping[str, int]) -> Mapping[str, int]:
    """GPUs without MIG slices, which are too small for most models, unless there are only slices.

    >>> whole_gpus({"a100": 2, "a100_1g.5gb": 14})
    {'a100': 2}
    """
    return {name: n for name, n in gpus.items() if not re.search(r"\dg\.\d+gb", name)} or gpus


FROM_JOBQUEUE = "from jobqueue.yaml"


def profile_text(
    partition: Partition,
    node: Node,
    interface: str | None,
    listing: str = "",
    jobqueue: Mapping[str, object] | None = None,
) -> str:
    """The YAML of a profile for a partition and a kind of its nodes; ``listing``, of all
    partitions, is put into comments.

    ``jobqueue`` is what the user has set for dask-jobqueue, by the keys of a profile; it comes
    before what the site says.
    """
    configured = dict(jobqueue or {})
    if configured.get("partition") != partition.name:  # it is not usable
        configured.pop("partition", None)
    keys = {
        "kind": ("slurm", ""),
        "workers": (WORKERS, ""),
        **_site_keys(partition, node, interface),
        **{key: (json.dumps(value), FROM_JOBQUEUE) for key, value in configured.items()},
    }
    lines = [
        "# Written by `daskmetrics cluster init` from the output of Slurm.",
        "# Test it with: daskmetrics cluster test FILE",
        "#",
        *(f"#   {line}" for line in listing.splitlines()),
        "",
    ]
    for key, (value, comment) in keys.items():
        # a key without a value is left to the user
        line = f"# {key}: ..."
        if value:
            line = f"{key}: {value}"
        if comment:
            line += f"  # {comment}"
        lines.append(line)
    return "\n".join([*lines, ""])


def _site_keys(
    partition: Partition, node: Node, interface: str | None
) -> dict[str, tuple[object, str]]:
    """Keys of the profile that follow from the site, each with its value and a comment."""
    gpus = whole_gpus(node.gpus)
    workers_per_node = max(1, sum(gpus.values()))
    gpu_type = max(gpus, key=lambda name: gpus[name], default="")
    other_types = sorted({*partition.gpus} - {gpu_type, ""})
    memory = min(MEMORY, int(node.memory * SHARE / workers_per_node / 1024))
    walltime = min(WALLTIME, partition.longest or WALLTIME)
    keys: dict[str, tuple[object, str]] = {
        "partition": (partition.name, ""),
        "account": (None, "if Slurm requires one: sacctmgr show associations user=$USER"),
        "gpus_per_job": ("1" if gpus else "0", ""),
        "gpu_type": (gpu_type, f"available: {', '.join([gpu_type, *other_types])}"),
        "threads": (min(CPUS, max(1, node.cpus // workers_per_node)), ""),
        "memory": (f"{memory}GiB", ""),
        "walltime": (f'"{walltime_text(walltime)}"', ""),
        "interface": (interface, "to the nodes, whose interface must have the same name"),
    }
    if partition.accounts:
        keys["account"] = (partition.accounts[0], f"allowed: {', '.join(partition.accounts)}")
    if not gpu_type:
        del keys["gpu_type"]
    if not memory:
        del keys["memory"]
    return keys
