"""A proposed profile for a site: its partition, the share of a node for each worker, as commented YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from daskmetrics.cluster.slurm._partitions import Nodes, Partition, Site
from daskmetrics.core._text import walltime_text
from daskmetrics.core.errors import ConfigError

WALLTIME = 4 * 3600.0  # long enough to be worth a wait, short enough to be backfilled
CPUS = 8  # of one worker at most: beside a GPU no more are used
MEMORY = 64  # GiB of one worker at most
SHARE = 0.9  # of a node's memory, since the system needs some
WORKERS = 4


def choose(site: Site, name: str | None = None) -> tuple[Partition, Nodes]:
    """The best partition and its best nodes: with GPUs, open to all accounts, the default one, in this order.

    A usable partition of the given name comes before all others.
    """
    usable = [each for each in site.partitions if each.up and any(nodes.is_usable for nodes in each.nodes)]
    if not usable:
        names = ", ".join(each.name for each in site.partitions) or "none"
        raise ConfigError(f"No partition is up and has usable nodes. Partitions: {names}. See: sinfo")
    best = max(
        usable,
        key=lambda each: (each.name == name, bool(each.gpus), not each.accounts, each.default, each.gpus.total()),
    )
    nodes = [nodes for nodes in best.nodes if nodes.is_usable]
    return best, max(nodes, key=lambda nodes: (sum(whole_gpus(nodes.gpus).values()) * nodes.count, nodes.count))


def whole_gpus(gpus: Mapping[str, int]) -> Mapping[str, int]:
    """GPUs without MIG slices, which are too small for most models, unless there are only slices.

    >>> whole_gpus({"a100": 2, "a100_1g.5gb": 14})
    {'a100': 2}
    """
    return {name: n for name, n in gpus.items() if not re.search(r"\dg\.\d+gb", name)} or gpus


FROM = "  # from jobqueue.yaml"


def profile_text(
    site: Site, partition: Partition, nodes: Nodes, interface: str | None, jobqueue: Mapping[str, Any] | None = None
) -> str:
    """The YAML of a profile for a partition and its nodes; the site's other partitions are listed in comments.

    What the user has set for dask-jobqueue (``jobqueue``) comes before what the site says.
    """
    lines = [f"# Written by `daskmetrics cluster init` from the output of sinfo and scontrol of Slurm {site.version}."]
    lines += ["# Test it with: daskmetrics cluster test FILE", "#", "# Partitions:"]
    for each in site.partitions:
        limit = "no time limit" if each.longest is None else f"up to {walltime_text(each.longest)}"
        only = f", only for accounts {','.join(each.accounts)}" if each.accounts else ""
        lines.append(f"#   {each.name}{'*' if each.default else ''}: {limit}{'' if each.up else ', not up'}{only}")
        lines += [f"#     {_describe(nodes)}" for nodes in each.nodes]
    return "\n".join([*lines, "", *_body(partition, nodes, interface, jobqueue or {}), ""])


def _describe(nodes: Nodes) -> str:
    gpus = ", ".join(f"{n} x {name or 'GPU'}" for name, n in nodes.gpus.items()) or "no GPU"
    features = f"; features {','.join(nodes.features)}" if nodes.features else ""
    return f"{nodes.count} nodes of {nodes.cpus} CPUs, {nodes.memory / 1024:.0f} GiB, {gpus}; {nodes.state}{features}"


def _body(partition: Partition, nodes: Nodes, interface: str | None, jobqueue: Mapping[str, Any]) -> list[str]:
    gpus = whole_gpus(nodes.gpus)
    per_node = max(1, sum(gpus.values()))  # workers that share a node
    kind = max(gpus, key=lambda name: gpus[name], default="")
    memory = min(MEMORY, int(nodes.memory * SHARE / per_node / 1024))
    others = sorted({name for name in partition.gpus if name} - {kind})
    chosen = FROM if jobqueue.get("queue") == partition.name else ""
    lines = ["kind: slurm", f"workers: {WORKERS}", f"partition: {partition.name}{chosen}"]
    if account := jobqueue.get("account"):
        lines += [f"account: {account}{FROM}"]
    elif partition.accounts:
        lines += [f"account: {partition.accounts[0]}{_comment('also allowed', partition.accounts[1:])}"]
    else:
        lines += ["# account: NAME  # if Slurm requires one; 'sacctmgr show associations user=$USER' lists yours"]
    lines += ["gpus_per_job: 1" if nodes.gpus else "gpus_per_job: 0  # no partition has GPUs"]
    lines += [f"gpu_type: {kind}{_comment('also available', others)}"] if kind else []
    lines += [f"threads: {min(CPUS, max(1, nodes.cpus // per_node))}"]
    lines += [f"memory: {memory}GiB"] if memory else []
    lines += [f'walltime: "{walltime_text(min(WALLTIME, partition.longest or WALLTIME))}"']
    if prologue := jobqueue.get("job-script-prologue"):
        lines += [f"prologue: {json.dumps(prologue)}{FROM}"]
    if own := jobqueue.get("interface"):
        return [*lines, f"interface: {own}{FROM}" + (f"; {interface} leads to the nodes" if own != interface else "")]
    hint = "from this machine to the nodes; the nodes' interface must have the same name"
    return [*lines, f"interface: {interface}  # {hint}" if interface else "# interface: ib0"]


def _comment(label: str, names: Iterable[str]) -> str:
    text = ", ".join(names)
    return f"  # {label}: {text}" if text else ""
